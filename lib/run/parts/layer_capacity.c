/* SPDX-License-Identifier: MIT */
/* layer_capacity - the tokens that each expert keeps if it has a capacity
 * (Lepikhin et al., "GShard", ICLR 2021). The others do not reach the expert.
 *
 * Of a microbatch of T tokens that choose K experts each, one of E experts
 * keeps ceil(T K / E F): the first ones by document, then by position, or those
 * with the largest weights, the first ones among equals. These are the drop
 * policies "position" and "probs" of Megatron-LM. Padding does not count.
 *
 * A rank fills a table of all choices with its own, to which the other ranks
 * that divide the tokens add theirs. So each decides alike, wherever its tokens
 * are.
 *
 * A slice has the places that the earlier slices of its microbatch left, which
 * their saved routing tells. It cannot know the weights of later slices. */
#include "run/parts/layer_impl.h"

#include <math.h>
#include <string.h>

#include "comm/collective.h"

size_t pp_routing_kept(const struct pp_routing *r, size_t R)
{
    size_t low = 0;
    while (low < R) {
        size_t middle = low + (R - low) / 2;
        if (r->token[middle] < 0)
            R = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The choices of all ranks; those of a token follow each other. */
struct choices {
    size_t n;
    void *expert; /* (n) elements: its number plus 1, or minus that if it drops
                     the token */
    void *weight; /* (n) elements, or NULL */
    int32_t *order; /* (n) room, unless they are added up */
    bool wide;      /* elements are doubles */
};

static void set_value(const struct choices *c, void *to, size_t i, double x)
{
    if (c->wide)
        ((double *)to)[i] = x;
    else
        ((float *)to)[i] = (float)x;
}

static double value_of(const struct choices *c, const void *from, size_t i)
{
    return c->wide ? ((const double *)from)[i]
                   : (double)((const float *)from)[i];
}

static size_t expert_of(const struct choices *c, size_t i)
{
    return (size_t)value_of(c, c->expert, i) - 1;
}

static void drop(const struct choices *c, size_t i)
{
    set_value(c, c->expert, i, -value_of(c, c->expert, i));
}

/* The real rows that the router of this rank sees, one after the other. */
struct own_rows {
    const struct pp_layer *l;
    const struct pp_microbatch *mb;
    size_t sequence, row;
};

/* Finds the next row and its token among those of all ranks. Returns false if
 * there is none. */
static bool next_row(struct own_rows *o, size_t *row, size_t *token)
{
    const struct pp_microbatch *mb = o->mb;
    size_t first = pp_layer_routed(o->l, mb).begin;
    while (o->sequence < mb->n_sequences) {
        size_t i = o->sequence, begin = (size_t)mb->cu_seqlens_padded[i];
        const struct pp_token_range seen = pp_layer_routed_of(o->l, mb, i);
        if (o->row < seen.end - seen.begin) {
            *row = seen.begin + o->row++;
            *token = mb->n_whole
                         ? (size_t)mb->whole_cu[mb->sequence[i]] +
                               (size_t)mb->positions[first + *row]
                         : (size_t)mb->cu_seqlens[i] + first + *row - begin;
            return true;
        }
        o->sequence++;
        o->row = 0;
    }
    return false;
}

/* Collective. Fills the table. */
static int tell_choices(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_routing *r, const void *weight,
                        const struct choices *c, struct pp_err *err)
{
    size_t K = l->env->model->moe.top_k, row, token;
    size_t total = c->weight ? 2 * c->n : c->n;
    size_t bytes = total * l->env->kernels->element_bytes;
    struct own_rows own = {.l = l, .mb = mb};
    struct pp_collective sum = l->env->routers;
    memset(c->expert, 0, bytes);
    while (next_row(&own, &row, &token))
        for (size_t j = 0; j < K; j++) {
            size_t at = (size_t)r->row[row * K + j];
            set_value(c, c->expert, token * K + j, r->expert[at] + 1);
            if (c->weight)
                set_value(c, c->weight, token * K + j, value_of(c, weight, at));
        }
    if (pp_env_routers(l->env) == 1)
        return 0;
    sum.room = (char *)c->expert + bytes;
    sum.room_values = total;
    return pp_all_reduce(&sum, c->expert, total, err);
}

/* Adds to kept[e] the rows that expert e kept of earlier slices. */
static void count_kept(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct pp_layer_blocks *b, int32_t *kept)
{
    for (size_t q = 0; q < mb->n_before; q++) {
        const struct pp_slice_blocks *slice = &mb->before[q];
        void *saved[PP_MAX_SAVED];
        pp_layer_saved_before(l, slice, b, saved);
        const struct pp_routing r =
            pp_routing_at(l, slice->tokens, slice->room, saved[PP_S_ROUTING]);
        for (size_t i = 0; i < slice->tokens * l->env->model->moe.top_k; i++)
            if (r.row[i] >= 0 && r.token[r.row[i]] >= 0)
                kept[r.expert[r.row[i]]]++;
    }
}

/* kept (E) has what earlier slices kept. */
static void keep_first(const struct choices *c, size_t capacity, int32_t *kept)
{
    for (size_t i = 0; i < c->n; i++) {
        size_t e = expert_of(c, i);
        if ((size_t)kept[e] < capacity)
            kept[e]++;
        else
            drop(c, i);
    }
}

/* Reports whether an expert would rather keep choice i than k. */
static bool is_better(const struct choices *c, int32_t i, int32_t k)
{
    double a = value_of(c, c->weight, (size_t)i),
           b = value_of(c, c->weight, (size_t)k);
    return a > b || (!(a < b) && i < k);
}

/* Lets heap[at] sink until no one below it is worse. */
static void sink(const struct choices *c, int32_t *heap, size_t n, size_t at)
{
    for (size_t below; (below = 2 * at + 1) < n; at = below) {
        if (below + 1 < n && is_better(c, heap[below], heap[below + 1]))
            below++;
        if (!is_better(c, heap[at], heap[below]))
            return;
        int32_t i = heap[at];
        heap[at] = heap[below];
        heap[below] = i;
    }
}

/* Drops all but the best `most` of n choices of an expert. They are the heap,
 * with the worst at its top. */
static void drop_worst(const struct choices *c, int32_t *heap, size_t n,
                       size_t most)
{
    for (size_t at = most / 2; at-- > 0;)
        sink(c, heap, most, at);
    for (size_t i = most; i < n; i++) {
        bool is_in = is_better(c, heap[i], heap[0]);
        drop(c, (size_t)heap[is_in ? 0 : i]);
        if (!is_in)
            continue;
        heap[0] = heap[i];
        sink(c, heap, most, 0);
    }
}

/* first has room for E numbers. */
static void keep_largest(const struct choices *c, size_t capacity, size_t E,
                         int32_t *first)
{
    int32_t before = 0;
    memset(first, 0, E * sizeof *first);
    for (size_t i = 0; i < c->n; i++)
        first[expert_of(c, i)]++;
    for (size_t e = 0; e < E; e++)
        first[e] = before += first[e];
    for (size_t i = c->n; i-- > 0;)
        c->order[--first[expert_of(c, i)]] = (int32_t)i;
    for (size_t e = 0; e < E; e++) {
        size_t end = e + 1 < E ? (size_t)first[e + 1] : c->n;
        size_t n = end - (size_t)first[e];
        if (n > capacity)
            drop_worst(c, c->order + first[e], n, capacity);
    }
}

/* Writes the choices of this rank as route takes them. */
static void mark_own(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct choices *c, struct pp_routing *r)
{
    size_t K = l->env->model->moe.top_k, row, token;
    struct own_rows own = {.l = l, .mb = mb};
    while (next_row(&own, &row, &token))
        for (size_t j = 0; j < K; j++)
            r->row[row * K + j] =
                (int32_t)value_of(c, c->expert, token * K + j) - 1;
}

int pp_layer_capacity(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b, struct pp_routing *r,
                      const void *weight, int32_t *counts, void *room,
                      struct pp_err *err)
{
    const struct pp_moe *m = &l->env->model->moe;
    size_t T = (size_t)(mb->n_whole ? mb->whole_cu[mb->n_whole]
                                    : mb->cu_seqlens[mb->n_sequences]);
    size_t real = mb->real ? mb->real : T; /* in all slices */
    double share = (double)(real * m->top_k) / (double)m->n_experts;
    double kept = ceil(share * m->capacity);
    size_t capacity = kept < (double)real ? (size_t)kept : real;
    struct choices c = {.n = T * m->top_k,
                        .expert = room,
                        .wide =
                            l->env->kernels->element_bytes == sizeof(double)};
    if (m->keeps_largest)
        c.weight = pp_layer_at(l, room, c.n);
    c.order = pp_layer_at(l, room, c.weight ? 2 * c.n : c.n);
    if (T == 0)
        return 0;
    if (tell_choices(l, mb, r, weight, &c, err))
        return -1;
    if (m->keeps_largest) {
        keep_largest(&c, capacity, m->n_experts, counts);
    } else {
        memset(counts, 0, m->n_experts * sizeof *counts);
        count_kept(l, mb, b, counts);
        keep_first(&c, capacity, counts);
    }
    mark_own(l, mb, &c, r);
    return 0;
}
