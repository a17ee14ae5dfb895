/* SPDX-License-Identifier: MIT */
/* pack_bound - how few bins there can be.
 *
 * Martello and Toth, "Lower bounds and reduction procedures for the bin
 * packing problem", Discrete Applied Mathematics 28, 1990: the bound L2. For a
 * threshold a, items above C - a share a bin with nothing of size a or more,
 * items above C/2 not with each other, and the items of [a, C/2] fill what the
 * second kind leaves and then bins of their own. Only a that are item lengths
 * matter, so after sorting one sweep finds the best. */
#include <stdlib.h>

#include "plan/pack_rule.h"

/* Items by descending length: [0, big) above C/2, sum[k] of the first k. */
static size_t sweep(const uint32_t *lengths, const uint32_t *order,
                    const uint64_t *sum, size_t n, uint64_t capacity)
{
    size_t big = 0, best = 0;
    while (big < n && 2 * (uint64_t)lengths[order[big]] > capacity)
        big++;
    best = big;
    size_t alone = big; /* items above capacity - a: fewer as a falls */
    for (size_t k = big; k < n; k++) {
        uint64_t a = lengths[order[k]];
        if (k + 1 < n && lengths[order[k + 1]] == a)
            continue;
        while (alone > 0 && lengths[order[alone - 1]] <= capacity - a)
            alone--;
        uint64_t small = sum[k + 1] - sum[big];
        uint64_t left = (big - alone) * capacity - (sum[big] - sum[alone]);
        uint64_t more = small > left ? small - left : 0;
        size_t bound = big + (size_t)((more + capacity - 1) / capacity);
        best = bound > best ? bound : best;
    }
    return best;
}

int pp_pack_lower_bound(const uint32_t *lengths, size_t n, uint32_t capacity,
                        size_t *bound, struct pp_err *err)
{
    uint32_t *order = pp_pack_order(lengths, n, false, err);
    uint64_t *sum = pp_pack_alloc(n + 1, sizeof *sum, err);
    int rc = order && sum ? 0 : -1;
    if (rc == 0) {
        for (size_t i = 0; i < n; i++)
            sum[i + 1] = sum[i] + lengths[order[i]];
        *bound = sweep(lengths, order, sum, n, capacity);
        /* Items of no length need a bin too. */
        if (n && !*bound)
            *bound = 1;
    }
    free(order);
    free(sum);
    return rc;
}
