/* SPDX-License-Identifier: MIT */
/* plan - a plan for a model, a mesh and a schedule: the units and the
 * recomputation of each stage, and the memory of each rank.
 *
 * pp_split_plan does all of it. Its steps work on a pp_split_run, which is the
 * schedule together with the costs and sizes of the model's units under it.
 * They are public so that tests can compare each with brute force.
 *
 * Bounds are as in split.h: of one copy of the weights. */
#ifndef PP_SPLIT_PLAN_H
#define PP_SPLIT_PLAN_H

#include "base/arena.h"
#include "cost/machine.h"
#include "cost/trainer.h"
#include "model/cost.h"
#include "model/layout.h"
#include "model/mesh.h"
#include "model/precision.h"
#include "model/rank_bytes.h"
#include "schedule/kinds/kind.h"
#include "split/least.h"
#include "split/recompute.h"
#include "split/step.h"

/* The problem. All pointers are borrowed. */
struct pp_split_request {
    struct pp_shard shard; /* of a rank of the language model; pp of its mesh
                              is not read */
    const struct pp_precision *precision;
    bool gpu;                         /* the device; false: the CPU */
    const struct pp_trainer *trainer; /* NULL: pprun */
    /* The meshes of encoders with ranks of their own, which are the first
     * encoder_ranks pipeline ranks; NULL: they have none. */
    const struct pp_mesh *encoders;
    struct pp_default_microbatch microbatch;
    const struct pp_profile *profile; /* units in the model's order; NULL: count
                                         operations */
    const struct pp_machine *machine; /* has the times of messages, if it has
                                         levels; NULL: the profile has them */
    int64_t n_ranks, n_chunks, n_microbatches; /* chunks: stages on each rank
                                                  but encoders' */
    enum pp_placement placement;
    const char *kind;    /* NULL: the usual kind for the placement, with the
                            next number of microbatches that it can run */
    bool whole_head;     /* the last stage runs B, even if the kind has I */
    bool search_order;   /* search for the order, from the split for kind; NULL:
                            the kind with the shortest step */
    double seconds;      /* of a search for an order; 0: the default */
    const size_t *start; /* with search_order: a split to begin with; NULL:
                            the best for kind */
    const double *speeds; /* per rank; NULL: all alike */
    size_t memory_bytes;  /* limit of a rank; 0: none */
    const size_t *mapped; /* bytes of files that a rank reads in place, per unit
                             of a model that maps its base; or NULL */

    /* The split. */
    const size_t *bounds; /* a split to keep; NULL: find the best */
    bool shortest;        /* best is the shortest step, not the least costliest
                             rank; not read with bounds */
    bool fit_only;        /* with memory_bytes: any split that fits will do */
    bool brief;           /* search less for a short step, and for no bound */
    bool layout;          /* a layout of Megatron-LM must be able to say it */
    /* Ranks with nothing but units of encoders; 0: no such ranks. The second
     * encoder's follow the first's, but it shares the only one. */
    int64_t encoder_ranks;

    /* Recomputation: one mode for all units, unless one of these is set. */
    enum pp_recompute recompute;
    const enum pp_recompute *stage_modes; /* per stage of one copy */
    bool recompute_auto; /* recompute as little as memory_bytes allows */

    bool scores_rows;  /* the objective is not sft: the ranks have room for its
                          rows and metrics */
    bool plan_buffers; /* plan the ranks' buffers even without a limit */
    /* Called now and then while orders are searched; may be NULL. */
    void (*progress)(void *ctx, double best, double bound);
    void *ctx;
};

static inline const struct pp_trainer *
pp_split_trainer(const struct pp_split_request *q)
{
    return q->trainer ? q->trainer : pp_trainers;
}

/* Returns the set of a level. A model that is estimated has no other than
 * selective between none and full. */
static inline enum pp_recompute pp_split_level(const struct pp_split_request *q,
                                               size_t level)
{
    enum pp_recompute r = pp_recompute_levels[level];
    bool other = r != PP_RECOMPUTE_NONE && r != PP_RECOMPUTE_FULL;
    return q->shard.model->table && other ? PP_RECOMPUTE_SELECTIVE : r;
}

