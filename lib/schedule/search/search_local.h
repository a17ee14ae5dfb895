/* SPDX-License-Identifier: MIT */
/* search_local - betters words by simulated annealing; private to
 * lib/schedule/search.
 *
 * A move takes an op that lies on a longest path and puts it elsewhere in its
 * word, where memory and the order within a microbatch allow. What the move
 * does to the paths through the shifted ops is told from heads and tails of
 * the words before it, as in job-shop scheduling (Taillard, ORSA J. Computing
 * 1994; Dell'Amico and Trubian, Annals of OR 1993), so that most moves are
 * refused without a pass over the ops. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_LOCAL_H
#define PP_SCHEDULE_SEARCH_SEARCH_LOCAL_H

#include "schedule/search/search_problem.h"

struct pp_local_options {
    uint64_t key;   /* of the random numbers */
    double steps;   /* work allowed, in visits of an op */
    double goal;    /* stop when the objective is no larger */
    double heat[2]; /* first and last temperature, in mean op times */
};

/* Betters word in place: what comes back is the best met, never worse. *worst
 * is its objective. Returns the work done through *steps. */
int pp_local_search(const struct pp_search_problem *j,
                    const struct pp_local_options *o, int32_t *order,
                    double *worst, double *steps,
                    struct pp_err *err) PP_MUST_USE;

#endif
