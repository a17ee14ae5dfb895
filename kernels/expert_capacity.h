/* SPDX-License-Identifier: MIT */
/* expert_capacity - the choices that experts with a capacity keep, on the CPU.
 * A part of experts.c. */
#ifndef PP_KERNELS_EXPERT_CAPACITY_H
#define PP_KERNELS_EXPERT_CAPACITY_H

#include "experts.h"
#include "real.h"

/* The real tokens of a rank, one after the other. */
struct numbered {
    const struct pp_token_numbers *of;
    size_t sequence, next; /* the next token of the sequence */
};

/* Finds the next of N tokens, and its number. Returns false if there is none.
 */
static bool next_token(struct numbered *o, size_t N, size_t *t, size_t *number)
{
    const struct pp_token_numbers *s = o->of;
    for (; o->sequence < s->tokens.n; o->sequence++, o->next = 0) {
        size_t i = o->sequence;
        const struct pp_token_range at = pp_real_range(&s->tokens, i, N);
        if (o->next == at.end - at.begin)
            continue;
        *t = at.begin + o->next++;
        size_t place = s->tokens.first + *t;
        *number =
            s->of ? (size_t)s->whole_cu[s->of[i]] + (size_t)s->position[place]
                  : (size_t)s->tokens.cu[i] + place -
                        (size_t)s->tokens.cu_padded[i];
        return true;
    }
    return false;
}

static PP_TELL_CHOICES(tell_choices)
{
    (void)stream;
    struct numbered o = {token, 0, 0};
    const real *w = weight;
    real *to = chosen, *weights = table;
    size_t t, number;
    while (next_token(&o, N, &t, &number))
        for (size_t j = 0; j < K; j++) {
            int32_t row = r->row[t * K + j];
            to[number * K + j] = (real)(r->expert[row] + 1);
            if (weights)
                weights[number * K + j] = w[row];
        }
    return 0;
}

static PP_MARK_KEPT(mark_kept)
{
    (void)stream;
    struct numbered o = {token, 0, 0};
    size_t t, number;
    for (size_t i = 0; i < N * K; i++)
        row[i] = -1;
    while (next_token(&o, N, &t, &number))
        memcpy(row + t * K, kept + number * K, K * sizeof *row);
    return 0;
}

static PP_ADD_KEPT(add_kept)
{
    (void)stream;
    (void)E;
    for (size_t i = 0; i < N * K; i++)
        if (r->row[i] >= 0 && r->token[r->row[i]] >= 0)
            counts[r->expert[r->row[i]]]++;
    return 0;
}

static void keep_first(int32_t *kept, int32_t *before, const real *chosen,
                       size_t n, size_t capacity)
{
    for (size_t i = 0; i < n; i++) {
        int32_t e = (int32_t)chosen[i] - 1;
        if (e < 0)
            continue;
        bool keeps = (size_t)before[e] < capacity;
        before[e] += keeps;
        kept[i] = keeps ? e : -2 - e;
    }
}

/* Reports whether an expert would rather keep choice i than k. */
static bool is_better(const real *weight, int32_t i, int32_t k)
{
    real a = weight[i], b = weight[k];
    return a > b || (!(a < b) && i < k);
}

/* Lets heap[at] sink until no one below it is worse. */
static void sink(const real *weight, int32_t *heap, size_t n, size_t at)
{
    for (size_t below; (below = 2 * at + 1) < n; at = below) {
        if (below + 1 < n && is_better(weight, heap[below], heap[below + 1]))
            below++;
        if (!is_better(weight, heap[at], heap[below]))
            return;
        int32_t i = heap[at];
        heap[at] = heap[below];
        heap[below] = i;
    }
}

/* Drops all but the best `most` of n choices of an expert. They are the heap,
 * with the worst at its top. */
static void drop_worst(int32_t *kept, const real *weight, int32_t *heap,
                       size_t n, size_t most)
{
    for (size_t at = most / 2; at-- > 0;)
        sink(weight, heap, most, at);
    for (size_t i = most; i < n; i++) {
        bool is_in = is_better(weight, heap[i], heap[0]);
        size_t worst = is_in ? 0 : i;
        kept[heap[worst]] = -2 - kept[heap[worst]];
        if (!is_in)
            continue;
        heap[0] = heap[i];
        sink(weight, heap, most, 0);
    }
}

/* first has room for E numbers. */
static void keep_largest(int32_t *kept, int32_t *first, int32_t *order,
                         const real *chosen, const real *weight, size_t n,
                         size_t E, size_t capacity)
{
    int32_t end = 0;
    memset(first, 0, E * sizeof *first);
    for (size_t i = 0; i < n; i++)
        if (chosen[i] > 0)
            first[(size_t)chosen[i] - 1]++;
    for (size_t e = 0; e < E; e++)
        first[e] = end += first[e];
    for (size_t i = n; i-- > 0;) {
        if (!(chosen[i] > 0))
            continue;
        kept[i] = (int32_t)chosen[i] - 1;
        order[--first[kept[i]]] = (int32_t)i;
    }
    for (size_t e = 0; e < E; e++) {
        size_t of = (size_t)((e + 1 < E ? first[e + 1] : end) - first[e]);
        if (of > capacity)
            drop_worst(kept, weight, order + first[e], of, capacity);
    }
}

static PP_KEEP(keep)
{
    (void)stream;
    if (table)
        keep_largest(kept, before, order, chosen, table, n, E, capacity);
    else
        keep_first(kept, before, chosen, n, capacity);
    return 0;
}

#endif