/* One schedule on one model. Its address must not change after init. */
struct pp_split_run {
    const struct pp_split_request *request;
    struct pp_backend backend;
    struct pp_arena arena;
    size_t n_units, n_stages;              /* n_stages: of one copy */
    size_t n_tensors, n_elements, widened; /* of the model */
    int64_t n_microbatches;
    size_t memory_bytes; /* the limit in force */
    bool shortest;
    const struct pp_kind *kind;
    const char *name; /* the kind's name, or auto */
    bool kind_fits;   /* search_order: the kind's own split fits */
    bool simulated;   /* false: the schedule is too long, only costs count */
    bool halves;      /* the schedule has I and W */
    /* By slice: as the order lets the head make them. If that varies over
     * microbatches, as those that take longest. */
    enum pp_logits *logits;
    bool logits_vary;
    struct pp_graph graph;
    struct pp_schedule order;   /* without messages */
    struct pp_schedule lowered; /* with them, if buffers are planned */
    struct pp_makespan makespan;
    struct pp_split_memory memory;
    struct pp_split_step step;
    /* Units have these in the modes that they have now. Without a simulation,
     * times and bytes are NULL. */
    double *costs;                    /* per unit: of one token */
    enum pp_recompute *modes;         /* per unit */
    double (*times)[PP_N_TIMES];      /* by unit * n_slices + slice */
    double (*bytes)[PP_N_UNIT_BYTES]; /* per unit */
    struct pp_split_unit **in_mode;   /* per unit: in the modes so far */
    /* Atom k is units atoms.first[k] .. atoms.first[k + 1] - 1, which must stay
     * on one stage. */
    struct pp_split_atoms {
        size_t n, *first;
    } atoms;
    double *message_bytes; /* per unit: of the message after it; the
                              smallest for all features */
    /* The share of each encoder that has stages of its own, n_encoded; that of
     * the language model; and that of a head of several stages. */
    struct pp_split_part {
        size_t n_stages, n_units;
    } parts[PP_MAX_ENCODERS + 2];
    size_t n_parts, n_encoded;
    double made_bytes[PP_MAX_ENCODERS]; /* the features of each encoder part */
    double taken_bytes; /* the room for them over a bridge; 0: no bridge */
    double *limit;      /* per rank, without the tables */
    double *tables;     /* per rank: bytes */
    struct pp_split_found found;
    struct pp_recompute_found chosen; /* recompute_auto on a split to keep */
};

/* Chooses and emits the schedule, then fills the costs and sizes of units.
 * Finish the run also after an error. */
int pp_split_run_init(struct pp_split_run *run,
                      const struct pp_split_request *q,
                      struct pp_err *err) PP_MUST_USE;

/* Makes the graph of a run, and its parts: a stage on each of the ranks of
 * encoders, and n_chunks on the others. Two encoders with stages of their own
 * are two branches. An error may carry the setting encoder-ranks. */
int pp_split_graph(struct pp_split_run *run, struct pp_err *err) PP_MUST_USE;

/* Returns the places of all ranks. */
struct pp_layout pp_split_layout(const struct pp_split_run *run);

/* Does so for encoders (PP_MAX_ENCODERS) with meshes of their own, which have
 * dp 0 without one; or NULL. */
struct pp_layout pp_split_layout_of(const struct pp_mesh *encoders,
                                    const struct pp_mesh *language, int n_rows);

/* Sets the bytes of what encoders with stages of their own put out, and of what
 * the language model takes over a bridge: room for a feature for each of `rows`
 * tokens. A message there counts as the smallest of these. A stage that ends
 * with both encoders puts out the features of both. */
void pp_split_set_features(struct pp_split_run *run, size_t rows);

/* Fills the times of messages, by the unit before each. */
void pp_split_set_messages(const struct pp_split_run *run, double *messages);

/* Returns the bytes of the features that a stage of units first to end - 1
 * holds in its workspace (pp_stage_holds). */
size_t pp_split_held(const struct pp_split_run *run, size_t first, size_t end);

/* Sets the sizes of a stage that puts out features of an encoder, or takes
 * them. */
void pp_split_features(const struct pp_split_run *run, const size_t *bounds,
                       int stage, struct pp_stage_bytes *x);

/* Accepts a zeroed struct. */
void pp_split_run_finish(struct pp_split_run *run);

