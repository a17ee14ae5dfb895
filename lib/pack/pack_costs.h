/* SPDX-License-Identifier: MIT */
/* pack_costs - sequences and bins by what they cost: sorted, and as a heap. For
 * the files that balance bins. */
#ifndef PP_PACK_PACK_COSTS_H
#define PP_PACK_PACK_COSTS_H

#include <stddef.h>
#include <stdint.h>

struct pp_by_cost {
    uint64_t cost;
    uint32_t index;
};

/* The indices 0..n-1 by descending cost, of equal ones the lower first. keys is
 * scratch of n. */
void pp_sort_by_cost(const uint64_t *cost, size_t n, struct pp_by_cost *keys,
                     uint32_t *order);

/* The cheapest on top, of equal ones that of the lowest index. */
struct pp_cost_heap {
    struct pp_by_cost *entries; /* room for all that are pushed */
    size_t n;
};

void pp_cost_heap_push(struct pp_cost_heap *h, struct pp_by_cost e);

/* h->n > 0. */
struct pp_by_cost pp_cost_heap_pop(struct pp_cost_heap *h);

#endif
