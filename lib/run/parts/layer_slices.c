/* SPDX-License-Identifier: MIT */
/* layer_slices - attention of a slice of a microbatch.
 *
 * A sequence may continue from earlier slices, whose QKV holds its keys and
 * values: they are gathered in front of those of the slice. Their gradients go
 * back the same way and are added to DQKV of the earlier slices. The backward
 * of those comes later and adds its own part. */
#include "run/parts/layer_impl.h"

#include "kernel_sizes.h"

/* The scratch after that of the kernel. */
struct buffers {
    void *kv, *dkv; /* (context + tokens, width) */
    void *sum;      /* (tokens, width) */
};

static struct buffers buffers(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_attention_shape *a, void *tiles)
{
    size_t n = (mb->context + mb->tokens) * pp_kv_columns(l->env->model).width;
    struct buffers b;
    b.kv = pp_layer_at(l, tiles, l->env->kernels->attention_scratch(a));
    b.dkv = pp_layer_at(l, b.kv, n);
    b.sum = pp_layer_at(l, b.dkv, n);
    return b;
}

/* Returns how many of the last `left` rows of the context are in the slice.
 * They are its last rows. */
static size_t rows_in(const struct pp_slice_blocks *slice, size_t left)
{
    return left < slice->tokens ? left : slice->tokens;
}

static int gather(const struct pp_layer *l, const struct pp_microbatch *mb,
                  const struct pp_layer_blocks *b, void *const *s, void *kv,
                  struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct pp_kv_columns w = pp_kv_columns(l->env->model);
    size_t left = mb->context, n;
    for (size_t q = mb->n_before; q-- > 0 && left > 0; left -= n) {
        void *from[PP_MAX_SAVED];
        pp_layer_saved_before(l, &mb->before[q], b, from);
        n = rows_in(&mb->before[q], left);
        size_t first = mb->before[q].tokens - n;
        PP_LAYER_RUN(
            k->copy(pp_layer_at(l, kv, (left - n) * w.width),
                    pp_layer_at(l, from[PP_S_QKV], first * w.row + w.at), n,
                    w.width, w.width, w.row, l->env->stream));
    }
    PP_LAYER_RUN(k->copy(pp_layer_at(l, kv, mb->context * w.width),
                         pp_layer_at(l, s[PP_S_QKV], w.at), mb->tokens, w.width,
                         w.width, w.row, l->env->stream));
    return 0;
}

/* Adds n rows of gradients to the rows of DQKV from first on. */
static int add_rows(const struct pp_layer *l, void *dqkv, size_t first,
                    const void *dkv, size_t n, void *sum, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    struct pp_kv_columns w = pp_kv_columns(l->env->model);
    void *to = pp_layer_at(l, dqkv, first * w.row + w.at);
    PP_LAYER_RUN(k->copy(sum, to, n, w.width, w.width, w.row, l->env->stream));
    PP_LAYER_RUN(k->add(sum, sum, dkv, n * w.width, l->env->stream));
    PP_LAYER_RUN(k->copy(to, sum, n, w.width, w.row, w.width, l->env->stream));
    return 0;
}

static int scatter(const struct pp_layer *l, const struct pp_microbatch *mb,
                   const struct pp_layer_blocks *b, void *const *s,
                   const struct buffers *at, struct pp_err *err)
{
    struct pp_kv_columns w = pp_kv_columns(l->env->model);
    size_t left = mb->context, n;
    for (size_t q = mb->n_before; q-- > 0 && left > 0; left -= n) {
        void *to[PP_MAX_SAVED];
        pp_layer_saved_before(l, &mb->before[q], b, to);
        n = rows_in(&mb->before[q], left);
        if (add_rows(l, to[PP_S_DQKV], mb->before[q].tokens - n,
                     pp_layer_at(l, at->dkv, (left - n) * w.width), n, at->sum,
                     err))
            return -1;
    }
    return add_rows(l, s[PP_S_DQKV], 0,
                    pp_layer_at(l, at->dkv, mb->context * w.width), mb->tokens,
                    at->sum, err);
}

/* Zeroes DQKV of all slices, before the backward of the last slice, which comes
 * first. */
static int clear(const struct pp_layer *l, const struct pp_microbatch *mb,
                 const struct pp_layer_blocks *b, void *const *s,
                 struct pp_err *err)
{
    size_t row = pp_kv_columns(l->env->model).row;
    PP_LAYER_RUN(
        l->env->kernels->zero(s[PP_S_DQKV], mb->tokens * row, l->env->stream));
    for (size_t q = 0; q < mb->n_before; q++) {
        void *to[PP_MAX_SAVED];
        pp_layer_saved_before(l, &mb->before[q], b, to);
        PP_LAYER_RUN(l->env->kernels->zero(
            to[PP_S_DQKV], mb->before[q].tokens * row, l->env->stream));
    }
    return 0;
}

/* Returns the shape of the slice, with keys and values in their own buffer. */
static struct pp_attention_shape gathered(const struct pp_layer *l,
                                          const struct pp_microbatch *mb,
                                          const struct pp_attention_shape *a)
{
    struct pp_attention_shape g = *a;
    g.ldkv = pp_kv_columns(l->env->model).width;
    g.keys = mb->keys;
    g.NK = mb->key_rows;
    g.share = 1;
    return g;
}

static int slices_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_attention_shape *a,
                      const struct pp_layer_blocks *b, void *const *s,
                      void *tiles, struct pp_err *err)
{
    struct buffers at = buffers(l, mb, a, tiles);
    struct pp_attention_shape g = gathered(l, mb, a);
    const void *v = pp_layer_at(l, at.kv, pp_kv_columns(l->env->model).keys);
    if (gather(l, mb, b, s, at.kv, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->attention_fwd(
        s[PP_S_ATTN], s[PP_S_LSE], s[PP_S_QKV], at.kv, v, l->w[PP_P_SINKS], &g,
        tiles, l->env->stream));
    return 0;
}

static int slices_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_attention_shape *a, const void *dattn,
                      const struct pp_layer_blocks *b, void *const *s,
                      void *tiles, struct pp_err *err)
{
    struct buffers at = buffers(l, mb, a, tiles);
    struct pp_attention_shape g = gathered(l, mb, a);
    const void *v = pp_layer_at(l, at.kv, pp_kv_columns(l->env->model).keys);
    if ((!mb->continues && clear(l, mb, b, s, err)) ||
        gather(l, mb, b, s, at.kv, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->attention_bwd(
        s[PP_S_DQKV], at.dkv,
        pp_layer_at(l, at.dkv, pp_kv_columns(l->env->model).keys), dattn,
        s[PP_S_QKV], at.kv, v, s[PP_S_ATTN], s[PP_S_LSE], &g, tiles,
        l->env->stream));
    return scatter(l, mb, b, s, &at, err);
}

const struct pp_attention_exchange pp_exchange_slices = {slices_fwd,
                                                         slices_bwd};
