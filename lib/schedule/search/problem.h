/* SPDX-License-Identifier: MIT */
/* problem - the work to be ordered, as flat arrays, and orders of it;
 * private to lib/schedule/search.
 *
 * An op is one compute action, numbered by kind, then stage, then microbatch:
 * of the microbatches that pass through the stage's copy of the weights. They
 * stay in order within each kind of each stage. If they are alike
 * nothing is lost by that, and weight gradients stay in canonical order. An
 * order of the work is one array: for each rank in turn, a permutation of the
 * ops of its row. */
#ifndef PP_SCHEDULE_SEARCH_PROBLEM_H
#define PP_SCHEDULE_SEARCH_PROBLEM_H

#include <stdint.h>

#include "schedule/kinds/kind.h"
#include "schedule/ir/ops.h"
#include "schedule/ir/schedule.h"
#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"

/* Kinds of op. A whole backward (B) is PP_PROBLEM_I. It has no PP_PROBLEM_W, or
 * if others have one, it takes no time and is not emitted. */
enum { PP_PROBLEM_F, PP_PROBLEM_I, PP_PROBLEM_W };

/* How backward runs. Mixed: whole on stages where that takes less time than I
 * and W, and as I and W on others. Late: likewise, but the last microbatches of
 * such a stage have W too, which run while the last gradients pass the stages
 * before. */
enum pp_backward {
    PP_BACKWARD_WHOLE,
    PP_BACKWARD_HALVES,
    PP_BACKWARD_MIXED,
    PP_BACKWARD_LATE
};

struct pp_search_problem {
    const struct pp_graph *graph;
    int n_microbatches, n_kinds; /* 3, or 2 if backward is whole */
    const int *copy;     /* per microbatch: its copy of the weights; NULL: 0 */
    int32_t *first;      /* per group, and one more: its first op */
    int32_t *microbatch; /* per op */
    /* Edges join ops of two stages. late is what the objective adds to the end
     * of a rank; 0 for the makespan. */
    struct pp_ops ops;
    int32_t *n_whole;      /* per stage: microbatches with B, if mixed */
    int32_t *group;        /* per op: kind * n_stages + stage */
    int32_t *load;         /* per op: index into taken and freed */
    const double *limit;   /* per rank, or NULL */
    double *taken, *freed; /* memory at an op's start and end: of each group,
                              then of whole backwards, then none */
    double slack; /* rounding by which sums of loads may exceed a limit */
};

/* Fills j with all work of s's graph. costs is borrowed for the call, the
 * arrays of room, and copy, for the life of j. */
int pp_search_problem_init(struct pp_search_problem *j,
                           const struct pp_schedule *s,
                           enum pp_backward backward,
                           const struct pp_costs *costs,
                           const struct pp_memory_limit *room, const int *copy,
                           struct pp_err *err) PP_MUST_USE;
/* Reports if a whole backward of a stage takes less time than I and W. */
bool pp_problem_whole_saves(const struct pp_costs *costs, int stage);

void pp_search_problem_finish(struct pp_search_problem *j);

/* Returns the op of the k-th microbatch of a stage. */
static inline int32_t pp_problem_op(const struct pp_search_problem *j, int kind,
                                    int stage, int k)
{
    return j->first[kind * j->graph->n_stages + stage] + k;
}

/* Returns how many microbatches pass through a stage. */
static inline int32_t pp_problem_passing(const struct pp_search_problem *j,
                                         int stage)
{
    return j->first[stage + 1] - j->first[stage];
}

static inline int pp_problem_kind(const struct pp_search_problem *j, int32_t op)
{
    return j->group[op] / j->graph->n_stages;
}

static inline int pp_problem_stage(const struct pp_search_problem *j,
                                   int32_t op)
{
    return j->group[op] % j->graph->n_stages;
}

/* Reports if an op, I or W, is of a backward that runs whole. */
static inline bool pp_problem_is_whole(const struct pp_search_problem *j,
                                       int32_t op)
{
    return j->n_kinds == 2 ||
           op - j->first[j->group[op]] < j->n_whole[pp_problem_stage(j, op)];
}

static inline struct pp_action
pp_problem_action(const struct pp_search_problem *j, int32_t op)
{
    static const uint8_t split[] = {PP_F, PP_I, PP_W};
    int kind = pp_problem_kind(j, op);
    bool whole = kind == PP_PROBLEM_I && pp_problem_is_whole(j, op);
    return (struct pp_action){.stage = pp_problem_stage(j, op),
                              .microbatch = j->microbatch[op],
                              .peer = -1,
                              .op = whole ? PP_B : split[kind]};
}

/* --- orders --- */

/* Writes the order that holds least: one microbatch after the other, each
 * gradient as early as possible. */
void pp_row_order_serial(const struct pp_search_problem *j, int32_t *order);

/* Returns the memory that a rank needs for pp_row_order_serial; no order needs
 * less. */
double pp_row_order_least(const struct pp_search_problem *j, int row);

/* Reports if every rank stays within its limit. */
bool pp_row_order_fits(const struct pp_search_problem *j, const int32_t *order);

/* Returns the most memory that any rank holds at once. */
double pp_row_order_peak(const struct pp_search_problem *j,
                         const int32_t *order);

/* Writes the order of a named kind. If j splits backward, a whole one is taken
 * as I then W. Returns PP_AGAIN, which is no error, if the kind does not fit
 * the graph or j. */
int pp_row_order_of_kind(const struct pp_search_problem *j,
                         const struct pp_kind *kind, int32_t *order,
                         struct pp_err *err) PP_MUST_USE;

/* Appends the order to s's empty rows. */
void pp_row_order_emit(const struct pp_search_problem *j, const int32_t *order,
                       struct pp_schedule *s);

/* --- times of an order, after pp_paths_heads --- */

/* Returns the last end of all ops, whatever the objective. */
double pp_row_order_makespan(const struct pp_paths *p, const int32_t *order);

/* Returns the largest span of a rank, from its first start to its last end. */
double pp_row_order_span(const struct pp_paths *p, const int32_t *order);

#endif
