/* SPDX-License-Identifier: MIT */
/* gather - attention of a slice of a microbatch, and of a context-parallel
 * rank, which has two chunks of each sequence or of the part of it in a slice
 * (Llama Team, "The Llama 3 Herd of Models", 2024, section 3.3.2).
 *
 * A sequence may continue from earlier slices, whose QKV holds its keys and
 * values: they come in front of the slice's. Context-parallel ranks then gather
 * these rows of all. Gathered rows follow each other by rank; they are put in
 * the order of the sequences, so that a query adds up its keys in the order of
 * one rank. Gradients go back the same way. They are added in the order of the
 * ranks, and then added up in DKEYS of the earlier slices, whose backward comes
 * later and adds its own part. */
#include "run/parts/attention/attention.h"

#include "comm/collective.h"

/* The scratch behind the kernel's. Rows have keys and values, or their
 * gradients. */
struct gathered {
    size_t own;    /* rows of this rank, also of earlier slices */
    void *by_rank; /* (key_rows) by rank; only for several ranks */
    void *kv;  /* (key_rows) in order of the sequences; then room for sums */
    void *dkv; /* (key_rows) the gradients, likewise */
};

static bool is_divided(const struct pp_call *c)
{
    return c->mb->keys.order != NULL;
}

/* Returns the rows that this rank has of a context. */
static size_t context_of(const struct pp_call *c)
{
    size_t ranks = is_divided(c) ? (size_t)c->env->context.group.n : 1;
    return c->mb->slice.context / ranks;
}

static struct gathered gathered_at(const struct pp_call *c,
                                   const struct pp_attention_shape *a,
                                   void *tiles)
{
    size_t n = c->mb->keys.n * pp_kv_columns(c).width;
    struct gathered g = {.own = context_of(c) + c->T};
    g.by_rank = pp_at(c, tiles, c->k->attention_scratch(a));
    g.kv = is_divided(c) ? pp_at(c, g.by_rank, n) : g.by_rank;
    g.dkv = pp_at(c, g.kv, n);
    return g;
}

/* Returns the rows of this rank among the rows of all ranks. */
static void *own_rows(const struct pp_call *c, const struct gathered *g,
                      void *by_rank)
{
    size_t before = is_divided(c) ? (size_t)c->env->context.group.index : 0;
    return pp_at(c, by_rank, before * g->own * pp_kv_columns(c).width);
}

/* Returns how many of the last `left` rows of the context are in a slice. They
 * are its last rows. */
static size_t rows_in(const struct pp_slice_blocks *slice, size_t left)
{
    return left < slice->tokens ? left : slice->tokens;
}

/* Copies the keys and values of this rank, of earlier slices and of its own. */
static void take_own(const struct pp_call *c, void *kv)
{
    const struct pp_microbatch *mb = c->mb;
    struct pp_kv_columns w = pp_kv_columns(c);
    size_t context = context_of(c), left = context, n;
    for (size_t q = mb->slice.n_before; q-- > 0 && left > 0; left -= n) {
        void *from[PP_MAX_SAVED];
        pp_layer_saved_before(c, &mb->slice.before[q], from);
        n = rows_in(&mb->slice.before[q], left);
        size_t first = mb->slice.before[q].tokens - n;
        PP_RUN(c, copy, pp_at(c, kv, (left - n) * w.width),
               pp_at(c, from[PP_S_QKV], first * w.row + w.at), n, w.width,
               w.width, w.row);
    }
    PP_RUN(c, copy, pp_at(c, kv, context * w.width),
           pp_at(c, c->s[PP_S_QKV], w.at), c->T, w.width, w.width, w.row);
}

static void gather_all(const struct pp_call *c, const struct gathered *g)
{
    size_t rows = c->mb->keys.n, width = pp_kv_columns(c).width;
    take_own(c, own_rows(c, g, g->by_rank));
    if (!is_divided(c))
        return;
    PP_TRY(c, pp_all_gather(&c->env->context, g->by_rank, NULL, rows * width,
                            c->err));
    PP_RUN(c, embedding_fwd, g->kv, c->mb->keys.order, g->by_rank, rows, width);
}

