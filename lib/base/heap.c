/* SPDX-License-Identifier: MIT */
#include "plan/pack_heap.h"

#include <stdbool.h>

/* Ties go to the lower bin number. */
static bool before(const struct pp_heap *h, uint32_t a, uint32_t b)
{
    if (h->load[a] != h->load[b])
        return (h->load[a] < h->load[b]) == (h->sign > 0);
    return a < b;
}

void pp_heap_sift_down(struct pp_heap *h, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            return;
        if (child + 1 < h->n && before(h, h->bin[child + 1], h->bin[child]))
            child++;
        if (!before(h, h->bin[child], h->bin[i]))
            return;
        uint32_t t = h->bin[i];
        h->bin[i] = h->bin[child];
        h->bin[child] = t;
        i = child;
    }
}

void pp_heap_push(struct pp_heap *h, uint32_t bin)
{
    size_t i = h->n++;
    h->bin[i] = bin;
    while (i > 0 && before(h, h->bin[i], h->bin[(i - 1) / 2])) {
        uint32_t t = h->bin[i];
        h->bin[i] = h->bin[(i - 1) / 2];
        h->bin[(i - 1) / 2] = t;
        i = (i - 1) / 2;
    }
}

uint32_t pp_heap_pop(struct pp_heap *h)
{
    uint32_t top = h->bin[0];
    h->bin[0] = h->bin[--h->n];
    pp_heap_sift_down(h, 0);
    return top;
}
