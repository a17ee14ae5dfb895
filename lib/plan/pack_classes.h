/* SPDX-License-Identifier: MIT */
/* pack_classes - sequences of one length as a class, for rules that need not
 * tell them apart. */
#ifndef PP_PLAN_PACK_CLASSES_H
#define PP_PLAN_PACK_CLASSES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pp_classes {
    size_t n;
    uint32_t *length; /* longest first */
    uint32_t *count;
    size_t *first;   /* of a class in order, n + 1 */
    uint32_t *order; /* sequences, longest first, of one length as in the input
                      */
};

/* Of n sequences. Nothing is to be freed after a failure. */
int pp_classes_init(struct pp_classes *c, const uint32_t *lengths, size_t n,
                    struct pp_err *err) PP_MUST_USE;

/* The first class from at on that is no longer than space, or n. */
static inline size_t pp_classes_within(const struct pp_classes *c, size_t at,
                                       uint64_t space)
{
    size_t end = c->n;
    while (at < end) {
        size_t middle = at + (end - at) / 2;
        if (c->length[middle] <= space)
            end = middle;
        else
            at = middle + 1;
    }
    return at;
}

void pp_classes_finish(struct pp_classes *c);

#endif
