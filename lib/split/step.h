/* SPDX-License-Identifier: MIT */
/* step - the contiguous partition of units with the shortest step under a
 * given schedule.
 *
 * The order of a schedule does not depend on the partition. So a step is the
 * longest path through a fixed graph (makespan.h), and every path is a lower
 * bound for all partitions: a cut in the sense of J. E. Kelley, "The
 * cutting-plane method for solving convex programs", J. SIAM 8, 1960. The local
 * search moves units between any two stages; the cuts tell which move may help,
 * and only that one is simulated. For small instances, branch and bound with
 * the cuts then proves the optimum. For others the cuts give a bound. */
#ifndef PP_SPLIT_STEP_H
#define PP_SPLIT_STEP_H

#include <stdbool.h>

#include "split/memory.h"
#include "schedule/simulate/makespan.h"

enum { PP_MAX_FIXED = 2 };

/* The problem. All pointers are borrowed. */
struct pp_split_step {
    struct pp_makespan *makespan; /* evaluates the schedule */
    size_t n_units;
    const double (*times)[PP_N_TIMES]; /* [unit * n_slices + slice], finite and
                                          not negative */
    const double *messages; /* per unit: time of a slice's message after it, in
                               either direction; NULL: 0 */
    const double *speed;    /* per rank, divides times; NULL: 1 */
    const struct pp_split_memory *memory; /* NULL: no limit */
    const double *limit; /* bytes per rank; used only with memory */
    /* Returns the bytes that a rank needs for a partition without empty stages.
     * memory is a lower bound of that. NULL: memory is exact. */
    double (*need)(void *ctx, const size_t *bounds, int rank);
    void *ctx;
    /* Stages that always begin with a unit. */
    struct {
        size_t stage, unit;
    } fixed[PP_MAX_FIXED];
    size_t n_fixed;
    bool fit_only; /* with memory: accept any partition that fits */
    bool brief;    /* search fewer of all partitions, and for no bound */
};

struct pp_split_found {
    double makespan; /* the partition's; infinite if none fits in memory */
    double bound;    /* lower bound for all partitions that fit; 0: unknown */
    bool proved;     /* the partition is optimal within the limits, or none
                        fits */
    size_t n_simulated;
};

/* Returns true if a stage may begin with a unit. */
static inline bool pp_split_may_begin(const struct pp_split_step *p,
                                      size_t stage, size_t unit)
{
    for (size_t i = 0; i < p->n_fixed; i++)
        if (p->fixed[i].stage == stage && p->fixed[i].unit != unit)
            return false;
    return true;
}

/* Returns true if a partition has the fixed units in their places. */
static inline bool pp_split_keeps_fixed(const struct pp_split_step *p,
                                        const size_t *bounds)
{
    for (size_t i = 0; i < p->n_fixed; i++)
        if (bounds[p->fixed[i].stage] != p->fixed[i].unit)
            return false;
    return true;
}

/* Improves bounds, the n_stages + 1 boundaries of one copy (split.h). At the
 * start no stage is empty and fixed units are in their places, but the
 * partition need not fit in memory. A partition that is not faster does not
 * replace it. n_units is at least n_stages. */
struct pp_split_found pp_split_step(const struct pp_split_step *p,
                                    size_t *bounds);

/* Returns the makespan of a partition, which may have empty stages. */
double pp_split_step_time(const struct pp_split_step *p, const size_t *bounds);

#endif
