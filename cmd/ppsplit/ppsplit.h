/* SPDX-License-Identifier: MIT */
/* ppsplit - what the files of cmd/ppsplit/ppsplit*.c share: one run of the
 * program, from its options to the plan. */
#ifndef PP_CMD_PPSPLIT_H
#define PP_CMD_PPSPLIT_H

#include <stdint.h>

#include "base/arena.h"
#include "manifest/profile_json.h"
#include "model/cost.h"
#include "model/mesh.h"
#include "model/model.h"
#include "model/precision.h"
#include "split/split_hybrid.h"
#include "split/split_step.h"
#include "split/split_torchtitan.h"
#include "schedule/kinds/kind.h"
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
    SPLIT_COLOSSALAI,
    SPLIT_COLOSSALAI_LEGACY,
    SPLIT_AUTOMODEL,
    SPLIT_UNIFORM_UNITS
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
    double state_bytes;       /* weights, gradients, optimizer */
    double activations_bytes; /* at most, of all live microbatches */
    double live;              /* microbatches; of a stage only */
    double busy;              /* of a step; of a rank only */
};

/* The schedule that will run, and what a split means for it. */
struct split_run {
    const struct pp_kind *kind;
    const char *name; /* the kind's, or auto */
    bool fits;        /* for auto: the kind's split keeps to --memory */
    bool known;       /* the schedule is not too long to be simulated */
    bool halves;      /* it has I and W, on some stage at least, and not B */
    struct pp_graph graph;
    struct pp_schedule order;   /* without messages */
    struct pp_schedule lowered; /* with them, where memory is asked for */
    struct pp_makespan makespan;
    struct pp_split_memory memory;
    struct pp_split_step step;
    double (*times)[PP_N_TIMES]; /* by unit and slice, of a microbatch */
    enum pp_recompute *modes;    /* that the units' times, bytes and costs are
                                    of */
    double (*bytes)[PP_N_UNIT_BYTES];
    double *limit; /* per rank */
    struct pp_split_found found;
};

