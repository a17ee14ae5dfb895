/* SPDX-License-Identifier: MIT */
/* bound - a makespan that no order of the work can go below.
 *
 * Any order of F, I and W (or B) on the given placement counts, with channels
 * that hold any number of messages and receives in nobody's way, as
 * pp_simulate has it at depth INT_MAX. The largest of these is taken:
 *
 *   critical path  one microbatch alone, there and back
 *   rank work      all the work of a rank, after the least time in which
 *                  anything reaches it and before the least that must follow
 *   event graph    earliest starts and latest ends by data, by what a rank
 *                  must do before and after, and by what must be freed before
 *                  a forward fits, with the idle time that this forces on the
 *                  rank; then each rank as one machine that may be
 *                  preempted (Jackson's rule, J. Carlier, "The one-machine
 *                  sequencing problem", EJOR 11, 1982)
 *   Little's law   microbatches times the least time that each is held, over
 *                  what a rank may hold, with the room that cannot be filled
 *                  yet at the start nor any more at the end
 *   unequal microbatches
 *                  where they differ: each rank as one machine again, with the
 *                  true times, in any order, and each one's own path
 *
 * Where there are copies of the weights no one knows which of them a microbatch
 * passes through: then it is the critical path of the shorter, or the total
 * work spread over all ranks ("total work"), whatever fits in memory.
 *
 * The event graph needs microbatches in order on every stage. Where they are
 * all alike this loses nothing: call the k-th F to run on a stage microbatch k,
 * and so for I and W; whatever the k-th waited for has still run k times.
 * Where they differ, the same holds of the work in which each action takes the
 * least time of any microbatch, which never takes longer than the real one. */
#ifndef PP_SCHEDULE_BOUND_BOUND_H
#define PP_SCHEDULE_BOUND_BOUND_H

#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"

struct pp_bound {
    double makespan;
    const char *rule; /* which of the five; static */
    int row;          /* where it is tight; -1 for the critical path */
};

/* Fills b for n_microbatches on g with the backward split into I and W (B may
 * stand for both) or whole (B). costs are asked as by pp_simulate, pairs are
 * not considered. room: NULL for none. PP_EXIT_NO when one
 * microbatch alone does not fit. Time and memory are linear in the number of
 * actions. */
int pp_bound(const struct pp_graph *g, int n_microbatches, bool split,
             const struct pp_costs *costs, const struct pp_memory_limit *room,
             struct pp_bound *b, struct pp_err *err) PP_MUST_USE;

#endif
