/* SPDX-License-Identifier: MIT */
/* search_eval - when everything happens under given words: longest paths from
 * the start and to the end; private to lib/schedule/search.
 *
 * One pass over flat arrays, what pp_simulate says at unbounded depth without
 * its walk. Both passes cost about as many steps as there are ops. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_EVAL_H
#define PP_SCHEDULE_SEARCH_SEARCH_EVAL_H

#include "schedule/search/search_problem.h"

struct pp_eval {
    const struct pp_search_problem *problem;
    double worst;    /* largest end of a rank, plus its job->late */
    double *start;   /* per op */
    double *tail;    /* per op: from its end to the largest end */
    int32_t *sorted; /* ops, each after whatever it waits for */
    int32_t *at;     /* per rank: private */
    double *clock;   /* per rank: private */
    int32_t *queue;
    bool *queued;
};

int pp_eval_init(struct pp_eval *e, const struct pp_search_problem *j,
                 struct pp_err *err) PP_MUST_USE;
void pp_eval_finish(struct pp_eval *e);

/* Fills worst, start and sorted from the words. False when the ranks cannot
 * reach the end: they wait for each other in a circle. */
bool pp_eval_heads(struct pp_eval *e, const int32_t *order);

/* Fills tail; after pp_eval_heads of the same words. */
void pp_eval_tails(struct pp_eval *e);

/* The last end of all, whatever the objective. */
double pp_eval_makespan(const struct pp_eval *e, const int32_t *order);

/* The largest span of a rank, from its first start to its last end. */
double pp_eval_span(const struct pp_eval *e, const int32_t *order);

#endif