struct split_job {
    struct tool t;
    /* What was asked; 0 or NULL where it was not. */
    int64_t n_ranks, n_chunks, n_microbatches, seq_len, tokens;
    int64_t input_weight, output_weight; /* -1: not given */
    int64_t layers_per_stage, first, last;
    int64_t encoder_layers; /* -1: not given */
    enum pp_stages_kind stages_kind;
    enum pp_stages_round round;
    bool account_embedding, account_loss;
    enum split_export export;
    enum pp_placement placement;
    enum split_method method;
    const char *moe_layer_freq, *pattern;
    bool has_method, table, mtp;
    enum pp_recompute recompute; /* of all units ... */
    enum pp_recompute *modes;    /* ... or of each, where not NULL */
    const char *recompute_list;  /* by stage, or NULL */
    bool recompute_auto;         /* as little as fits into --memory */
    bool fit_only; /* only whether it fits is asked for, not how well */
    bool shorten;  /* -m, --for, --costs or --rank-speed: the step counts, not
                     the costliest rank */
    const char *layers, *fqns, *layout, *type, *source, *units;
    bool automatic;                             /* --for auto */
    const char *kind, *rank_speed, *costs_file; /* --for, ..., --costs */
    int64_t n_images, image_patches;            /* 0: not given */
    int64_t encoder_ranks; /* that have nothing else; 0: not given */
    size_t memory_bytes;
    struct pp_mesh mesh; /* pp is n_ranks */
    const struct pp_precision *precision;
    /* The answer. */
    struct pp_arena arena;
    struct pp_model model;
    struct pp_graph graph;
    size_t n_units;
    struct pp_unit_seconds *measured; /* of each unit; NULL without --costs */
    struct pp_profile profile;        /* with them */
    double *speeds;                   /* per rank; NULL: all alike */
    const char *symbols;              /* of the layout, expanded */
    struct pp_hybrid hybrid;          /* of the pattern */
    double *costs;                    /* of each unit */
    size_t *bounds;           /* of one copy's stages, one more than these */
    struct split_sum *stages; /* graph.n_stages */
    struct split_sum *ranks;  /* graph.n_ranks */
    struct split_run run;
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

/* What every microbatch is taken to be. */
static inline struct pp_default_microbatch
split_microbatch(const struct split_job *j)
{
    const struct pp_vision *v = &j->model.vision;
    return (struct pp_default_microbatch){
        .tokens = j->tokens,
        .seq_len = j->seq_len,
        .n_images = (int64_t)v->n_images,
        .image_patches = v->n_images ? (int64_t)v->patches : 0};
}

/* What unit i makes again. */
static inline enum pp_recompute split_recompute(const struct split_job *j,
                                                size_t i)
{
    return j->modes ? j->modes[i] : j->recompute;
}

/* Most ranks, and most stages. */
enum { SPLIT_MAX_RANKS = 65536 };

extern const struct tool_option split_options[];
extern const char *const split_method_names[];
extern const char *const split_export_names[];

/* Reads the command line and checks which options go together. Returns 0, or -1
 * if the run is over: help was printed, or j->t.err is filled. */
int split_read_options(struct split_job *j, int argc, char **argv) PP_MUST_USE;

/* Whether the options of rules and placements go together. */
int split_check_rules(struct split_job *j) PP_MUST_USE;

/* Reads --costs and --rank-speed. */
int split_read_costs(struct split_job *j) PP_MUST_USE;
int split_read_speeds(struct split_job *j) PP_MUST_USE;

/* What unit i takes for so many tokens and attended pairs: seconds with
 * --costs, else operations of matrix products, as ppsched counts them. */
struct pp_cost split_unit_cost(const struct split_job *j, size_t i,
                               double tokens, double pairs);

/* What it weighs for one token, by which ranks are compared: units that
 * multiply nothing weigh a little too. */
double split_token_cost(const struct split_job *j, size_t i);

/* What an encoder of images has to do: --images, --image-patches. Refuses
 * methods and options that are of a single language model. */
int split_set_images(struct split_job *j) PP_MUST_USE;

/* --encoder-ranks: the costliest rank of the encoder, and that of the language
 * model, as cheap as can be, and where one ends and the other begins. */
int split_apart(struct split_job *j) PP_MUST_USE;

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

/* The methods that count layers: fills bounds. */
int split_by_layers(struct split_job *j) PP_MUST_USE;

/* The method balanced: fills bounds. */
int split_balanced(struct split_job *j) PP_MUST_USE;

/* From bounds to those that are best for the schedule that the run has now. */
int split_balanced_from(struct split_job *j) PP_MUST_USE;

/* --for auto. The named kind with the shortest step on its own split, NULL
 * where none fits; from there an order and a split for it. */
const char *split_best_kind(const struct split_job *j);
int split_auto(struct split_job *j) PP_MUST_USE;

/* Fills bounds by the method asked for; graph is that of one copy. */
int split_units(struct split_job *j) PP_MUST_USE;

/* Reads j->fqns, a JSON list of lists of names, into bounds. */
int split_read_fqns(struct split_job *j) PP_MUST_USE;

/* The schedule that will run, of the kind asked for or the placement's. */
int split_schedule(struct split_job *j) PP_MUST_USE;

/* What the units take and keep under it. */
int split_run_init(struct split_job *j) PP_MUST_USE;
void split_run_finish(struct split_run *run);

/* --recompute: a mode, a list of them by stage, or auto. */
int split_take_recompute(struct split_job *j) PP_MUST_USE;

/* Whether it says something of each stage. */
static inline bool split_by_stage(const struct split_job *j)
{
    return j->recompute_list || j->recompute_auto;
}

/* What a stage makes again; one without decoder layers makes nothing. */
enum pp_recompute split_stage_mode(const struct split_job *j, int stage);

/* Fills bounds, as split_units does, and what each stage makes again. */
int split_recompute_stages(struct split_job *j) PP_MUST_USE;

/* What units take and keep, anew from modes. */
int split_set_modes(struct split_job *j) PP_MUST_USE;

/* Whether the rank keeps to --memory, to the byte. */
int split_rank_fits(struct split_job *j, int rank, bool *yes) PP_MUST_USE;

/* Another order, with its messages, instead of the run's, whose makespan is
 * already its own. Takes s. */
int split_run_take(struct split_job *j, struct pp_schedule *s) PP_MUST_USE;

/* Bytes that one rank trains unit i with. */
double split_state_bytes(const struct split_job *j, size_t i);

/* Whether ranks other than the pipeline's share what a stage has. */
static inline bool split_on_mesh(const struct split_job *j)
{
    const struct pp_mesh *x = &j->mesh;
    return x->dp > 1 || x->tp > 1 || x->cp > 1 || x->ep > 1;
}

/* What unit i keeps of one slice of a microbatch, and trains; tokens of a
 * slice, at most; a message of that many behind unit i, and behind any. */
void split_unit_bytes(const struct split_job *j, size_t i,
                      double b[PP_N_UNIT_BYTES]);
double split_slice_tokens(const struct split_job *j);
double split_message_bytes(const struct split_job *j, size_t i);
double split_largest_message(const struct split_job *j);

/* What ppsched and pprun allocate on a rank for its activations and messages;
 * what is trained there. */
int split_plan_rank(struct split_job *j, const size_t *bounds, int rank,
                    size_t *bytes) PP_MUST_USE;
double split_rank_trained(const struct split_job *j, const size_t *bounds,
                          int rank);

/* What leaves unit i for each token. */
double split_out_bytes(const struct split_job *j, size_t i);

/* Units that stay on one stage: atom k is units first[k] .. first[k + 1] - 1.
 */
struct split_atoms {
    size_t n, *first;
};

/* Improves bounds, which part no atom, until the step is as short as was
 * found, within --memory where that can be. Where j->shorten is not set, only
 * where memory asks for another split. */
int split_shorten(struct split_job *j, const struct split_atoms *a) PP_MUST_USE;

/* Of each stage of the schedule's graph. */
void split_stage_bytes(const struct split_job *j, const size_t *bounds,
                       struct pp_stage_bytes *sizes);

/* Microbatches alive on each stage, where the schedule is known. */
int split_measure_stages(struct split_job *j) PP_MUST_USE;

/* What a table or --memory asks for of the ranks: their buffers, how long they
 * compute, and the step. */
int split_measure_ranks(struct split_job *j) PP_MUST_USE;

/* Fills stages and ranks from bounds. */
int split_sums(struct split_job *j) PP_MUST_USE;

/* From the options to bounds, stages and ranks. */
int split_plan(struct split_job *j) PP_MUST_USE;

/* Whether every rank keeps to --memory. */
bool split_fits_memory(const struct split_job *j);

/* --memory: PP_EXIT_NO where a rank needs more, with what would fit. */
int split_check_memory(struct split_job *j) PP_MUST_USE;

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
