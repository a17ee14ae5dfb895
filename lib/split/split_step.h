/* SPDX-License-Identifier: MIT */
/* split_step - the contiguous partition of units whose step takes least time
 * under the schedule that will run.
 *
 * A schedule's order does not depend on what stages hold, so a step is the
 * longest path through a graph that stays (makespan.h), and any path through
 * it, once met, is a sum over the units that no later partition may exceed: a
 * cut in the sense of J. E. Kelley, "The cutting-plane method for solving
 * convex programs", J. SIAM 8, 1960. The search moves units between any two
 * stages, asks the cuts which move may help, and simulates only that one.
 * Small instances are then searched as a whole, branches being bounded by the
 * cuts, which proves the optimum; for the others the cuts give a bound. */
#ifndef PP_SPLIT_SPLIT_STEP_H
#define PP_SPLIT_SPLIT_STEP_H

#include <stdbool.h>

#include "split/split_memory.h"
#include "schedule/simulate/makespan.h"

/* What is split, and for what. All borrowed. */
struct pp_split_step {
    struct pp_makespan *makespan; /* of the schedule; copies of a stage hold
                                     the same units */
    size_t n_units;
    const double (*times)[PP_N_TIMES]; /* by unit * n_slices + slice */
    const double *messages; /* per unit: of a slice's message behind it, there
                               or back; NULL: they take no time */
    const double *speed;    /* per rank, times are divided by it; NULL: 1 */
    const struct pp_split_memory *memory; /* NULL: no limit */
    const double *limit; /* bytes per rank; read where there is memory */
    size_t fixed_stage;  /* which begins with unit fixed_unit in every partition
                            that is looked at; 0: none does */
    size_t fixed_unit;
    bool fit_only; /* with memory: any partition that fits will do */
};

struct pp_split_found {
    double makespan; /* of the partition; infinite when none fits in memory */
    double bound;    /* no partition with the same order takes less */
    bool proved;     /* the whole was searched: nothing is better, or fits */
    size_t n_simulated;
};

/* Improves bounds, which have fixed_unit in its place, n_stages + 1 of them (of
 * one copy), as split.h has them, without an empty stage. They need not fit in
 * memory. Equal steps leave them as they are. There must be at least as many
 * units as stages. */
int pp_split_step(const struct pp_split_step *p, size_t *bounds,
                  struct pp_split_found *found, struct pp_err *err) PP_MUST_USE;

/* The makespan of a partition, which may have empty stages. */
int pp_split_step_time(const struct pp_split_step *p, const size_t *bounds,
                       double *makespan, struct pp_err *err) PP_MUST_USE;

#endif
