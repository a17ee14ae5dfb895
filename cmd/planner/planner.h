/* SPDX-License-Identifier: MIT */
/* planner - what ppsplit and ppmesh share: options, the model, the machine, and
 * forms of a plan. Each begins with a struct planner, so that shared options
 * write to it. */
#ifndef PP_CMD_PLANNER_H
#define PP_CMD_PLANNER_H

#include <stdint.h>

#include "manifest/manifest.h"
#include "split/plan.h"
#include "split/torchtitan.h"
#include "tool.h"

struct planner {
    struct tool t;
    /* Options. 0 or NULL: not given. */
    const char *source; /* the model, or a table of units */
    int64_t seq_len;
    const struct pp_precision *precision;
    bool mtp;
    bool text_only; /* leave encoders out that pprun does not train */
    const char *moe_layer_freq;
    struct pp_mesh mesh;
    const char *trainer_name;
    const char *gpu, *machine_file; /* gpu: a name of pp_machines */
    double link[2]; /* bytes a second, in a node and between nodes */
    int64_t node;   /* ranks of a node */
    size_t memory_bytes;
    int objective; /* enum pp_objective_number */
    bool table, json;

    /* The problem, made from the options. */
    struct pp_arena arena;
    struct pp_model model;
    const struct pp_trainer *trainer;
    struct pp_machine machine; /* of these options, or of a given plan */
    bool has_machine;
    struct pp_split_request request;

    struct pp_split_plan plan;
};

/* The members of rows of options. */
extern const char *const planner_dtype_words[];
int planner_parse_dtype(struct tool *t, const struct tool_option *o,
                        const char *arg) PP_MUST_USE;
int planner_parse_links(struct tool *t, const struct tool_option *o,
                        const char *arg) PP_MUST_USE;
#define PLANNER_AT(member) TOOL_AT(struct planner, member)
#define PLANNER_SEQ_LEN                                                    \
    0, "seq-len", "N", "tokens of a sequence (4096, or the model's most)", \
        PLANNER_AT(seq_len), 1, INT32_MAX,                                 \
        .counts = true, .also = "seq-length sequence-length"
#define PLANNER_DTYPE                                               \
    0, "dtype", "TYPE", "fp32, fp64 or bf16 (as config.json says)", \
        .words = planner_dtype_words, .parse = planner_parse_dtype
#define PLANNER_MTP                                                  \
    0, "mtp", NULL, "include the layers for multi-token prediction", \
        PLANNER_AT(mtp)
#define PLANNER_MOE_LAYER_FREQ                                              \
    0, "moe-layer-freq", "FREQ", "layers with experts, as for Megatron-LM", \
        PLANNER_AT(moe_layer_freq)
#define PLANNER_CP_EXCHANGE                                  \
    0, "cp-exchange", "HOW",                                 \
        "of keys and values: gather (default), a2a or ring", \
        PLANNER_AT(mesh.cp_exchange), .words = pp_cp_exchange_names
#define PLANNER_EXPERT_LIMIT                                  \
    0, "expert-limit", "F",                                   \
        "room for rows of experts over an even share (1.25)", \
        PLANNER_AT(mesh.expert_limit), 1, PP_MOST_EXPERT_LIMIT
#define PLANNER_EXPERT_IMBALANCE                                               \
    0, "expert-imbalance", "F", "rows of experts, fullest rank over mean (1)", \
        PLANNER_AT(mesh.expert_imbalance), 1, PP_MOST_EXPERT_LIMIT
#define PLANNER_MACHINE                                           \
    0, "machine", "FILE", "the same of a machine in a JSON file", \
        PLANNER_AT(machine_file), .excludes = "gpu"
#define PLANNER_NODE                                                      \
    0, "node", "N", "ranks of a node (as --gpu or --machine says, or 8)", \
        PLANNER_AT(node), 1, INT32_MAX, .needs = "gpu|machine|link"
#define PLANNER_MEMORY                                     \
    0, "memory", "SIZE", "limit of a rank, such as 80GiB", \
        PLANNER_AT(memory_bytes)
#define PLANNER_OBJECTIVE                                     \
    0, "objective", "NAME", "that trains, as of pprun (sft)", \
        PLANNER_AT(objective), .words = pp_objective_names

/* Reads the model, and compares weights beside its configuration with it. A
 * model that pprun does not train is a table of units. */
int planner_read_model(struct planner *p) PP_MUST_USE;

/* Names what is estimated of the costs, or returns NULL. */
const char *planner_estimates(const struct pp_model *m);

/* Sets the trainer of that name, NULL for pprun, and what it does unless an
 * option says otherwise. */
void planner_set_trainer(struct planner *p, const char *name);

/* Makes the machine of --gpu, --machine, --node and --link. Takes its memory
 * and the model's types where no option says otherwise. */
int planner_choose_machine(struct planner *p) PP_MUST_USE;

/* Fills an empty manifest with a plan of the model source. */
int planner_fill_manifest(const struct pp_split_plan *plan, const char *source,
                          struct pp_arena *a, struct pp_manifest *m,
                          struct pp_err *err) PP_MUST_USE;

/* Notes what pprun cannot run of a plan. */
void planner_say_runs(struct planner *p, struct pp_manifest *m);

/* Writes the modules that Megatron-LM recomputes for a set of parts, each
 * behind a space; none if it has none of the parts. */
enum { PLANNER_MODULES = 96 };
void planner_modules(const struct pp_model *m, enum pp_recompute r,
                     char text[PLANNER_MODULES]);

/* Prints the split as a layout of Megatron-LM, without a newline at the end. */
int planner_print_layout(const struct pp_split_plan *plan, FILE *f,
                         struct pp_err *err) PP_MUST_USE;

/* Prints the names of each stage's units, one stage on a line, without a
 * newline at the end: torchtitan's names; or the names of a manifest, for names
 * NULL and for units of a table. */
void planner_print_names(const struct pp_split_plan *plan,
                         const enum pp_torchtitan_names *names, FILE *f);

/* Return the ranks that play a pipeline rank of an encoder with a mesh of its
 * own, or 0, and all ranks. */
int64_t planner_encoder_group(const struct pp_split_request *q, size_t encoder);
int64_t planner_n_ranks(const struct pp_split_request *q);

/* The tokens a second of all ranks for a step of that many seconds, and the
 * useful operations over the peak; 0 if the peak is unknown. */
struct planner_speed {
    double tokens, mfu;
};
struct planner_speed planner_speed_of(const struct pp_split_request *q,
                                      double step, int64_t n_microbatches);

#endif
