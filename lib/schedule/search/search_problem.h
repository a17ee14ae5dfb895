/* SPDX-License-Identifier: MIT */
/* search_job - the work to be ordered, as flat arrays; private to
 * lib/schedule/search.
 *
 * An op is one compute action, numbered kind by kind, stage by stage and
 * microbatch by microbatch. Microbatches keep their order within each kind of
 * each stage: where they are alike nothing is lost by that, and weight
 * gradients stay in canonical order. An order of the work is then a word for
 * each rank: a permutation of its ops. All words lie in one array. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_PROBLEM_H
#define PP_SCHEDULE_SEARCH_SEARCH_PROBLEM_H

#include <stdint.h>

#include "schedule/memory/memory.h"
#include "schedule/ir/schedule.h"
#include "schedule/simulate/sim.h"

/* What a stage does with a microbatch. A whole backward (B) is PP_PROBLEM_I,
 * and there is no PP_PROBLEM_W. */
enum { PP_PROBLEM_F, PP_PROBLEM_I, PP_PROBLEM_W };

/* A requirement between ops of two stages, or its other side. */
struct pp_search_edge {
    int32_t op;
    double lag; /* from the end of one to the start of the other */
};

struct pp_search_problem {
    const struct pp_graph *graph;
    int n_microbatches, n_kinds; /* 3, or 2 where backward is whole */
    int32_t n_ops;
    double *time;                  /* per op */
    int32_t *first_in, *first_out; /* per op, n_ops + 1: into in and out */
    struct pp_search_edge *in, *out;
    int32_t *first_order;  /* per rank, n_ranks + 1: where its word begins */
    int32_t *group;        /* per op: kind * n_stages + stage */
    int32_t *row;          /* per group */
    const double *limit;   /* per rank, or NULL */
    double *taken, *freed; /* per group: when its op starts, when it ends */
    double *late; /* per rank: added to its end in the objective; 0 for the
                     makespan */
    double slack; /* sums of loads may exceed a limit by this: rounding */
};

/* All of o's work on s's graph. room and costs are borrowed for the call,
 * room's arrays for the life of the job. */
int pp_search_problem_init(struct pp_search_problem *j,
                           const struct pp_schedule *s, bool split,
                           const struct pp_costs *costs,
                           const struct pp_memory_limit *room,
                           struct pp_err *err) PP_MUST_USE;
void pp_search_problem_finish(struct pp_search_problem *j);

static inline int32_t pp_problem_op(const struct pp_search_problem *j, int kind,
                                    int stage, int microbatch)
{
    return (int32_t)((kind * j->graph->n_stages + stage) * j->n_microbatches +
                     microbatch);
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

static inline struct pp_action
pp_problem_action(const struct pp_search_problem *j, int32_t op)
{
    static const uint8_t split[] = {PP_F, PP_I, PP_W};
    int group = op / j->n_microbatches, kind = group / j->graph->n_stages;
    return (struct pp_action){
        .stage = group % j->graph->n_stages,
        .microbatch = op % j->n_microbatches,
        .peer = -1,
        .op = j->n_kinds == 2 && kind == PP_PROBLEM_I ? PP_B : split[kind]};
}

#endif
