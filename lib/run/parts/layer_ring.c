/* SPDX-License-Identifier: MIT */
/* layer_ring - attention of a context-parallel rank, which has two chunks of
 * each sequence: keys and values go round the ranks (Liu et al., "Ring
 * Attention with Blockwise Transformers for Near-Infinite Context", 2023).
 *
 * In step i a rank has the keys of the rank i before it, and computes while it
 * passes them on. The kernel joins the result of a step with those before it.
 * In backward the gradients of the keys follow them round, one step behind, and
 * after the last step arrive where they belong: each is a sum in the order of
 * the ring. */
#include "run/parts/layer_impl.h"

#include "comm/collective.h"

struct kv_ring {
    const struct pp_layer *l;
    struct pp_attention_shape shape;
    size_t n;    /* elements of the keys and values of a rank */
    size_t keys; /* width of the keys of a row */
    /* The scratch after that of the kernel, (tokens, width) each; entry i % 2
     * is that of step i. */
    void *kv[2], *dkv[2];
    void *sum; /* gradients of the step before, from the rank before */
};

static struct kv_ring ring_of(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_attention_shape *a, void *tiles)
{
    size_t width = pp_kv_columns(l->env->model).width, n = mb->tokens * width;
    struct pp_attention_shape shape = *a;
    shape.ldkv = width;
    shape.keys = mb->keys;
    shape.NK = mb->tokens;
    shape.share = 2;
    shape.one_chunk = true;
    void *at = pp_layer_at(l, tiles, l->env->kernels->attention_scratch(a));
    return (struct kv_ring){
        .l = l,
        .shape = shape,
        .n = n,
        .keys = pp_kv_columns(l->env->model).keys,
        .kv = {at, pp_layer_at(l, at, n)},
        .dkv = {pp_layer_at(l, at, 2 * n), pp_layer_at(l, at, 3 * n)},
        .sum = pp_layer_at(l, at, 4 * n),
    };
}

/* Takes the keys and values of this rank for step 0. */
static int take_own(const struct kv_ring *r, void *const *s, struct pp_err *err)
{
    const struct pp_layer *l = r->l;
    struct pp_kv_columns w = pp_kv_columns(l->env->model);
    PP_LAYER_RUN(l->env->kernels->copy(
        r->kv[0], pp_layer_at(l, s[PP_S_QKV], w.at), r->shape.N, w.width,
        w.width, w.row, l->env->stream));
    return 0;
}

/* Begins to pass the keys and values of a step on, except in the last one. */
static int pass_keys(const struct kv_ring *r, int step, struct pp_err *err)
{
    const struct pp_collective *c = &r->l->env->context;
    return step + 1 == c->group.n ? 0
                                  : pp_pass_begin(c, r->kv[(step + 1) % 2],
                                                  r->kv[step % 2], r->n, err);
}

/* Returns the number of the chunks of keys of a step to which a query attends,
 * and the shapes of their calls. */
static int visits(const struct kv_ring *r, int step,
                  struct pp_attention_shape of[2])
{
    int ranks = r->l->env->context.group.n,
        own = r->l->env->context.group.index;
    int from = (own + ranks - step) % ranks;
    for (int half = 0; half < 2; half++) {
        of[half] = r->shape;
        of[half].half = half;
        of[half].chunk = half ? 2 * ranks - 1 - from : from;
    }
    return from < own ? 1 : 2;
}

static int ring_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_attention_shape *a,
                    const struct pp_layer_blocks *b, void *const *s,
                    void *tiles, struct pp_err *err)
{
    (void)b;
    struct kv_ring r = ring_of(l, mb, a, tiles);
    if (take_own(&r, s, err))
        return -1;
    for (int step = 0; step < l->env->context.group.n; step++) {
        struct pp_attention_shape of[2];
        const void *k = r.kv[step % 2];
        const void *v = pp_layer_at(l, k, r.keys);
        int n = visits(&r, step, of);
        if (pass_keys(&r, step, err))
            return -1;
        for (int i = 0; i < n; i++) {
            of[i].merge = step > 0 || i > 0;
            PP_LAYER_RUN(l->env->kernels->attention_fwd(
                s[PP_S_ATTN], s[PP_S_LSE], s[PP_S_QKV], k, v, l->w[PP_P_SINKS],
                &of[i], tiles, l->env->stream));
        }
        if (pp_pass_wait(&l->env->context, 0, err))
            return -1;
    }
    return 0;
}

/* Computes the part of a step of the gradients. */
static int step_bwd(const struct kv_ring *r, int step, const void *dattn,
                    void *const *s, void *tiles, struct pp_err *err)
{
    const struct pp_layer *l = r->l;
    const void *k = r->kv[step % 2];
    const void *v = pp_layer_at(l, k, r->keys);
    void *dk = r->dkv[step % 2];
    struct pp_attention_shape of[2];
    int n = visits(r, step, of);
    PP_LAYER_RUN(l->env->kernels->zero(dk, r->n, l->env->stream));
    for (int i = 0; i < n; i++) {
        of[i].merge = true;
        PP_LAYER_RUN(l->env->kernels->attention_bwd(
            s[PP_S_DQKV], dk, pp_layer_at(l, dk, r->keys), dattn, s[PP_S_QKV],
            k, v, s[PP_S_ATTN], s[PP_S_LSE], &of[i], tiles, l->env->stream));
    }
    return 0;
}

/* Adds what the ranks before this one have computed for the keys of a step, and
 * begins to pass the sum on. */
static int pass_gradients(const struct kv_ring *r, int step, struct pp_err *err)
{
    const struct pp_layer *l = r->l;
    const struct pp_collective *c = &l->env->context;
    void *dkv = r->dkv[step % 2];
    int passing = step + 1 < c->group.n; /* the keys of this step */
    if (step > 0) {
        if (pp_pass_wait(c, passing, err))
            return -1;
        PP_LAYER_RUN(
            l->env->kernels->add(dkv, r->sum, dkv, r->n, l->env->stream));
    }
    return pp_pass_wait(c, 0, err) || pp_pass_begin(c, r->sum, dkv, r->n, err)
               ? -1
               : 0;
}

static int ring_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_attention_shape *a, const void *dattn,
                    const struct pp_layer_blocks *b, void *const *s,
                    void *tiles, struct pp_err *err)
{
    (void)b;
    struct kv_ring r = ring_of(l, mb, a, tiles);
    struct pp_kv_columns w = pp_kv_columns(l->env->model);
    if (take_own(&r, s, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->zero(s[PP_S_DQKV], mb->tokens * w.row,
                                       l->env->stream));
    for (int step = 0; step < l->env->context.group.n; step++)
        if (pass_keys(&r, step, err) ||
            step_bwd(&r, step, dattn, s, tiles, err) ||
            pass_gradients(&r, step, err))
            return -1;
    if (pp_pass_wait(&l->env->context, 0, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->copy(pp_layer_at(l, s[PP_S_DQKV], w.at),
                                       r.sum, mb->tokens, w.width, w.row,
                                       w.width, l->env->stream));
    return 0;
}

const struct pp_attention_exchange pp_exchange_ring = {ring_fwd, ring_bwd};
