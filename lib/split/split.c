/* SPDX-License-Identifier: MIT */
/* split - balanced partitions for one stage per rank, and the simple rules.
 *
 * The bottleneck is found by bisection: filling stages greedily decides if a
 * bound can be kept. Dynamic programming then selects among the partitions
 * within the bound. Costs are rounded to integers first, so that equal units
 * have equal costs at any position and ties are exact. */
#include "split/split.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "split/costs.h"

#define INFEASIBLE UINT64_MAX

enum { TOTAL_BITS = 30 };

void pp_split_costs_init(struct pp_split_costs *c, const double *costs,
                         size_t n)
{
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        assert(isfinite(costs[i]) && costs[i] >= 0);
        total += costs[i];
    }
    c->before = pp_calloc(n + 1, sizeof *c->before);
    /* total * 2^shift is in [2^(TOTAL_BITS - 1), 2^TOTAL_BITS). Rounding adds
     * at most 1/2 per unit, so the sum stays below 2^(TOTAL_BITS + 1). */
    int shift = total > 0 ? TOTAL_BITS - 1 - ilogb(total) : 0;
    c->n = n;
    for (size_t i = 0; i < n; i++)
        c->before[i + 1] =
            c->before[i] + (uint64_t)nearbyint(ldexp(costs[i], shift));
}

void pp_split_costs_finish(struct pp_split_costs *c)
{
    free(c->before);
    c->before = NULL;
}

/* Returns true if n_stages stages of at most bound each can hold all units. */
static bool bound_fits(const struct pp_split_costs *c, size_t n_stages,
                       uint64_t bound)
{
    size_t at = 0;
    for (size_t s = 0; s < n_stages && at < c->n; s++) {
        size_t low = at, high = c->n; /* finds the last boundary that fits */
        while (low < high) {
            size_t middle = low + (high - low + 1) / 2;
            if (pp_split_sum(c, at, middle) <= bound)
                low = middle;
            else
                high = middle - 1;
        }
        at = low;
    }
    return at == c->n;
}

static uint64_t smallest_bound(const struct pp_split_costs *c, size_t n_stages)
{
    uint64_t low = 0, high = pp_split_sum(c, 0, c->n);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (bound_fits(c, n_stages, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Returns the least sum of squares of the stages s, s + 1, ... if they hold the
 * units from i on. next has the same for the stages from s + 1 on. */
static uint64_t best_from(const struct pp_split_costs *c, size_t i,
                          uint64_t bound, size_t least, const uint64_t *next,
                          size_t *end)
{
    uint64_t best = INFEASIBLE;
    for (size_t j = i + least; j <= c->n; j++) {
        uint64_t sum = pp_split_sum(c, i, j);
        if (sum > bound)
            break;
        /* No overflow: the sum of the squares is at most the square of the
         * total, which is below 2^63. */
        if (next[j] != INFEASIBLE && sum * sum + next[j] < best) {
            best = sum * sum + next[j];
            *end = j;
        }
    }
    return best;
}

/* Returns whether stage s may begin with unit i: the stages before it can hold
 * the units before, and the others the rest. Few units may, because the bound
 * is the least; to try all of them takes the square of their number. */
static bool within(const struct pp_split_costs *c, size_t i, size_t s,
                   size_t n_stages, uint64_t bound)
{
    return pp_split_sum(c, 0, i) <= s * bound &&
           pp_split_sum(c, i, c->n) <= (n_stages - s) * bound;
}

/* Finds the partition within bound that has the least sum of squares, then the
 * earliest boundaries. */
static void most_even(const struct pp_split_costs *c, size_t n_stages,
                      uint64_t bound, uint64_t *best, size_t *bounds)
{
    size_t n = c->n, row = n + 1, least = n >= n_stages, end = 0;
    for (size_t i = 0; i <= n; i++)
        best[n_stages * row + i] = i == n ? 0 : INFEASIBLE;
    for (size_t s = n_stages; s-- > 0;)
        for (size_t i = 0; i <= n; i++)
            best[s * row + i] =
                within(c, i, s, n_stages, bound)
                    ? best_from(c, i, bound, least, best + (s + 1) * row, &end)
                    : INFEASIBLE;
    bounds[0] = 0;
    for (size_t s = 0; s < n_stages; s++) {
        best_from(c, bounds[s], bound, least, best + (s + 1) * row, &end);
        bounds[s + 1] = end;
    }
}

void pp_split_balanced(const double *costs, size_t n, size_t n_stages,
                       size_t *bounds)
{
    struct pp_split_costs c;
    pp_split_costs_init(&c, costs, n);
    uint64_t *best = pp_calloc(n_stages + 1, (n + 1) * sizeof *best);
    most_even(&c, n_stages, smallest_bound(&c, n_stages), best, bounds);
    free(best);
    pp_split_costs_finish(&c);
}

int pp_split_uniform(size_t n, size_t n_stages, size_t *bounds,
                     struct pp_err *err)
{
    if (n_stages == 0)
        return pp_fail(err, PP_EXIT_INPUT, "no stages to split into");
    bounds[0] = 0;
    for (size_t s = 0; s < n_stages; s++)
        bounds[s + 1] = bounds[s] + n / n_stages + (s < n % n_stages);
    return 0;
}

int pp_split_weights(size_t n_layers, size_t n_stages, size_t input_weight,
                     size_t output_weight, size_t *counts, struct pp_err *err)
{
    size_t effective = n_layers + input_weight + output_weight;
    if (n_stages < 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "number of stages must be at least 1");
    if (n_stages == 1) {
        counts[0] = n_layers;
        return 0;
    }
    if (n_stages > effective)
        return pp_fail(err, PP_EXIT_INPUT,
                       "number of stages (%zu) cannot be greater than "
                       "effective layers (%zu)",
                       n_stages, effective);
    size_t base = effective / n_stages, extra = effective % n_stages;
    if (input_weight > base)
        return pp_fail(err, PP_EXIT_INPUT,
                       "input_weight (%zu) exceeds minimum layers per stage "
                       "(%zu)",
                       input_weight, base);
    if (output_weight > base)
        return pp_fail(err, PP_EXIT_INPUT,
                       "output_weight (%zu) exceeds minimum layers per stage "
                       "(%zu)",
                       output_weight, base);
    for (size_t s = 0; s < n_stages; s++)
        counts[s] = base + (s < extra);
    counts[0] -= input_weight;
    counts[n_stages - 1] -= output_weight;
    return 0;
}
