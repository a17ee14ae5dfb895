/* SPDX-License-Identifier: MIT */
/* ppsplit - what the files of cmd/ppsplit*.c share: one run of the program,
 * from its options to the plan. */
#ifndef PP_CMD_PPSPLIT_H
#define PP_CMD_PPSPLIT_H

#include <stdint.h>

#include "base/arena.h"
#include "plan/cost.h"
#include "plan/model.h"
#include "plan/split_torchtitan.h"
#include "sched/graph.h"
#include "tool.h"

enum split_method {
    SPLIT_BALANCED,
    SPLIT_UNIFORM,
    SPLIT_WEIGHTS,
    SPLIT_LAYERS,
    SPLIT_FQNS,
    SPLIT_LAYOUT,
    SPLIT_MEGATRON,
    SPLIT_PARAMETERS,
    SPLIT_TYPE,
    SPLIT_COLOSSALAI
};

/* What to print instead of a manifest. */
enum split_export {
    SPLIT_EXPORT_NONE,
    SPLIT_EXPORT_MEGATRON,
    SPLIT_EXPORT_TORCHTITAN,
    SPLIT_EXPORT_TORCHTITAN_OUTPUT,
    SPLIT_EXPORT_DEEPSPEED,
    SPLIT_EXPORT_FQNS
};

/* Sums over the units of a stage, or of a rank's stages. */
struct split_sum {
    uint64_t params;
    double cost;              /* F, I and W of one token */
    size_t state_bytes;       /* weights, gradients, two moments */
    double activations_bytes; /* at most, of all live microbatches */
    int live;                 /* microbatches; of a stage only */
};

struct split_job {
    struct tool t;
    /* What was asked; 0 or NULL where it was not. */
    int64_t n_ranks, n_chunks, n_microbatches, seq_len, tokens;
    int64_t input_weight, output_weight; /* -1: not given */
    int64_t layers_per_stage, first, last;
    enum pp_stages_kind stages_kind;
    bool account_embedding, account_loss;
    enum split_export export;
    enum pp_placement placement;
    enum split_method method;
    const char *moe_layer_freq;
    bool has_method, table;
    const char *layers, *fqns, *layout, *type, *dtype, *source;
    size_t memory_bytes, element_bytes;
    /* The answer. */
    struct pp_arena arena;
    struct pp_model model;
    struct pp_graph graph;
    size_t n_units;
    const char *symbols;      /* of the layout, expanded */
    double *costs;            /* of each unit */
    size_t *bounds;           /* of one copy's stages, one more than these */
    struct split_sum *stages; /* graph.n_stages */
    struct split_sum *ranks;  /* graph.n_ranks */
};

/* The units of a stage: the first, and one behind the last. Copies of the
 * weights hold the same. */
static inline size_t split_first(const struct split_job *j, int stage)
{
    return j->bounds[pp_original(&j->graph, stage)];
}

static inline size_t split_end(const struct split_job *j, int stage)
{
    return j->bounds[pp_original(&j->graph, stage) + 1];
}

/* Most ranks, and most stages. */
enum { SPLIT_MAX_RANKS = 65536 };

extern const char *const split_method_names[];
extern const char *const split_export_names[];

/* Whether the options of rules and placements go together. */
int split_check_rules(struct split_job *j) PP_MUST_USE;

/* Sets what a rule decides: n_chunks, where -c does not, and which layers have
 * experts, where the configuration does not. */
int split_chunks(struct split_job *j) PP_MUST_USE;

/* Reads j->layout, a string or a JSON list of lists, into symbols. */
int split_read_layout(struct split_job *j) PP_MUST_USE;

/* The methods of other systems that count layers: fills counts, one for each
 * stage. */
int split_rule_layers(struct split_job *j, size_t *counts) PP_MUST_USE;

/* DeepSpeed's methods, which count units: fills bounds. */
int split_rule_units(struct split_job *j) PP_MUST_USE;

/* Fills bounds by the method asked for; graph is that of one copy. */
int split_units(struct split_job *j) PP_MUST_USE;

/* Reads j->fqns, a JSON list of lists of names, into bounds. */
int split_read_fqns(struct split_job *j) PP_MUST_USE;

/* Fills stages and ranks from bounds. */
int split_sums(struct split_job *j) PP_MUST_USE;

/* Prints the table for people. */
int split_print_table(const struct split_job *j, FILE *f,
                      struct pp_err *err) PP_MUST_USE;

/* Prints the plan in the words of another system. */
int split_print_export(const struct split_job *j, FILE *f,
                       struct pp_err *err) PP_MUST_USE;

/* Prints the manifest; command is its line of history. */
int split_print_manifest(const struct split_job *j, const char *command,
                         FILE *f, struct pp_err *err) PP_MUST_USE;

#endif
