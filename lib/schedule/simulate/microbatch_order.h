/* SPDX-License-Identifier: MIT */
/* microbatch_order - the order of unequal microbatches in a step.
 *
 * A schedule says when the k-th microbatch runs, but not which one that is. If
 * one takes much longer than the others, its place decides how long all ranks
 * wait for it. The search tries sorted orders, and then moves single
 * microbatches, costliest first. */
#ifndef PP_SCHEDULE_SIMULATE_MICROBATCH_ORDER_H
#define PP_SCHEDULE_SIMULATE_MICROBATCH_ORDER_H

#include "schedule/simulate/makespan.h"

/* The microbatches of one step. Round k has one for each data-parallel rank:
 * that of rank r has times[r * n_rounds + k]. */
struct pp_rounds {
    const struct pp_microbatch_times *times;
    size_t n_rounds, dp;
};

/* Improves order, which holds the round of each place: the makespan of the
 * slowest data-parallel rank falls, or all stays. The schedule of x has
 * n_rounds microbatches. work limits the pieces of x that are simulated. Sets
 * *makespan to that of the result. */
void pp_microbatch_order(struct pp_makespan *x, const struct pp_rounds *rounds,
                         double work, uint32_t *order, double *makespan);

#endif
