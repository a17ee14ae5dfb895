/* SPDX-License-Identifier: MIT */
/* costs - costs as integers with prefix sums; private to lib/split. */
#ifndef PP_SPLIT_COSTS_H
#define PP_SPLIT_COSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_split_costs {
    size_t n;
    uint64_t *before; /* before[i]: cost of the units 0 .. i - 1 */
};

/* Rounds costs to multiples of a power of two, such that their total is below
 * 2^31. Small integers stay exact, and the square of the total fits uint64_t.
 */
void pp_split_costs_init(struct pp_split_costs *c, const double *costs,
                         size_t n);
void pp_split_costs_finish(struct pp_split_costs *c);

/* Returns the cost of the units i .. j - 1. */
static inline uint64_t pp_split_sum(const struct pp_split_costs *c, size_t i,
                                    size_t j)
{
    return c->before[j] - c->before[i];
}

#endif
