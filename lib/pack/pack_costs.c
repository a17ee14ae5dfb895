/* SPDX-License-Identifier: MIT */
#include "pack/pack_costs.h"

#include <stdbool.h>
#include <stdlib.h>

static bool cheaper(struct pp_by_cost a, struct pp_by_cost b)
{
    return a.cost != b.cost ? a.cost < b.cost : a.index < b.index;
}

static int compare_costs(const void *x, const void *y)
{
    const struct pp_by_cost *a = x, *b = y;
    if (a->cost != b->cost)
        return a->cost > b->cost ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

void pp_sort_by_cost(const uint64_t *cost, size_t n, struct pp_by_cost *keys,
                     uint32_t *order)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = (struct pp_by_cost){cost[i], (uint32_t)i};
    qsort(keys, n, sizeof *keys, compare_costs);
    for (size_t i = 0; i < n; i++)
        order[i] = keys[i].index;
}

void pp_cost_heap_push(struct pp_cost_heap *h, struct pp_by_cost e)
{
    size_t i = h->n++;
    for (; i > 0 && cheaper(e, h->entries[(i - 1) / 2]); i = (i - 1) / 2)
        h->entries[i] = h->entries[(i - 1) / 2];
    h->entries[i] = e;
}

struct pp_by_cost pp_cost_heap_pop(struct pp_cost_heap *h)
{
    struct pp_by_cost top = h->entries[0], last = h->entries[--h->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            break;
        child += child + 1 < h->n &&
                 cheaper(h->entries[child + 1], h->entries[child]);
        if (!cheaper(h->entries[child], last))
            break;
        h->entries[i] = h->entries[child];
        i = child;
    }
    h->entries[i] = last;
    return top;
}
