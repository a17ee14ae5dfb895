/* SPDX-License-Identifier: MIT */
#include "base/heap.h"

static void set_item(struct pp_heap *h, size_t at, uint32_t index)
{
    h->items[at] = index;
    if (h->position)
        h->position[index] = (uint32_t)at;
}

/* Fills the hole at a position with index, after it moved the hole up past all
 * parents that index precedes. */
static void sift_up(struct pp_heap *h, size_t at, uint32_t index)
{
    for (; at > 0; at = (at - 1) / 2) {
        uint32_t parent = h->items[(at - 1) / 2];
        if (!h->before(h->ctx, index, parent))
            break;
        set_item(h, at, parent);
    }
    set_item(h, at, index);
}

/* Fills the hole at a position with index, after it moved the hole down past
 * all children that precede index. */
static void sift_down(struct pp_heap *h, size_t at, uint32_t index)
{
    for (size_t child; (child = 2 * at + 1) < h->n; at = child) {
        const uint32_t *c = &h->items[child];
        if (child + 1 < h->n && h->before(h->ctx, c[1], c[0]))
            child++;
        if (!h->before(h->ctx, h->items[child], index))
            break;
        set_item(h, at, h->items[child]);
    }
    set_item(h, at, index);
}

void pp_heap_push(struct pp_heap *h, uint32_t index)
{
    sift_up(h, h->n++, index);
}

uint32_t pp_heap_pop(struct pp_heap *h)
{
    uint32_t first = h->items[0], last = h->items[--h->n];
    if (h->n > 0)
        sift_down(h, 0, last);
    return first;
}

void pp_heap_update(struct pp_heap *h, size_t at)
{
    uint32_t index = h->items[at];
    if (at > 0 && h->before(h->ctx, index, h->items[(at - 1) / 2]))
        sift_up(h, at, index);
    else
        sift_down(h, at, index);
}
