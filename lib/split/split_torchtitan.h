/* SPDX-License-Identifier: MIT */
/* split_torchtitan - torchtitan's names of units and its number of stages. Its
 * rule for layers is pp_split_weights (split.h). Pure. */
#ifndef PP_SPLIT_SPLIT_TORCHTITAN_H
#define PP_SPLIT_SPLIT_TORCHTITAN_H

#include <stddef.h>

#include "base/err.h"
#include "model/model.h"

/* What torchtitan calls the head: lm_head, or output in older releases. */
enum pp_torchtitan_names { PP_TORCHTITAN_LM_HEAD, PP_TORCHTITAN_OUTPUT };

/* "tok_embeddings", "layers.3", "norm", "lm_head". */
void pp_torchtitan_fqn(struct pp_unit_id u, enum pp_torchtitan_names names,
                       char buf[PP_FQN_TEXT]);

/* The unit of that name, of either release; false when the model has none. */
bool pp_torchtitan_by_fqn(const struct pp_model *m, const char *fqn,
                          struct pp_unit_id *u);

/* Stages on each rank that a schedule can run: exactly one (GPipe, 1F1B), at
 * least two (the others), or not said. */
enum pp_stages_kind { PP_STAGES_ANY, PP_STAGES_SINGLE, PP_STAGES_MULTI };

/* What becomes of a number of stages that ranks do not divide: it is refused,
 * as by torchtitan, or, as NeMo-Automodel may be told, the next multiple up or
 * down is taken. */
enum pp_stages_round { PP_ROUND_NOT, PP_ROUND_UP, PP_ROUND_DOWN };

/* NeMo-Automodel's rule is the same with both weights 0. */
struct pp_torchtitan {
    size_t n_layers, input_weight, output_weight, n_ranks;
    size_t layers_per_stage; /* 0: not given */
    enum pp_stages_kind kind;
    enum pp_stages_round round;
};

/* The number of stages: one or two on each rank, or layers divided by
 * layers_per_stage, rounded up, embedding and head counted by their weights. A
 * value that does not work is refused with those that do, which torchtitan does
 * not list; they make at most max_stages stages. */
int pp_torchtitan_stages(const struct pp_torchtitan *t, size_t max_stages,
                         size_t *n_stages, struct pp_err *err) PP_MUST_USE;

#endif
