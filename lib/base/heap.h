/* SPDX-License-Identifier: MIT */
/* heap - a priority queue of indices, stored as a binary heap.
 *
 * The caller keeps the keys in its own arrays, and before() compares two
 * indices by their keys. If before() breaks ties by the index, the order of the
 * pops depends on the keys alone and not on the order of the pushes. */
#ifndef PP_BASE_HEAP_H
#define PP_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns true if index a leaves the heap before index b. */
typedef bool pp_heap_before_fn(const void *ctx, uint32_t a, uint32_t b);

/* The arrays and ctx belong to the caller. An empty heap has n = 0. */
struct pp_heap {
    uint32_t *items; /* items[0] is first; has room for every index pushed */
    size_t n;
    pp_heap_before_fn *before;
    const void *ctx; /* for before() */
    /* NULL, or by index: its position in items. The heap keeps it up to date
     * for the indices that it holds. */
    uint32_t *position;
};

void pp_heap_push(struct pp_heap *h, uint32_t index);

/* Removes and returns items[0]. The heap must not be empty. */
uint32_t pp_heap_pop(struct pp_heap *h);

/* Restores the order after the key of items[at] changed, up or down. Keys must
 * not change otherwise while their index is in the heap. */
void pp_heap_update(struct pp_heap *h, size_t at);

#endif
