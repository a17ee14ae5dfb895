/* SPDX-License-Identifier: MIT */
#include "plan/pack_room.h"

#include <stdlib.h>
#include <string.h>

#include "plan/pack_rule.h"

int pp_room_init(struct pp_room *t, size_t n, uint32_t capacity,
                 struct pp_err *err)
{
    for (t->leaves = 64; t->leaves < n;)
        t->leaves *= 2;
    t->room = pp_pack_alloc(2 * t->leaves, sizeof *t->room, err);
    for (size_t i = 1; t->room && i < 2 * t->leaves; i++)
        t->room[i] = capacity + 1;
    return t->room ? 0 : -1;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

int pp_room_grow(struct pp_room *t, uint32_t capacity, struct pp_err *err)
{
    struct pp_room big;
    if (pp_room_init(&big, 2 * t->leaves, capacity, err) != 0)
        return -1;
    memcpy(big.room + big.leaves, t->room + t->leaves,
           t->leaves * sizeof *t->room);
    for (size_t i = big.leaves - 1; i > 0; i--)
        big.room[i] = larger(big.room[2 * i], big.room[2 * i + 1]);
    free(t->room);
    *t = big;
    return 0;
}

void pp_room_set(struct pp_room *t, size_t bin, uint32_t room)
{
    size_t i = bin + t->leaves;
    t->room[i] = room;
    while (i /= 2) {
        uint32_t top = larger(t->room[2 * i], t->room[2 * i + 1]);
        if (t->room[i] == top)
            break;
        t->room[i] = top;
    }
}

void pp_room_finish(struct pp_room *t)
{
    free(t->room);
    memset(t, 0, sizeof *t);
}
