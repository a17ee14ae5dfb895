/* SPDX-License-Identifier: MIT */
/* search - auto: the best order of the work that can be found.
 *
 * The best of the named kinds that fit, of the zero-bubble authors' greedy
 * orders with the real times, of list schedules under a grid of
 * policies, of policies bettered by hill climbing, and of those bettered move
 * by move; the search ends when the lower bound of bound.h is reached. Never
 * worse than a named kind that fits, and never above the limit. On each stage
 * microbatches stay in order, so the result is canonical. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_H
#define PP_SCHEDULE_SEARCH_SEARCH_H

#include <stdint.h>

#include "schedule/memory/memory.h"
#include "schedule/ir/schedule.h"
#include "schedule/simulate/sim.h"

struct pp_search_options {
    const struct pp_costs *costs;
    const struct pp_memory_limit *room; /* NULL: no limit */
    bool split; /* backward as I and W, or all of it whole where
                   that takes less; false: whole, as B */
    bool span;  /* least span of a rank, not least makespan */
    uint64_t seed;
    double seconds; /* of work, by a fixed rate and not by the clock: the same
                       input and options find the same order anywhere */
    /* Told now and then of the best so far and the bound; may be NULL. */
    void (*progress)(void *ctx, double best, double bound);
    void *ctx;
};

/* Seconds that are well spent where nobody says how many. */
#define PP_SEARCH_SECONDS 3

/* Fills the rows of s, which is initialised and empty, with compute actions.
 * PP_EXIT_NO when one microbatch at a time is already too much for a rank,
 * naming the rank and what would do. */
int pp_search(struct pp_schedule *s, const struct pp_search_options *o,
              struct pp_err *err) PP_MUST_USE;

#endif