/* Sets the mode of each unit, and updates costs, times and bytes. */
void pp_split_run_set_modes(struct pp_split_run *run,
                            const enum pp_recompute *modes);

/* Removes the backward that the stages of these bounds lack from the order, and
 * plans its step again. Call it last. Does nothing if all units are trained. */
int pp_split_run_freeze(struct pp_split_run *run, const size_t *bounds,
                        struct pp_err *err) PP_MUST_USE;

/* Replaces the order by another one, which has its messages, and its makespan.
 * Takes both. */
void pp_split_run_take(struct pp_split_run *run, struct pp_schedule *s,
                       struct pp_makespan *makespan);

/* Fills the sizes of every stage of the run's graph. */
void pp_split_run_sizes(const struct pp_split_run *run, const size_t *bounds,
                        struct pp_stage_bytes *sizes);

/* Plans the memory of a rank for activations, messages and workspace, as
 * ppsched and pprun do. The run must have lowered. The caller finishes m. */
int pp_split_run_buffers(const struct pp_split_run *run, const size_t *bounds,
                         int rank, struct pp_memory *m,
                         struct pp_err *err) PP_MUST_USE;

/* Returns the order of the work, with or without messages. */
const struct pp_schedule *pp_split_order(const struct pp_split_run *run);

/* Fills costs, times and bytes of units in the mode of the request. */
void pp_split_units_init(struct pp_split_run *run);

/* Sets costs and times of the head to those in an order; NULL: to the least in
 * any. */
void pp_split_units_order(struct pp_split_run *run,
                          const struct pp_schedule *s);

/* Sets the times of a slice of a unit in the mode that it has. */
void pp_split_unit_times(const struct pp_split_run *run, size_t i, int slice,
                         enum pp_logits logits, double t[PP_N_TIMES]);

/* Sets the mode of a unit, and its costs, times and bytes. */
void pp_split_unit_set_mode(struct pp_split_run *run, size_t i,
                            enum pp_recompute mode);

/* Returns the rows of a rank for the largest slice, and the bytes that a unit
 * puts out for them. */
size_t pp_split_rows(const struct pp_split_run *run);
double pp_split_unit_output(const struct pp_split_run *run, size_t i);

/* Returns the mesh of the ranks that have a unit. */
struct pp_mesh pp_split_mesh(const struct pp_split_request *q, size_t i);

/* Returns the bytes of weights, gradients and optimizer state of a unit on one
 * rank of a mesh. */
struct pp_state_bytes pp_split_state(const struct pp_split_request *q,
                                     const struct pp_mesh *mesh, size_t unit);

/* Returns the bytes of the tables of a rank. run->tables takes a layer for
 * multi-token prediction to be on the last stage. */
double pp_split_run_tables(const struct pp_split_run *run, const size_t *bounds,
                           int rank);

/* Returns the bytes of both: what the rank needs besides its tables. They are
 * infinite if the buffers are too large to plan. */
double pp_split_run_need(const struct pp_split_run *run, const size_t *bounds,
                         int rank);

/* Returns true if the rank keeps to memory_bytes, to the byte. */
bool pp_split_run_fits(const struct pp_split_run *run, const size_t *bounds,
                       int rank);

/* Refuses more stages than the model has units. */
int pp_split_check_stages(const struct pp_model *m, size_t n_stages,
                          struct pp_err *err) PP_MUST_USE;

/* Sets bounds to counts[s] decoder layers per stage. All units before the
 * layers are on the first stage, and all units after them on the last. */
void pp_split_layer_bounds(const struct pp_model *m, const size_t *counts,
                           size_t n_stages, size_t *bounds);

/* Fills the atoms of a run, which the next two need. Fails if they are fewer
 * than the stages. */
int pp_split_run_atoms(struct pp_split_run *run,
                       struct pp_err *err) PP_MUST_USE;

/* Fills bounds with the best split for the run's schedule and modes. The search
 * starts at the best of the rules that other systems use, so that none of them
 * is better. Sets found if the run is for the shortest step or has a limit. */
void pp_split_run_balance(struct pp_split_run *run, size_t *bounds);

/* The same from bounds, which have no empty stage. */
void pp_split_run_improve(struct pp_split_run *run, size_t *bounds);

