/* SPDX-License-Identifier: MIT */
#include "split/split_costs.h"

#include <math.h>
#include <stdlib.h>

#include "base/num.h"

enum { TOTAL_BITS = 30 };

int pp_split_costs_init(struct pp_split_costs *c, const double *costs, size_t n,
                        struct pp_err *err)
{
    double total = 0;
    size_t bytes;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(costs[i]) || costs[i] < 0)
            return pp_fail(err, PP_EXIT_INPUT, "unit %zu costs '%g'", i,
                           costs[i]);
        total += costs[i];
    }
    if (!isfinite(total))
        return pp_fail(err, PP_EXIT_INPUT, "the costs add up to '%g'", total);
    if (pp_mul(n + 1, sizeof *c->before, &bytes, err))
        return -1;
    c->before = malloc(bytes);
    if (!c->before)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    /* total * 2^shift is in [2^(TOTAL_BITS - 1), 2^TOTAL_BITS); rounding up
     * adds half a unit each, which stays below one bit more. */
    int shift = total > 0 ? TOTAL_BITS - 1 - ilogb(total) : 0;
    c->n = n;
    c->before[0] = 0;
    for (size_t i = 0; i < n; i++)
        c->before[i + 1] =
            c->before[i] + (uint64_t)nearbyint(ldexp(costs[i], shift));
    return 0;
}

void pp_split_costs_finish(struct pp_split_costs *c)
{
    free(c->before);
    c->before = NULL;
}
