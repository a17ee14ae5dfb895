/* SPDX-License-Identifier: MIT */
/* layer_capacity - the tokens that each expert keeps if it has a capacity
 * (Lepikhin et al., "GShard", ICLR 2021). The others do not reach the expert.
 *
 * Of a microbatch of T tokens that choose K experts each, one of E experts
 * keeps the first ceil(T K / E F): by document, then by position, as
 * Megatron-LM's drop policy "position" does. Padding does not count.
 *
 * A context-parallel rank has the parts of every document in their order, so it
 * keeps its first rows of each expert. To find out how many, the ranks add up a
 * table of all choices, to which each adds its own.
 *
 * A slice has the places that the earlier slices of its microbatch left, which
 * their saved routing tells. */
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

/* The choices of all ranks: of token t, choice j is expert at(t K + j) - 1. */
struct choices {
    void *at;
    bool wide; /* doubles, not floats */
};

static void set_choice(const struct choices *c, size_t i, int32_t expert)
{
    if (c->wide)
        ((double *)c->at)[i] = expert + 1;
    else
        ((float *)c->at)[i] = (float)(expert + 1);
}

static size_t choice(const struct choices *c, size_t i)
{
    double x = c->wide ? ((const double *)c->at)[i]
                       : (double)((const float *)c->at)[i];
    return (size_t)x - 1;
}

/* The real rows of this rank, one after the other. */
struct own_rows {
    const struct pp_microbatch *mb;
    size_t sequence, row;
};

/* Finds the next row and its token among those of all ranks, which ascends.
 * Returns false if there is none. */
static bool next_row(struct own_rows *o, size_t *row, size_t *token)
{
    const struct pp_microbatch *mb = o->mb;
    while (o->sequence < mb->n_sequences) {
        size_t i = o->sequence, first = (size_t)mb->cu_seqlens_padded[i];
        size_t n = (size_t)(mb->cu_seqlens[i + 1] - mb->cu_seqlens[i]);
        if (o->row < n) {
            *row = first + o->row++;
            *token = (size_t)mb->whole_cu[mb->sequence[i]] +
                     (size_t)mb->positions[*row];
            return true;
        }
        o->sequence++;
        o->row = 0;
    }
    return false;
}

/* Collective. Fills the table, (T, K). */
static int tell_choices(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_routing *r, const struct choices *c,
                        size_t T, struct pp_err *err)
{
    size_t K = l->env->model->moe.top_k, row, token, total = T * K;
    size_t bytes = l->env->kernels->element_bytes;
    struct own_rows own = {.mb = mb};
    struct pp_collective sum = l->env->context;
    memset(c->at, 0, total * bytes);
    while (next_row(&own, &row, &token))
        for (size_t j = 0; j < K; j++)
            set_choice(c, token * K + j, r->expert[r->row[row * K + j]]);
    sum.room = (char *)c->at + total * bytes;
    sum.room_values = total;
    return pp_all_reduce(&sum, c->at, total, err);
}

/* Counts in most[e] the rows of this rank among the first `capacity` of expert
 * e. seen has room for E numbers. */
static void count_own(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct choices *c, size_t T, size_t capacity,
                      int32_t *most, int32_t *seen)
{
    size_t E = l->env->model->moe.n_experts, K = l->env->model->moe.top_k;
    size_t row, token = T;
    struct own_rows own = {.mb = mb};
    bool more = next_row(&own, &row, &token);
    memset(most, 0, E * sizeof *most);
    memset(seen, 0, E * sizeof *seen);
    for (size_t t = 0; t < T; t++) {
        bool is_own = more && token == t;
        for (size_t j = 0; j < K; j++) {
            size_t e = choice(c, t * K + j);
            bool kept = (size_t)seen[e] < capacity;
            seen[e] += kept;
            most[e] += kept && is_own;
        }
        if (is_own)
            more = next_row(&own, &row, &token);
    }
}

/* Takes from most[e] the rows that expert e kept of an earlier slice. */
static void take_kept(const struct pp_layer *l,
                      const struct pp_slice_blocks *slice,
                      const struct pp_layer_blocks *b, int32_t *most)
{
    void *saved[PP_MAX_SAVED];
    pp_layer_saved_before(l, slice, b, saved);
    const struct pp_routing r =
        pp_routing_at(l, slice->tokens, slice->room, saved[PP_S_ROUTING]);
    for (size_t i = 0; i < slice->tokens * l->env->model->moe.top_k; i++)
        if (r.row[i] >= 0 && r.token[r.row[i]] >= 0)
            most[r.expert[r.row[i]]]--;
}

/* Returns the tokens of the microbatch on all ranks, in all slices. */
static size_t real_tokens(const struct pp_microbatch *mb)
{
    return mb->real      ? mb->real
           : mb->n_whole ? (size_t)mb->whole_cu[mb->n_whole]
                         : (size_t)mb->cu_seqlens[mb->n_sequences];
}

int pp_layer_capacity(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b,
                      const struct pp_routing *r, int32_t *most, void *room,
                      struct pp_err *err)
{
    const struct pp_moe *m = &l->env->model->moe;
    size_t T = real_tokens(mb);
    double share = (double)(T * m->top_k) / (double)m->n_experts;
    double kept = ceil(share * m->capacity);
    size_t capacity = kept < (double)T ? (size_t)kept : T;
    const struct choices c = {room,
                              l->env->kernels->element_bytes == sizeof(double)};
    if (pp_env_cp(l->env) == 1) {
        for (size_t e = 0; e < m->n_experts; e++)
            most[e] = (int32_t)capacity;
        for (size_t q = 0; q < mb->n_before; q++)
            take_kept(l, &mb->before[q], b, most);
        return 0;
    }
    if (T == 0)
        return 0;
    if (tell_choices(l, mb, r, &c, T, err))
        return -1;
    count_own(l, mb, &c, T, capacity, most, most + m->n_experts);
    return 0;
}