/* Fills bounds, and sets modes to stage_modes or to as little as fits.
 *
 * What a unit costs and keeps then depends on its stage, so splitting and
 * choosing take turns: a split for the present modes, then the modes for that
 * split. The best split met is kept. If nothing fits, it is the one with most
 * recomputation. */
void pp_split_run_recompute(struct pp_split_run *run, size_t *bounds);

/* Returns the name of the kind with the shortest step on its own split, or NULL
 * if none fits. */
const char *pp_split_best_kind(const struct pp_split_request *q);

/* Returns the lower bound for every split, placement and order with the modes
 * of the run. The run is simulated, without slices and copies. */
struct pp_least_found pp_split_run_least(struct pp_split_run *run);

/* Searches for an order on bounds and for a split for that order, in turns,
 * while steps get shorter. Leaves the run as it is if no order fits. */
void pp_split_run_search(struct pp_split_run *run, size_t *bounds);

/* Sums over the units of a stage, or over the stages of a rank. */
struct pp_split_sum {
    uint64_t params;
    double cost;                /* F, I and W of one token */
    double state_bytes;         /* weights, gradients, optimizer state */
    double activations_bytes;   /* at most, of all live microbatches; with
                                   messages and workspace if they are planned */
    double tables_bytes;        /* of a rank, if buffers are planned */
    struct pp_rank_bytes bytes; /* of a rank: all of it, by purpose */
    double live;                /* microbatches; of a stage only */
    double busy;                /* time in a step; of a rank only */
};

/* The answer. Its address must not change. */
struct pp_split_plan {
    struct pp_split_run run;
    struct pp_graph graph; /* whole microbatches; memory of the run */
    size_t *bounds;
    struct pp_split_sum *stages; /* graph.n_stages */
    struct pp_split_sum *ranks;  /* graph.n_rows */
};

/* Checks that the ranks of the meshes can divide the model. Computing costs for
 * others may divide by 0. */
int pp_split_check_meshes(const struct pp_split_request *q,
                          struct pp_err *err) PP_MUST_USE;

/* Plans. A plan that does not fit into memory is a plan too: see
 * pp_split_plan_fits. Finish it also after an error. */
int pp_split_plan(const struct pp_split_request *q, struct pp_split_plan *plan,
                  struct pp_err *err) PP_MUST_USE;

/* Moves a plan to another address. from is then zeroed. */
void pp_split_plan_move(struct pp_split_plan *from, struct pp_split_plan *to);

/* Accepts a zeroed struct. */
void pp_split_plan_finish(struct pp_split_plan *plan);

/* The units of a stage are first .. end - 1. */
static inline size_t pp_split_first(const struct pp_split_plan *plan, int stage)
{
    return plan->bounds[pp_original(&plan->graph, stage)];
}

static inline size_t pp_split_end(const struct pp_split_plan *plan, int stage)
{
    return plan->bounds[pp_original(&plan->graph, stage) + 1];
}

/* Returns the mode of a stage: none if it has no decoder layer. */
enum pp_recompute pp_split_stage_mode(const struct pp_split_plan *plan,
                                      int stage);

/* Returns the bytes that a rank needs. */
static inline double pp_split_plan_need(const struct pp_split_plan *plan,
                                        int rank)
{
    const struct pp_split_sum *x = &plan->ranks[rank];
    return x->state_bytes + x->activations_bytes + x->tables_bytes;
}

/* Returns the rank that needs most. */
int pp_split_plan_fullest(const struct pp_split_plan *plan);

/* Returns true if every rank keeps to the request's memory_bytes. */
bool pp_split_plan_fits(const struct pp_split_plan *plan);

/* Changes to a request that does not fit. Each is sufficient alone, and the
 * least that was tried. */
struct pp_split_changes {
    bool even_experts; /* room for an even share of the rows of experts */
    enum pp_recompute recompute; /* none: none helps */
    int64_t n_replicas;          /* data-parallel ranks (ZeRO-1); 0: none */
    int64_t n_ranks;             /* pipeline ranks; 0: none */
};

/* Finds them for the request that the plan was made for. Plans many times. */
struct pp_split_changes pp_split_plan_changes(const struct pp_split_plan *plan);

#endif
