/* SPDX-License-Identifier: MIT */
/* layer_gather - attention of a context-parallel rank, which has two chunks of
 * each sequence: all ranks gather the keys and values of all (Llama Team, "The
 * Llama 3 Herd of Models", 2024, section 3.3.2).
 *
 * Gathered rows follow each other by rank. They are put in the order of the
 * sequences, so that a query adds up its keys in the order of one rank. The
 * gradients go back the same way, and are added in the order of the ranks. */
#include "run/parts/layer_impl.h"

#include "comm/collective.h"

/* The scratch after that of the kernel, each (key_rows, width). */
struct gathered {
    void *by_rank; /* keys and values, then their gradients */
    void *kv;      /* in order of the sequences; then room for sums */
    void *dkv;     /* in order of the sequences */
};

static struct gathered gathered_at(const struct pp_layer *l,
                                   const struct pp_microbatch *mb,
                                   const struct pp_attention_shape *a,
                                   void *tiles)
{
    size_t n = mb->key_rows * pp_kv_columns(l->env->model).width;
    struct gathered g;
    g.by_rank = pp_layer_at(l, tiles, l->env->kernels->attention_scratch(a));
    g.kv = pp_layer_at(l, g.by_rank, n);
    g.dkv = pp_layer_at(l, g.kv, n);
    return g;
}

/* Returns the keys and values, or gradients, of this rank among those of all.
 */
static void *own_rows(const struct pp_layer *l, const struct pp_microbatch *mb,
                      void *by_rank)
{
    size_t first = (size_t)l->env->context.group.index * mb->tokens;
    return pp_layer_at(l, by_rank, first * pp_kv_columns(l->env->model).width);
}

static int gather_all(const struct pp_layer *l, const struct pp_microbatch *mb,
                      void *const *s, const struct gathered *g,
                      struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct pp_kv_columns w = pp_kv_columns(l->env->model);
    PP_LAYER_RUN(k->copy(own_rows(l, mb, g->by_rank),
                         pp_layer_at(l, s[PP_S_QKV], w.at), mb->tokens, w.width,
                         w.width, w.row, l->env->stream));
    if (pp_all_gather(&l->env->context, g->by_rank, NULL,
                      mb->key_rows * w.width, err))
        return -1;
    PP_LAYER_RUN(k->embedding_fwd(g->kv, mb->order, g->by_rank, mb->key_rows,
                                  w.width, l->env->stream));
    return 0;
}

static struct pp_attention_shape
shape_of_parts(const struct pp_layer *l, const struct pp_microbatch *mb,
               const struct pp_attention_shape *a)
{
    struct pp_attention_shape p = *a;
    p.ldkv = pp_kv_columns(l->env->model).width;
    p.keys = mb->keys;
    p.NK = mb->key_rows;
    p.share = 2;
    return p;
}

static int gather_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_attention_shape *a,
                      const struct pp_layer_blocks *b, void *const *s,
                      void *tiles, struct pp_err *err)
{
    (void)b;
    struct gathered g = gathered_at(l, mb, a, tiles);
    struct pp_attention_shape p = shape_of_parts(l, mb, a);
    if (gather_all(l, mb, s, &g, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->attention_fwd(
        s[PP_S_ATTN], s[PP_S_LSE], s[PP_S_QKV], g.kv,
        pp_layer_at(l, g.kv, pp_kv_columns(l->env->model).keys),
        l->w[PP_P_SINKS], &p, tiles, l->env->stream));
    return 0;
}

/* Adds the gradients of all ranks for the keys and values of this one. */
static int reduce(const struct pp_layer *l, const struct pp_microbatch *mb,
                  void *const *s, const struct gathered *g, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct pp_kv_columns w = pp_kv_columns(l->env->model);
    size_t n = mb->key_rows * w.width;
    struct pp_collective c = l->env->context;
    c.room = g->kv;
    c.room_values = n;
    PP_LAYER_RUN(k->scatter(g->by_rank, g->dkv, mb->order, mb->key_rows,
                            w.width, l->env->stream));
    if (n > 0 && pp_reduce_scatter(&c, g->by_rank, NULL, n, err))
        return -1;
    PP_LAYER_RUN(k->copy(pp_layer_at(l, s[PP_S_DQKV], w.at),
                         own_rows(l, mb, g->by_rank), mb->tokens, w.width,
                         w.row, w.width, l->env->stream));
    return 0;
}

static int gather_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_attention_shape *a, const void *dattn,
                      const struct pp_layer_blocks *b, void *const *s,
                      void *tiles, struct pp_err *err)
{
    (void)b;
    struct gathered g = gathered_at(l, mb, a, tiles);
    struct pp_attention_shape p = shape_of_parts(l, mb, a);
    if (gather_all(l, mb, s, &g, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->attention_bwd(
        s[PP_S_DQKV], g.dkv,
        pp_layer_at(l, g.dkv, pp_kv_columns(l->env->model).keys), dattn,
        s[PP_S_QKV], g.kv,
        pp_layer_at(l, g.kv, pp_kv_columns(l->env->model).keys), s[PP_S_ATTN],
        s[PP_S_LSE], &p, tiles, l->env->stream));
    return reduce(l, mb, s, &g, err);
}

const struct pp_attention_exchange pp_exchange_gather = {gather_fwd,
                                                         gather_bwd};
