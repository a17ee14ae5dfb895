/* SPDX-License-Identifier: MIT */
/* search - auto: the best order of the work that a search finds.
 *
 * The search takes the best of the named kinds that fit, of list schedules
 * under a grid of policies, of policies improved by hill climbing, and of
 * orders improved move by move. It ends when the lower bound of bound.h is
 * reached. Of orders with the same makespan it takes one with little memory,
 * then one with a small span. The result is never worse than a named kind that
 * fits, and never above the limit. Microbatches stay in order on each stage, so
 * the result is canonical. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_H
#define PP_SCHEDULE_SEARCH_SEARCH_H

#include <stdint.h>

#include "schedule/memory/memory.h"
#include "schedule/ir/schedule.h"
#include "schedule/simulate/sim.h"

struct pp_search_options {
    const struct pp_costs *costs;
    const struct pp_memory_limit *room; /* NULL: no limit */
    bool split; /* backward as I and W, or as B on all stages or on stages where
                   B takes less time; false: as B */
    bool span;  /* minimize the longest span of a rank, not the makespan */
    const int *copy; /* per microbatch: the copy of the weights that it passes
                        through; NULL: the graph has one */
    uint64_t seed;
    double seconds; /* work, at a fixed rate and not by the clock: the same
                       input and options find the same order anywhere */
    /* Called now and then with the best so far and the bound; may be NULL. */
    void (*progress)(void *ctx, double best, double bound);
    void *ctx;
};

/* The default of seconds. */
#define PP_SEARCH_SECONDS 3

/* Fills the rows of s, which is initialised and empty, with compute actions.
 * Fails with PP_EXIT_NO if a rank cannot hold one microbatch. */
int pp_search(struct pp_schedule *s, const struct pp_search_options *o,
              struct pp_err *err) PP_MUST_USE;

/* Initialises s for the graph and fills it by pp_search, messages included. If
 * depth is negative, chooses the channel depth as pp_depth_choose does. If the
 * result takes longer at that depth than with unbounded channels, the named
 * kinds that fit compete at theirs, and the fastest run is the result; equal
 * runs by least memory. */
int pp_search_lowered(struct pp_schedule *s, const struct pp_graph *g,
                      int n_microbatches, int depth,
                      const struct pp_search_options *o,
                      struct pp_err *err) PP_MUST_USE;

/* Limits in bytes of what pp_memory_plan places. All pointers are borrowed. */
struct pp_search_bytes {
    const struct pp_stage_bytes *sizes; /* per stage */
    const double *room; /* per rank: bytes for all that is placed */
};

/* Like pp_search_lowered, within limits in bytes; o->room is not read. Bytes of
 * messages are unknown before there are rows, so it searches several times. The
 * result may still be above a limit; the caller checks. */
int pp_search_bytes(struct pp_schedule *s, const struct pp_graph *g,
                    int n_microbatches, int depth,
                    const struct pp_search_options *o,
                    const struct pp_search_bytes *b,
                    struct pp_err *err) PP_MUST_USE;

#endif
