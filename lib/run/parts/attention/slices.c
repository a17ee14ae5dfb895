/* SPDX-License-Identifier: MIT */
/* slices - attention of a slice of a microbatch.
 *
 * A sequence may continue from earlier slices, whose QKV holds its keys and
 * values: they are gathered in front of the slice's. Their gradients go
 * back the same way and are added up in DKEYS of the earlier slices. The
 * backward of the earlier slices comes later and adds its own part. */
#include "run/parts/attention/attention.h"

#include "kernel_sizes.h"

/* The scratch after that of the kernel. */
struct buffers {
    void *kv, *dkv; /* (context + tokens, width) */
};

static struct buffers buffers(const struct pp_call *c,
                              const struct pp_attention_shape *a, void *tiles)
{
    size_t n = (c->mb->slice.context + c->T) * pp_kv_columns(c).width;
    struct buffers b;
    b.kv = pp_at(c, tiles, c->k->attention_scratch(a));
    b.dkv = pp_at(c, b.kv, n);
    return b;
}

/* Returns how many of the last `left` rows of the context are in the slice.
 * They are its last rows. */
static size_t rows_in(const struct pp_slice_blocks *slice, size_t left)
{
    return left < slice->tokens ? left : slice->tokens;
}

static void gather(const struct pp_call *c, void *kv)
{
    const struct pp_microbatch *mb = c->mb;
    struct pp_kv_columns w = pp_kv_columns(c);
    size_t left = mb->slice.context, n;
    for (size_t q = mb->slice.n_before; q-- > 0 && left > 0; left -= n) {
        void *from[PP_MAX_SAVED];
        pp_layer_saved_before(c, &mb->slice.before[q], from);
        n = rows_in(&mb->slice.before[q], left);
        size_t first = mb->slice.before[q].tokens - n;
        PP_RUN(c, copy, pp_at(c, kv, (left - n) * w.width),
               pp_at(c, from[PP_S_QKV], first * w.row + w.at), n, w.width,
               w.width, w.row);
    }
    PP_RUN(c, copy, pp_at(c, kv, mb->slice.context * w.width),
           pp_at(c, c->s[PP_S_QKV], w.at), c->T, w.width, w.width, w.row);
}

static void scatter(const struct pp_call *c, const struct buffers *at)
{
    const struct pp_microbatch *mb = c->mb;
    struct pp_kv_columns w = pp_kv_columns(c);
    size_t left = mb->slice.context, n;
    for (size_t q = mb->slice.n_before; q-- > 0 && left > 0; left -= n) {
        void *saved[PP_MAX_SAVED];
        pp_layer_saved_before(c, &mb->slice.before[q], saved);
        n = rows_in(&mb->slice.before[q], left);
        void *to = pp_at(c, saved[PP_S_DKEYS],
                         (mb->slice.before[q].tokens - n) * w.width);
        PP_RUN(c, add, to, to, pp_at(c, at->dkv, (left - n) * w.width),
               n * w.width);
    }
    void *own = pp_at(c, at->dkv, mb->slice.context * w.width);
    if (mb->slice.continues)
        PP_RUN(c, add, own, c->s[PP_S_DKEYS], own, c->T * w.width);
    PP_RUN(c, copy, pp_at(c, c->s[PP_S_DQKV], w.at), own, c->T, w.width, w.row,
           w.width);
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

/* Returns the shape of the slice, with keys and values in their own buffer. */
static struct pp_attention_shape gathered(const struct pp_call *c,
                                          const struct pp_attention_shape *a)
{
    struct pp_attention_shape g = *a;
    g.ldkv = pp_kv_columns(c).width;
    g.keys = c->mb->keys.of;
    g.NK = c->mb->keys.n;
    g.share = 1;
    return g;
}

static void slices_fwd(const struct pp_call *c,
                       const struct pp_attention_shape *a, void *tiles)
{
    struct buffers at = buffers(c, a, tiles);
    struct pp_attention_shape g = gathered(c, a);
    const void *v = pp_at(c, at.kv, pp_kv_columns(c).keys);
    gather(c, at.kv);
    PP_RUN(c, attention_fwd, c->s[PP_S_ATTN], c->s[PP_S_LSE], c->s[PP_S_QKV],
           at.kv, v, c->w[PP_P_SINKS], &g, tiles);
}

static void slices_bwd(const struct pp_call *c,
                       const struct pp_attention_shape *a, const void *dattn,
                       void *tiles)
{
    struct buffers at = buffers(c, a, tiles);
    struct pp_attention_shape g = gathered(c, a);
    size_t keys = pp_kv_columns(c).keys;
    if (!c->mb->slice.continues)
        clear(c);
    gather(c, at.kv);
    PP_RUN(c, attention_bwd, c->s[PP_S_DQKV], at.dkv, pp_at(c, at.dkv, keys),
           dattn, c->s[PP_S_QKV], at.kv, pp_at(c, at.kv, keys), c->s[PP_S_ATTN],
           c->s[PP_S_LSE], &g, tiles);
    scatter(c, &at);
}

const struct pp_attention_exchange pp_exchange_slices = {slices_fwd,
                                                         slices_bwd};
