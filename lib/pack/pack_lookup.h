/* SPDX-License-Identifier: MIT */
/* pack_lookup - sequences of one length as a class, for rules that need not
 * tell them apart. */
#ifndef PP_PACK_PACK_LOOKUP_H
#define PP_PACK_PACK_LOOKUP_H

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

/* pack_room - which is the first bin with room for a sequence. A tournament
 * tree over the bins holds the largest space below each node: O(log bins) a
 * step. Bins not opened yet are leaves with all of their space, so opening one
 * is no special case. */
/* Node 1 is the root, nodes leaves..2*leaves-1 the bins. What is stored is the
 * space plus one, and 0 for a bin that takes no more sequences. */
struct pp_first_fit_tree {
    uint32_t *room;
    size_t leaves;
};

/* At least n empty bins; a failed one is empty. */
int pp_first_fit_tree_init(struct pp_first_fit_tree *t, size_t n,
                           uint32_t capacity, struct pp_err *err) PP_MUST_USE;

/* Twice the bins, those that there are kept. */
int pp_first_fit_tree_grow(struct pp_first_fit_tree *t, uint32_t capacity,
                           struct pp_err *err) PP_MUST_USE;

/* The first bin with room, which must exist. */
static inline size_t pp_first_fit_tree_first(const struct pp_first_fit_tree *t,
                                             uint32_t length)
{
    size_t i = 1;
    while (i < t->leaves)
        i = 2 * i + (t->room[2 * i] <= length);
    return i - t->leaves;
}

/* Room is the space plus one, or 0. */
void pp_first_fit_tree_set(struct pp_first_fit_tree *t, size_t bin,
                           uint32_t room);

void pp_first_fit_tree_finish(struct pp_first_fit_tree *t);

#endif
