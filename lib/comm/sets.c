/* SPDX-License-Identifier: MIT */
#include "comm/sets.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/vec.h"

static int by_rank(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

void pp_comm_sets_add_pair(struct pp_comm_sets *s, int from, int to,
                           enum pp_direction direction)
{
    const struct pp_comm_set set = {direction, s->ranks.n, 2, 0};
    PP_VEC_PUSH(&s->ranks, from);
    PP_VEC_PUSH(&s->ranks, to);
    PP_VEC_PUSH(s, set);
}

void pp_comm_sets_add_group(struct pp_comm_sets *s, const struct pp_group *g,
                            enum pp_direction direction)
{
    const struct pp_comm_set set = {direction, s->ranks.n, g->n, 0};
    if (g->n < 2 || g->index != 0)
        return;
    for (int i = 0; i < g->n; i++)
        PP_VEC_PUSH(&s->ranks, pp_group_rank(g, i));
    qsort(s->ranks.items + set.first, (size_t)g->n, sizeof(int), by_rank);
    PP_VEC_PUSH(s, set);
}

/* --- the order --- */

/* The sets of each rank, as indices of items. */
struct members {
    size_t *at, *end; /* (size) where the sets of a rank are in `sets` */
    size_t *sets;
};

static struct members open_members(const struct pp_comm_sets *s, int size)
{
    size_t n = (size_t)size, sum = 0;
    struct members m = {pp_calloc(n, sizeof *m.at), pp_calloc(n, sizeof *m.end),
                        pp_calloc(s->ranks.n, sizeof *m.sets)};
    for (size_t i = 0; i < s->ranks.n; i++)
        m.end[s->ranks.items[i]]++;
    for (size_t r = 0; r < n; r++) {
        sum += m.end[r];
        m.at[r] = m.end[r] = sum - m.end[r];
    }
    return m;
}

static void close_members(struct members *m)
{
    free(m->at);
    free(m->end);
    free(m->sets);
}

static void join_set(struct members *m, const struct pp_comm_sets *s, size_t i)
{
    const int *ranks = pp_comm_set_ranks(s, &s->items[i]);
    for (int k = 0; k < s->items[i].n; k++)
        m->sets[m->end[ranks[k]]++] = i;
}

/* Returns whether a set has all ranks of another, which is not larger. */
static bool has_all(const struct pp_comm_sets *s, const struct pp_comm_set *set,
                    const struct pp_comm_set *of)
{
    const int *a = pp_comm_set_ranks(s, set), *b = pp_comm_set_ranks(s, of);
    int i = 0, k = 0;
    if (set->direction != of->direction)
        return false;
    if (of->direction < PP_DIRECTION_SYNC)
        return a[0] == b[0] && a[1] == b[1];
    for (; i < set->n && k < of->n; i++)
        k += a[i] == b[k];
    return k == of->n;
}

static bool is_covered(const struct members *m, const struct pp_comm_sets *s,
                       const struct pp_comm_set *set)
{
    int rank = pp_comm_set_ranks(s, set)[0];
    for (size_t i = m->at[rank]; i < m->end[rank]; i++)
        if (has_all(s, &s->items[m->sets[i]], set))
            return true;
    return false;
}

/* Returns the first step in which no rank of a set connects another one. */
static int free_step(const struct members *m, const struct pp_comm_sets *s,
                     const struct pp_comm_set *set)
{
    const int *ranks = pp_comm_set_ranks(s, set);
    bool is_free = false;
    int step = -1;
    while (!is_free) {
        step++;
        is_free = true;
        for (int k = 0; k < set->n && is_free; k++)
            for (size_t i = m->at[ranks[k]]; i < m->end[ranks[k]]; i++)
                is_free &= s->items[m->sets[i]].step != step;
    }
    return step;
}

/* A set with what it is sorted by. */
struct ranked {
    struct pp_comm_set set;
    const int *ranks;
};

/* Larger sets first, so that others may lie in them. */
static int by_size(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->set.n != y->set.n)
        return x->set.n > y->set.n ? -1 : 1;
    if (x->set.direction != y->set.direction)
        return x->set.direction < y->set.direction ? -1 : 1;
    for (int i = 0; i < x->set.n; i++)
        if (x->ranks[i] != y->ranks[i])
            return x->ranks[i] < y->ranks[i] ? -1 : 1;
    return 0;
}

static int by_step(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->set.step != y->set.step ? (x->set.step > y->set.step ? 1 : -1)
                                      : by_size(a, b);
}

static void sort_sets(struct pp_comm_sets *s,
                      int (*by)(const void *a, const void *b))
{
    struct ranked *all = pp_calloc(s->n, sizeof *all);
    for (size_t i = 0; i < s->n; i++)
        all[i] =
            (struct ranked){s->items[i], pp_comm_set_ranks(s, &s->items[i])};
    if (s->n > 0)
        qsort(all, s->n, sizeof *all, by);
    for (size_t i = 0; i < s->n; i++)
        s->items[i] = all[i].set;
    free(all);
}

void pp_comm_sets_order(struct pp_comm_sets *s, int size)
{
    sort_sets(s, by_size);
    struct members m = open_members(s, size);
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct pp_comm_set set = s->items[i];
        if (is_covered(&m, s, &set))
            continue;
        set.step = free_step(&m, s, &set);
        s->items[kept] = set;
        join_set(&m, s, kept++);
    }
    s->n = kept;
    close_members(&m);
    sort_sets(s, by_step);
}

int pp_comm_sets_most(const struct pp_comm_sets *s, int size)
{
    int *n = pp_calloc((size_t)size, sizeof *n), most = 0;
    for (size_t i = 0; i < s->n; i++)
        for (int k = 0; k < s->items[i].n; k++) {
            int *of = &n[pp_comm_set_ranks(s, &s->items[i])[k]];
            most = ++*of > most ? *of : most;
        }
    free(n);
    return most;
}

int pp_comm_sets_blocks(int most_sets, int processors)
{
    int blocks = PP_COMM_BLOCKS;
    if (most_sets * blocks + PP_COMM_LEFT_PROCESSORS <= processors)
        return blocks;
    while (blocks > 1 && blocks * most_sets > processors / 2)
        blocks /= 2;
    return blocks;
}

size_t pp_comm_sets_bytes(const struct pp_comm_sets *s, int rank, int blocks)
{
    enum { SIMPLE = 4 << 20, LL = 512 << 10, LL128 = 4800 << 10 };
    size_t senders = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct pp_comm_set *set = &s->items[i];
        const int *ranks = pp_comm_set_ranks(s, set);
        bool pair = set->direction < PP_DIRECTION_SYNC; /* sender, receiver */
        for (int k = pair; k < set->n; k++)
            if (ranks[k] == rank)
                senders += (size_t)set->n - 1;
    }
    return senders * (size_t)blocks * (SIMPLE + LL + LL128);
}

void pp_comm_sets_finish(struct pp_comm_sets *s)
{
    free(s->items);
    free(s->ranks.items);
    *s = (struct pp_comm_sets){0};
}
