/* SPDX-License-Identifier: MIT */
#include "pack/pack_lookup.h"

#include <stdlib.h>
#include <string.h>

#include "pack/pack_rule.h"

/* Above that lengths are sorted, not counted. */
enum { COUNTED = 1 << 16 };

static int alloc_classes(struct pp_classes *c, size_t n_classes,
                         struct pp_err *err)
{
    c->length = pp_pack_alloc(n_classes, sizeof *c->length, err);
    c->count = pp_pack_alloc(n_classes, sizeof *c->count, err);
    c->first = pp_pack_alloc(n_classes + 1, sizeof *c->first, err);
    return c->length && c->count && c->first ? 0 : -1;
}

/* From the number of sequences of each length up to longest, which is where
 * the next one of that length goes afterwards. */
static int count_classes(struct pp_classes *c, uint32_t longest,
                         uint32_t *count, struct pp_err *err)
{
    size_t n_classes = 0, at = 0;
    for (uint32_t k = 0; k <= longest; k++)
        n_classes += count[k] != 0;
    if (alloc_classes(c, n_classes, err) != 0)
        return -1;
    for (uint32_t k = longest + 1; k-- > 0;)
        if (count[k]) {
            c->length[c->n] = k;
            c->count[c->n] = count[k];
            c->first[c->n++] = at;
            count[k] = (uint32_t)at;
            at += c->count[c->n - 1];
        }
    c->first[c->n] = at;
    return 0;
}

static int init_counted(struct pp_classes *c, const uint32_t *lengths, size_t n,
                        uint32_t longest, struct pp_err *err)
{
    int rc = -1;
    uint32_t *count = pp_pack_alloc((size_t)longest + 1, sizeof *count, err);
    c->order = pp_pack_alloc(n, sizeof *c->order, err);
    if (count && c->order) {
        for (size_t i = 0; i < n; i++)
            count[lengths[i]]++;
        rc = count_classes(c, longest, count, err);
        for (size_t i = 0; i < n && rc == 0; i++)
            c->order[count[lengths[i]]++] = (uint32_t)i;
    }
    free(count);
    return rc;
}

static int init_sorted(struct pp_classes *c, const uint32_t *lengths, size_t n,
                       struct pp_err *err)
{
    c->order = pp_pack_order(lengths, n, false, err);
    if (!c->order)
        return -1;
    size_t n_classes = 0;
    for (size_t k = 0; k < n; k++)
        n_classes += k == 0 || lengths[c->order[k]] != lengths[c->order[k - 1]];
    if (alloc_classes(c, n_classes, err) != 0)
        return -1;
    for (size_t k = 0; k < n; k++) {
        uint32_t length = lengths[c->order[k]];
        if (k == 0 || length != c->length[c->n - 1]) {
            c->first[c->n] = k;
            c->length[c->n++] = length;
        }
        c->count[c->n - 1]++;
    }
    c->first[c->n] = n;
    return 0;
}

int pp_classes_init(struct pp_classes *c, const uint32_t *lengths, size_t n,
                    struct pp_err *err)
{
    uint32_t longest = 0;
    *c = (struct pp_classes){0};
    for (size_t i = 0; i < n; i++)
        longest = lengths[i] > longest ? lengths[i] : longest;
    int rc = longest < COUNTED ? init_counted(c, lengths, n, longest, err)
                               : init_sorted(c, lengths, n, err);
    if (rc != 0)
        pp_classes_finish(c);
    return rc;
}

void pp_classes_finish(struct pp_classes *c)
{
    free(c->length);
    free(c->count);
    free(c->first);
    free(c->order);
    memset(c, 0, sizeof *c);
}

int pp_first_fit_tree_init(struct pp_first_fit_tree *t, size_t n,
                           uint32_t capacity, struct pp_err *err)
{
    for (t->leaves = 64; t->leaves < n;)
        t->leaves *= 2;
    t->room = pp_pack_alloc(2 * t->leaves, sizeof *t->room, err);
    for (size_t i = 1; t->room && i < 2 * t->leaves; i++)
        t->room[i] = capacity + 1;
    return t->room ? 0 : -1;
}

static uint32_t larger_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

int pp_first_fit_tree_grow(struct pp_first_fit_tree *t, uint32_t capacity,
                           struct pp_err *err)
{
    struct pp_first_fit_tree big;
    if (pp_first_fit_tree_init(&big, 2 * t->leaves, capacity, err) != 0)
        return -1;
    memcpy(big.room + big.leaves, t->room + t->leaves,
           t->leaves * sizeof *t->room);
    for (size_t i = big.leaves - 1; i > 0; i--)
        big.room[i] = larger_of(big.room[2 * i], big.room[2 * i + 1]);
    free(t->room);
    *t = big;
    return 0;
}

void pp_first_fit_tree_set(struct pp_first_fit_tree *t, size_t bin,
                           uint32_t room)
{
    size_t i = bin + t->leaves;
    t->room[i] = room;
    while (i /= 2) {
        uint32_t top = larger_of(t->room[2 * i], t->room[2 * i + 1]);
        if (t->room[i] == top)
            break;
        t->room[i] = top;
    }
}

void pp_first_fit_tree_finish(struct pp_first_fit_tree *t)
{
    free(t->room);
    memset(t, 0, sizeof *t);
}
