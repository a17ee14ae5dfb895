/* SPDX-License-Identifier: MIT */
/* ring - attention of a context-parallel rank, which has two chunks of
 * each sequence: keys and values go round the ranks (Liu et al., "Ring
 * Attention with Blockwise Transformers for Near-Infinite Context", 2023).
 *
 * In step i a rank has the keys of the rank i before it, and computes while it
 * passes them on. The kernel joins the result of a step with the results before
 * it. In backward the gradients of the keys follow them round, one step behind,
 * and after the last step arrive where they belong: each is a sum in the order
 * of the ring. */
#include "run/parts/attention/attention.h"

#include "comm/collective.h"

struct kv_ring {
    struct pp_attention_shape shape;
    int ranks, own; /* the number of ranks, and that of this one */
    size_t n;       /* elements of the keys and values of a rank */
    size_t keys;    /* width of the keys of a row */
    void *tiles;    /* the scratch of the kernel */
    /* The scratch after it, (tokens, width) each; entry i % 2 is that of step
     * i. */
    void *kv[2], *dkv[2];
    void *sum; /* gradients of the step before, from the rank before */
};

static struct kv_ring ring_of(const struct pp_call *c,
                              const struct pp_attention_shape *a, void *tiles)
{
    size_t width = pp_kv_columns(c).width, n = c->T * width;
    struct pp_attention_shape shape = *a;
    shape.ldkv = width;
    shape.keys = c->mb->keys.of;
    shape.NK = c->T;
    shape.share = 2;
    shape.one_chunk = true;
    void *at = pp_at(c, tiles, c->k->attention_scratch(a));
    return (struct kv_ring){
        .shape = shape,
        .ranks = c->env->context.group.n,
        .own = c->env->context.group.index,
        .n = n,
        .keys = pp_kv_columns(c).keys,
        .tiles = tiles,
        .kv = {at, pp_at(c, at, n)},
        .dkv = {pp_at(c, at, 2 * n), pp_at(c, at, 3 * n)},
        .sum = pp_at(c, at, 4 * n),
    };
}

/* Takes the keys and values of this rank for step 0. */
static void take_own(const struct pp_call *c, const struct kv_ring *r)
{
    struct pp_kv_columns w = pp_kv_columns(c);
    PP_RUN(c, copy, r->kv[0], pp_at(c, c->s[PP_S_QKV], w.at), c->T, w.width,
           w.width, w.row);
}

/* Begins to pass the keys and values of a step on, except in the last one. */
static void pass_keys(const struct pp_call *c, const struct kv_ring *r,
                      int step)
{
    if (step + 1 < r->ranks)
        PP_TRY(c, pp_pass_begin(&c->env->context, r->kv[(step + 1) % 2],
                                r->kv[step % 2], r->n, c->err));
}

/* Waits until at most `keep` of what is passed is under way. */
static void await_passed(const struct pp_call *c, int keep)
{
    PP_TRY(c, pp_pass_wait(&c->env->context, keep, c->err));
}

/* Returns the number of the chunks of keys of a step to which a query attends,
 * and the shapes of their calls. */
static int visits(const struct kv_ring *r, int step,
                  struct pp_attention_shape of[2])
{
    int from = (r->own + r->ranks - step) % r->ranks;
    for (int half = 0; half < 2; half++) {
        of[half] = r->shape;
        of[half].half = half;
        of[half].chunk = half ? 2 * r->ranks - 1 - from : from;
    }
    return from < r->own ? 1 : 2;
}

static void step_fwd(const struct pp_call *c, const struct kv_ring *r, int step)
{
    struct pp_attention_shape of[2];
    const void *k = r->kv[step % 2], *v = pp_at(c, k, r->keys);
    int n = visits(r, step, of);
    for (int i = 0; i < n; i++) {
        of[i].merge = step > 0 || i > 0;
        PP_RUN(c, attention_fwd, c->s[PP_S_ATTN], c->s[PP_S_LSE],
               c->s[PP_S_QKV], k, v, c->w[PP_P_SINKS], &of[i], r->tiles);
    }
}

static void ring_fwd(const struct pp_call *c,
                     const struct pp_attention_shape *a, void *tiles)
{
    const struct kv_ring r = ring_of(c, a, tiles);
    take_own(c, &r);
    for (int step = 0; step < r.ranks; step++) {
        pass_keys(c, &r, step);
        step_fwd(c, &r, step);
        await_passed(c, 0);
    }
}

/* Computes the part of a step of the gradients. */
static void step_bwd(const struct pp_call *c, const struct kv_ring *r, int step,
                     const void *dattn)
{
    struct pp_attention_shape of[2];
    const void *k = r->kv[step % 2], *v = pp_at(c, k, r->keys);
    void *dk = r->dkv[step % 2], *dv = pp_at(c, dk, r->keys);
    int n = visits(r, step, of);
    PP_RUN(c, zero, dk, r->n);
    for (int i = 0; i < n; i++) {
        of[i].merge = true;
        PP_RUN(c, attention_bwd, c->s[PP_S_DQKV], dk, dv, dattn, c->s[PP_S_QKV],
               k, v, c->s[PP_S_ATTN], c->s[PP_S_LSE], &of[i], r->tiles);
    }
}

/* Adds what the ranks before this one have computed for the keys of a step, and
 * begins to pass the sum on. */
static void pass_gradients(const struct pp_call *c, const struct kv_ring *r,
                           int step)
{
    void *dkv = r->dkv[step % 2];
    if (step > 0) {
        await_passed(c, step + 1 < r->ranks); /* the keys of this step pass */
        PP_RUN(c, add, dkv, r->sum, dkv, r->n);
    }
    await_passed(c, 0);
    PP_TRY(c, pp_pass_begin(&c->env->context, r->sum, dkv, r->n, c->err));
}

static void ring_bwd(const struct pp_call *c,
                     const struct pp_attention_shape *a, const void *dattn,
                     void *tiles)
{
    const struct kv_ring r = ring_of(c, a, tiles);
    struct pp_kv_columns w = pp_kv_columns(c);
    take_own(c, &r);
    PP_RUN(c, zero, c->s[PP_S_DQKV], c->T * w.row);
    for (int step = 0; step < r.ranks; step++) {
        pass_keys(c, &r, step);
        step_bwd(c, &r, step, dattn);
        pass_gradients(c, &r, step);
    }
    await_passed(c, 0);
    PP_RUN(c, copy, pp_at(c, c->s[PP_S_DQKV], w.at), r.sum, c->T, w.width,
           w.row, w.width);
}

const struct pp_attention_exchange pp_exchange_ring = {ring_fwd, ring_bwd};
