/* SPDX-License-Identifier: MIT */
/* torchtitan - torchtitan's names of units and its rule for the number of
 * stages. pp_split_weights (split.h) is its rule for layers. Pure. */
#ifndef PP_SPLIT_TORCHTITAN_H
#define PP_SPLIT_TORCHTITAN_H

#include <stddef.h>

#include "base/err.h"
#include "model/model.h"

/* torchtitan's name of the head: lm_head, or output in older releases. */
enum pp_torchtitan_names { PP_TORCHTITAN_LM_HEAD, PP_TORCHTITAN_OUTPUT };

/* Writes "tok_embeddings", "layers.3", "norm" or "lm_head". */
void pp_torchtitan_fqn(struct pp_unit_id u, enum pp_torchtitan_names names,
                       char buf[PP_FQN_TEXT]);

/* Finds a unit by its name in any release. Returns false if there is none. */
bool pp_torchtitan_by_fqn(const struct pp_model *m, const char *fqn,
                          struct pp_unit_id *u);

/* The stages on each rank that a schedule supports: exactly one (GPipe, 1F1B),
 * at least two (the others), or any. */
enum pp_stages_kind { PP_STAGES_ANY, PP_STAGES_SINGLE, PP_STAGES_MULTI };

/* The treatment of a number of stages that does not divide by the ranks: an
 * error, as in torchtitan, or rounding to a multiple, an option of
 * NeMo-Automodel. */
enum pp_stages_round { PP_ROUND_NOT, PP_ROUND_UP, PP_ROUND_DOWN };

/* NeMo-Automodel has the same rule with both weights 0. */
struct pp_torchtitan {
    size_t n_layers, input_weight, output_weight, n_ranks;
    size_t layers_per_stage; /* 0: not given */
    enum pp_stages_kind kind;
    enum pp_stages_round round;
};

/* Computes the number of stages: one or two on each rank, or the layers divided
 * by layers_per_stage, rounded up; embedding and head count by their weights.
 * If layers_per_stage does not work, the error lists the values that do, with
 * at most max_stages stages. torchtitan does not list them. */
int pp_torchtitan_stages(const struct pp_torchtitan *t, size_t max_stages,
                         size_t *n_stages, struct pp_err *err) PP_MUST_USE;

#endif
