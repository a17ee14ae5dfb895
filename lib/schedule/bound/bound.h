/* SPDX-License-Identifier: MIT */
/* bound - a lower bound of the makespan.
 *
 * The bound holds for every order of F, I and W (or B) on the given placement,
 * if channels hold any number of messages and receives delay nothing, as in
 * pp_simulate at depth INT_MAX. It is the largest of these:
 *
 *   critical path  one microbatch alone, there and back
 *   rank work      all work of a rank, after the least time in which anything
 *                  reaches it and before the least time that must follow
 *   event graph    earliest starts and latest ends by data, by the work that
 *                  a rank must do before and after, and by the memory that
 *                  must be freed before a forward fits; then each rank as one
 *                  machine that may be preempted (Jackson's rule, J. Carlier,
 *                  "The one-machine sequencing problem", EJOR 11, 1982)
 *   Little's law   microbatches times the least time that each is held, over
 *                  the memory of a rank, plus the memory that cannot be used
 *                  yet at the start or any more at the end
 *   copies         if activations can be offloaded, in place of all rules on
 *                  memory: the same with the time of two copies, for as many
 *                  microbatches as can be copied; only if all are alike
 *   unequal microbatches
 *                  if they differ: each rank as one machine with the true
 *                  times, in any order, and each microbatch's own path
 *   refuted windows
 *                  if memory is limited: makespans that constraint propagation
 *                  refutes; only by pp_bound_by_refuting
 *   shared work    if there are copies of the weights: the work of the ranks
 *                  that hold the same stages, divided evenly among them
 *
 * With copies of the weights the bound does not know which copy a microbatch
 * passes: it holds for every way to choose. Only the critical path of the
 * shortest copy and the shared work apply.
 *
 * Shared work. Take the smallest sets of ranks such that all copies of a stage
 * are on ranks of one set: in a mesh that has lost ranks (reroute.h), the ranks
 * left of a row. A set K does the work of its stages for every microbatch,
 * whatever the routes. If each copy has all stages of K on one rank, one of its
 * ranks does so for ceil(n / |K|) microbatches or more. For each of them, what
 * must happen before an action and after it takes at least the least head and
 * tail of any copy, by data alone, so no order of this rank ends before the
 * machine of Jackson's rule on them does. If not, or if microbatches differ,
 * let h be the least sum of a head and a tail of a rank of K, and C the
 * makespan. A rank with work w ends at h + w at least, and h <= C, as some
 * microbatch passes K: so w <= C - h for each rank, and by the sum over K the
 * work of K is at most |K| (C - h).
 *
 * Memory binds such a rank if K has one stage, and n microbatches come to the
 * rank, but only a < n fit between F and I. Let it start its first I at t1, and
 * end its last F at t2. Before t1 it runs F alone, of a microbatches at most.
 * As one more F must wait for I, t1 < t2. After t2 it can still have the I and
 * W of so many microbatches as fit beside the last, for r at most. So it works
 * for n (F + I + W) - a F - r between t1 and t2 at least; t1 is not before the
 * head of I, and t2 not later than C less the tail of F.
 *
 * The event graph needs the microbatches of each stage in order. If all are
 * alike this loses nothing: rename the k-th F to run on a stage microbatch k,
 * and so for I and W; everything that the k-th waits for has still run k times.
 * If they differ, each action takes the least time of any microbatch, which
 * only lowers the bound. */
#ifndef PP_SCHEDULE_BOUND_BOUND_H
#define PP_SCHEDULE_BOUND_BOUND_H

#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"

struct pp_bound {
    double makespan;
    const char *rule; /* the name of the bound that is largest; static */
    int row;          /* the rank that it is about; -1 if about none */
};

/* Fills b for n_microbatches on g. With split, backward runs as I and W, or as
 * B; without, only as B. costs are asked as by pp_simulate; overlap pairs are
 * not considered. memory is NULL if there is no limit. Fails with PP_EXIT_NO if
 * one microbatch alone does not fit. Time and memory are linear in the number
 * of actions. */
int pp_bound(const struct pp_graph *g, int n_microbatches, bool split,
             const struct pp_costs *costs, const struct pp_memory_limit *memory,
             struct pp_bound *b, struct pp_err *err) PP_MUST_USE;

/* Does the same, and if memory is limited and microbatches are alike, raises
 * the bound by refuting larger makespans, but none from `reached` on, which is
 * the makespan of an order, or INFINITY. The work is limited, at a fixed rate
 * of so many seconds and not by the clock: the result is the same anywhere, but
 * may fall if there are more microbatches. */
int pp_bound_by_refuting(const struct pp_graph *g, int n_microbatches,
                         bool split, const struct pp_costs *costs,
                         const struct pp_memory_limit *memory, double reached,
                         double seconds, struct pp_bound *b,
                         struct pp_err *err) PP_MUST_USE;

#endif
