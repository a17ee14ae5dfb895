/* SPDX-License-Identifier: MIT */
/* least - a lower bound of the step for every split, placement and order.
 *
 * Each unit is on one rank, and nothing else is known: a rank may hold any
 * units in any number of stages, and run their actions in any order that the
 * data allow. pp-bounds(7) has the proof. */
#ifndef PP_SPLIT_LEAST_H
#define PP_SPLIT_LEAST_H

#include <stdint.h>

#include "schedule/simulate/makespan.h"

/* The problem. All pointers are borrowed. */
struct pp_split_least {
    size_t n_units, n_ranks;
    int64_t n_microbatches;
    const double (*times)[PP_N_TIMES]; /* per unit, for a whole microbatch */
    const double *messages; /* per unit: of the message after it; NULL: 0 */
    const double *speeds;   /* per rank, divides times; NULL: 1 */
};

enum pp_least_rule {
    PP_LEAST_WORK, /* all work on all ranks at once, after their first inputs */
    PP_LEAST_UNITS, /* the same, but a unit is on one rank as a whole */
    PP_LEAST_UNIT   /* one unit alone, between the forwards of the units before
                       it and their gradients */
};

struct pp_least_found {
    double step;
    enum pp_least_rule rule; /* the one that gives step */
    size_t unit;             /* PP_LEAST_UNIT: the unit */
};

/* The name of each rule. */
extern const char *const pp_least_rule_names[];

/* Finds the bound. Takes some milliseconds for hundreds of units. */
struct pp_least_found pp_split_least(const struct pp_split_least *p);

#endif
