/* SPDX-License-Identifier: MIT */
/* gather - attention of a context-parallel rank, which has two chunks of
 * each sequence: all ranks gather the keys and values of all (Llama Team, "The
 * Llama 3 Herd of Models", 2024, section 3.3.2).
 *
 * Gathered rows follow each other by rank. They are put in the order of the
 * sequences, so that a query adds up its keys in the order of one rank. The
 * gradients go back the same way, and are added in the order of the ranks. */
#include "run/parts/attention/attention.h"

#include "comm/collective.h"

/* The scratch after that of the kernel, each (key_rows, width). */
struct gathered {
    void *by_rank; /* keys and values, then their gradients */
    void *kv;      /* in order of the sequences; then room for sums */
    void *dkv;     /* in order of the sequences */
};

static struct gathered gathered_at(const struct pp_call *c,
                                   const struct pp_attention_shape *a,
                                   void *tiles)
{
    size_t n = c->mb->keys.n * pp_kv_columns(c).width;
    struct gathered g;
    g.by_rank = pp_at(c, tiles, c->k->attention_scratch(a));
    g.kv = pp_at(c, g.by_rank, n);
    g.dkv = pp_at(c, g.kv, n);
    return g;
}

/* Returns the keys and values, or gradients, of this rank among all ranks'.
 */
static void *own_rows(const struct pp_call *c, void *by_rank)
{
    size_t first = (size_t)c->env->context.group.index * c->T;
    return pp_at(c, by_rank, first * pp_kv_columns(c).width);
}

static void gather_all(const struct pp_call *c, const struct gathered *g)
{
    struct pp_kv_columns w = pp_kv_columns(c);
    size_t rows = c->mb->keys.n;
    PP_RUN(c, copy, own_rows(c, g->by_rank), pp_at(c, c->s[PP_S_QKV], w.at),
           c->T, w.width, w.width, w.row);
    PP_TRY(c, pp_all_gather(&c->env->context, g->by_rank, NULL, rows * w.width,
                            c->err));
    PP_RUN(c, embedding_fwd, g->kv, c->mb->keys.order, g->by_rank, rows,
           w.width);
}

static struct pp_attention_shape
shape_of_parts(const struct pp_call *c, const struct pp_attention_shape *a)
{
    struct pp_attention_shape p = *a;
    p.ldkv = pp_kv_columns(c).width;
    p.keys = c->mb->keys.of;
    p.NK = c->mb->keys.n;
    p.share = 2;
    return p;
}

static void gather_fwd(const struct pp_call *c,
                       const struct pp_attention_shape *a, void *tiles)
{
    struct gathered g = gathered_at(c, a, tiles);
    struct pp_attention_shape p = shape_of_parts(c, a);
    const void *v = pp_at(c, g.kv, pp_kv_columns(c).keys);
    gather_all(c, &g);
    PP_RUN(c, attention_fwd, c->s[PP_S_ATTN], c->s[PP_S_LSE], c->s[PP_S_QKV],
           g.kv, v, c->w[PP_P_SINKS], &p, tiles);
}

/* Adds the gradients of all ranks for the keys and values of this one. */
static void reduce(const struct pp_call *c, const struct gathered *g)
{
    struct pp_kv_columns w = pp_kv_columns(c);
    size_t rows = c->mb->keys.n, n = rows * w.width;
    struct pp_collective of = c->env->context;
    of.room = g->kv;
    of.room_values = n;
    PP_RUN(c, scatter, g->by_rank, g->dkv, c->mb->keys.order, rows, w.width);
    if (n > 0)
        PP_TRY(c, pp_reduce_scatter(&of, g->by_rank, NULL, n, c->err));
    PP_RUN(c, copy, pp_at(c, c->s[PP_S_DQKV], w.at), own_rows(c, g->by_rank),
           c->T, w.width, w.row, w.width);
}

static void gather_bwd(const struct pp_call *c,
                       const struct pp_attention_shape *a, const void *dattn,
                       void *tiles)
{
    struct gathered g = gathered_at(c, a, tiles);
    struct pp_attention_shape p = shape_of_parts(c, a);
    size_t keys = pp_kv_columns(c).keys;
    gather_all(c, &g);
    PP_RUN(c, attention_bwd, c->s[PP_S_DQKV], g.dkv, pp_at(c, g.dkv, keys),
           dattn, c->s[PP_S_QKV], g.kv, pp_at(c, g.kv, keys), c->s[PP_S_ATTN],
           c->s[PP_S_LSE], &p, tiles);
    reduce(c, &g);
}

const struct pp_attention_exchange pp_exchange_gather = {gather_fwd,
                                                         gather_bwd};
