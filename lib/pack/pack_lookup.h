/* SPDX-License-Identifier: MIT */
/* pack_room - which is the first bin with room for a sequence. A tournament
 * tree over the bins holds the largest space below each node: O(log bins) a
 * step. Bins not opened yet are leaves with all of their space, so opening one
 * is no special case. */
#ifndef PP_PLAN_PACK_ROOM_H
#define PP_PLAN_PACK_ROOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Node 1 is the root, nodes leaves..2*leaves-1 the bins. What is stored is the
 * space plus one, and 0 for a bin that takes no more sequences. */
struct pp_room {
    uint32_t *room;
    size_t leaves;
};

/* At least n empty bins; a failed one is empty. */
int pp_room_init(struct pp_room *t, size_t n, uint32_t capacity,
                 struct pp_err *err) PP_MUST_USE;

/* Twice the bins, those that there are kept. */
int pp_room_grow(struct pp_room *t, uint32_t capacity,
                 struct pp_err *err) PP_MUST_USE;

/* The first bin with room, which must exist. */
static inline size_t pp_room_first(const struct pp_room *t, uint32_t length)
{
    size_t i = 1;
    while (i < t->leaves)
        i = 2 * i + (t->room[2 * i] <= length);
    return i - t->leaves;
}

/* Room is the space plus one, or 0. */
void pp_room_set(struct pp_room *t, size_t bin, uint32_t room);

void pp_room_finish(struct pp_room *t);

#endif
