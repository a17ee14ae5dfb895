/* SPDX-License-Identifier: MIT */
/* pack_heap - bins as a heap by load, for the rules that look at the emptiest
 * or the fullest one. */
#ifndef PP_PLAN_PACK_HEAP_H
#define PP_PLAN_PACK_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct pp_heap {
    uint64_t *load; /* by bin */
    uint32_t *bin;  /* bin[0] is the least, or the greatest with sign -1 */
    size_t n;
    int sign;
};

/* Ties go to the lower bin number. Both arrays have room for every bin. */
void pp_heap_push(struct pp_heap *h, uint32_t bin);

/* n > 0. */
uint32_t pp_heap_pop(struct pp_heap *h);

/* Restores the order after the load of bin[i] went up (down with sign -1). */
void pp_heap_sift_down(struct pp_heap *h, size_t i);

#endif