/* Returns the shape of the rows, with keys and values in their own buffer. */
static struct pp_attention_shape shape_of(const struct pp_call *c,
                                          const struct pp_attention_shape *a)
{
    struct pp_attention_shape p = *a;
    p.ldkv = pp_kv_columns(c).width;
    p.keys = c->mb->keys.of;
    p.NK = c->mb->keys.n;
    p.share = is_divided(c) ? 2 : 1;
    return p;
}

static void gather_fwd(const struct pp_call *c,
                       const struct pp_attention_shape *a, void *tiles)
{
    struct gathered g = gathered_at(c, a, tiles);
    struct pp_attention_shape p = shape_of(c, a);
    const void *v = pp_at(c, g.kv, pp_kv_columns(c).keys);
    gather_all(c, &g);
    PP_RUN(c, attention_fwd, c->s[PP_S_ATTN], c->s[PP_S_LSE], c->s[PP_S_QKV],
           g.kv, v, c->w[PP_P_SINKS], &p, tiles);
}

/* Adds the gradients of all ranks for the keys and values of this one. Returns
 * its rows. */
static void *reduce(const struct pp_call *c, const struct gathered *g)
{
    size_t rows = c->mb->keys.n, width = pp_kv_columns(c).width;
    struct pp_collective of = c->env->context;
    if (!is_divided(c))
        return g->dkv;
    of.room = g->kv;
    of.room_values = rows * width;
    PP_RUN(c, scatter, g->by_rank, g->dkv, c->mb->keys.order, rows, width);
    if (rows > 0)
        PP_TRY(c,
               pp_reduce_scatter(&of, g->by_rank, NULL, rows * width, c->err));
    return own_rows(c, g, g->by_rank);
}

/* Zeroes DKEYS of all earlier slices, before the backward of the last slice,
 * which comes first. */
static void clear(const struct pp_call *c)
{
    size_t width = pp_kv_columns(c).width;
    for (size_t q = 0; q < c->mb->slice.n_before; q++) {
        void *to[PP_MAX_SAVED];
        pp_layer_saved_before(c, &c->mb->slice.before[q], to);
        PP_RUN(c, zero, to[PP_S_DKEYS], c->mb->slice.before[q].tokens * width);
    }
}

/* Adds the gradients of earlier slices up there, and completes DQKV. */
static void give_back(const struct pp_call *c, void *dkv)
{
    const struct pp_microbatch *mb = c->mb;
    struct pp_kv_columns w = pp_kv_columns(c);
    size_t context = context_of(c), left = context, n;
    for (size_t q = mb->slice.n_before; q-- > 0 && left > 0; left -= n) {
        void *saved[PP_MAX_SAVED];
        pp_layer_saved_before(c, &mb->slice.before[q], saved);
        n = rows_in(&mb->slice.before[q], left);
        void *to = pp_at(c, saved[PP_S_DKEYS],
                         (mb->slice.before[q].tokens - n) * w.width);
        PP_RUN(c, add, to, to, pp_at(c, dkv, (left - n) * w.width),
               n * w.width);
    }
    void *own = pp_at(c, dkv, context * w.width);
    if (mb->slice.continues)
        PP_RUN(c, add, own, c->s[PP_S_DKEYS], own, c->T * w.width);
    PP_RUN(c, copy, pp_at(c, c->s[PP_S_DQKV], w.at), own, c->T, w.width, w.row,
           w.width);
}

static void gather_bwd(const struct pp_call *c,
                       const struct pp_attention_shape *a, const void *dattn,
                       void *tiles)
{
    struct gathered g = gathered_at(c, a, tiles);
    struct pp_attention_shape p = shape_of(c, a);
    size_t keys = pp_kv_columns(c).keys;
    if (!c->mb->slice.continues)
        clear(c);
    gather_all(c, &g);
    PP_RUN(c, attention_bwd, c->s[PP_S_DQKV], g.dkv, pp_at(c, g.dkv, keys),
           dattn, c->s[PP_S_QKV], g.kv, pp_at(c, g.kv, keys), c->s[PP_S_ATTN],
           c->s[PP_S_LSE], &p, tiles);
    give_back(c, reduce(c, &g));
}

const struct pp_attention_exchange pp_exchange_gather = {gather_fwd,
                                                         gather_bwd};
