/* SPDX-License-Identifier: MIT */
/* attention on the CPU: tiles of scores and an online softmax. Backward
 * computes the scores again, and the softmax from the log-sum-exp that forward
 * saved. */
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "attention_block.h"
#include "real.h"

/* The running softmax of a block's rows. */
struct block_softmax {
    real max[BLOCK_ROWS];
    double sum[BLOCK_ROWS];
};

/* Replaces scores with exp(score - running max). Scales rows of o down if they
 * were computed with an older maximum. */
static void softmax_strip(struct block_softmax *w, const struct head_group *g,
                          const struct query_block *b, const struct strip *t)
{
    size_t HDV = g->s->HDV, row = strip_row(g, b, t);
    real *p = b->p;
    for (size_t i = 0; i < t->nq * g->heads; i++, row++, p += TILE_LD) {
        size_t lo, hi;
        key_range(g, t, i / g->heads, &lo, &hi);
        /* A window may leave a row no key of the tile. */
        real max = lo < hi ? g->products->max(p + lo, hi - lo) : w->max[row];
        if (max > w->max[row]) {
            real by = fast_exp(w->max[row] - max);
            w->sum[row] *= (double)by;
            scale_row(b->o + row * b->ldo, HDV, by);
            w->max[row] = max;
        }
        w->sum[row] += (double)exp_row(g, p, t, lo, hi, w->max[row]);
    }
}

/* Writes o and lse of a block; both point to its first row. */
static void finish_block(const struct head_group *g,
                         const struct block_softmax *w,
                         const struct query_block *b, real *o, real *lse)
{
    const struct pp_attention_shape *s = g->s;
    for (size_t r = 0; r < b->nq * g->heads; r++) {
        bool any = w->sum[r] > 0;
        scale_row(b->o + r * b->ldo, s->HDV, any ? (real)(1 / w->sum[r]) : 0);
        lse[r / g->heads * s->NH + r % g->heads] =
            any ? (real)((double)w->max[r] + log(w->sum[r])) : -(real)INFINITY;
    }
    spread(o, s->ldo, b->o, b->ldo, b->nq, g->heads, s->HDV);
}

/* Sets the softmax of a block before its first key. o and lse point to its
 * first row. */
static void begin_block(const struct head_group *g, struct block_softmax *w,
                        const struct query_block *b, const real *o,
                        const real *lse, const real *sinks)
{
    const struct pp_attention_shape *s = g->s;
    size_t rows = b->nq * g->heads;
    for (size_t r = 0; r < rows; r++) {
        w->max[r] = s->merge ? lse[r / g->heads * s->NH + r % g->heads]
                    : sinks  ? sinks[r % g->heads]
                             : -(real)INFINITY;
        w->sum[r] = w->max[r] > -(real)INFINITY ? 1 : 0;
    }
    if (s->merge)
        gather(b->o, b->ldo, o, s->ldo, b->nq, g->heads, s->HDV);
    else
        memset(b->o, 0, rows * b->ldo * sizeof *b->o);
}

/* Computes a block of queries from q0 on; o and lse point to the first row of
 * the sequence. */
static void forward_block(const struct head_group *g, struct query_block *b,
                          real *o, real *lse, const real *sinks)
{
    const struct pp_attention_shape *s = g->s;
    size_t end = keys_end(g, b->q0 + b->nq - 1), row = b->q0 - g->context;
    struct block_softmax w;
    o += row * s->ldo;
    lse += row * s->NH;
    begin_block(g, &w, b, o, lse, sinks);
    gather_queries(g, b);
    for (size_t k0 = first_tile(g, b); k0 < end; k0 += TILE) {
        gather_keys(g, b, k0, smaller(TILE, end - k0));
        for (struct strip t = {b->q0, 0, k0, 0, 0}; next_strip(g, b, &t);) {
            scores(g, b, &t);
            softmax_strip(&w, g, b, &t);
            g->products->nn(t.nq * g->heads, s->HDV, t.hi - t.lo, b->p + t.lo,
                            TILE_LD, b->v + t.lo * b->ldo, b->ldo, true,
                            b->o + strip_row(g, b, &t) * b->ldo, b->ldo);
        }
    }
    finish_block(g, &w, b, o, lse);
}

PP_ATTENTION_FWD(PP_KERNEL(attention_fwd))
{
    (void)stream;
    real *out = o, *l = lse;
    const real *sink = sinks;
    struct query_block b;
    block_at(s, scratch, &b);
    for (size_t i = 0; i < s->n_sequences; i++) {
        size_t row = (size_t)s->cu_padded[i];
        size_t n = (size_t)(s->cu[i + 1] - s->cu[i]);
        size_t end = (size_t)s->cu_padded[i + 1];
        clear_rows(out, s->ldo, s->NH * s->HDV, row + n, end);
        clear_rows(l, s->NH, s->NH, row + n, end);
        for (size_t h = 0; h < s->NH;) {
            struct head_group g = group_at(s, q, k, v, i, h);
            for (b.q0 = g.context; b.q0 < g.length; b.q0 += g.block_q) {
                b.nq = smaller(g.block_q, g.length - b.q0);
                forward_block(&g, &b, out + row * s->ldo + h * s->HDV,
                              l + row * s->NH + h, sink ? sink + h : NULL);
            }
            h += g.heads;
        }
    }
    return 0;
}

PP_ATTENTION_SCRATCH(PP_KERNEL(attention_scratch))
{
    return pp_attention_cpu_scratch(s->NH, s->NKV, s->HDQK, s->HDV);
}

/* --- backward --- */

/* Gradients and inputs of a group, from the first row of the sequence on. */
struct group_gradient {
    real *dq, *dk, *dv;
    const real *dout, *o, *lse;
};

/* lse and the sum of dout o of each row of a block. */
struct row_stats {
    real lse[BLOCK_ROWS], d[BLOCK_ROWS];
};

/* x = p (x - d): the gradient of the scores from that of the softmax */
PP_CLONES static void score_gradient(real *restrict x, const real *restrict p,
                                     size_t n, real d)
{
    for (size_t i = 0; i < n; i++)
        x[i] = p[i] * (x[i] - d);
}

/* slope = 1 - (x / cap)^2, that of capped scores */
PP_CLONES static void cap_slopes(real *restrict slope, const real *restrict x,
                                 size_t n, real cap)
{
    for (size_t i = 0; i < n; i++)
        slope[i] = 1 - x[i] / cap * (x[i] / cap);
}

PP_CLONES static void multiply(real *restrict x, const real *restrict by,
                               size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by[i];
}

/* Replaces the scores with the softmax, and the gradient of the softmax with
 * the gradient of the scaled scores. */
static void gradient_strip(const struct row_stats *w,
                           const struct head_group *g,
                           const struct query_block *b, const struct strip *t)
{
    const struct pp_attention_shape *s = g->s;
    real *p = b->p, *dp = b->dp, slope[TILE];
    size_t row = strip_row(g, b, t), width = t->hi - t->lo;
    for (size_t r = 0; r < t->nq * g->heads; r++, row++) {
        size_t lo, hi, query = t->q0 + r / g->heads;
        key_range(g, t, r / g->heads, &lo, &hi);
        if (s->cap > 0)
            cap_slopes(slope, p + t->lo, width, (real)s->cap);
        exp_row(g, p, t, lo, hi, w->lse[row]);
        /* The softmax of a single score is 1, and its gradient is 0. o has
         * rounding errors, and a gradient from them would not be 0. */
        bool lone = pp_attention_is_lone(s, (int32_t)g->base, (int32_t)g->keys,
                                         (int32_t)query);
        real d = lone && lo < hi ? p[lo] * dp[lo] : w->d[row];
        score_gradient(dp + t->lo, p + t->lo, width, d);
        if (s->cap > 0)
            multiply(dp + t->lo, slope, width);
        p += TILE_LD;
        dp += TILE_LD;
    }
}

static void backward_strip(const struct row_stats *w,
                           const struct head_group *g,
                           const struct query_block *b, const struct strip *t,
                           const struct group_gradient *to)
{
    const struct pp_attention_shape *s = g->s;
    const struct pp_products *x = g->products;
    size_t rows = t->nq * g->heads, row = strip_row(g, b, t);
    size_t keys = t->hi - t->lo, at = (t->k0 + t->lo) * s->ldkv;
    const real *o = b->o + row * b->ldo;
    scores(g, b, t);
    x->nn(rows, keys, s->HDV, o, b->ldo, b->vt + t->lo, TILE_LD, false,
          b->dp + t->lo, TILE_LD);
    gradient_strip(w, g, b, t);
    x->tn(keys, s->HDV, rows, b->p + t->lo, TILE_LD, o, b->ldo, true,
          to->dv + at, s->ldkv);
    x->tn(keys, s->HDQK, rows, b->dp + t->lo, TILE_LD, b->q + row * b->ldq,
          b->ldq, true, to->dk + at, s->ldkv);
    x->nn(rows, s->HDQK, keys, b->dp + t->lo, TILE_LD, b->k + t->lo * b->ldq,
          b->ldq, true, b->dq + row * b->ldq, b->ldq);
}

PP_CLONES static void begin_rows(struct row_stats *w,
                                 const struct head_group *g,
                                 const struct query_block *b,
                                 const struct group_gradient *to)
{
    const struct pp_attention_shape *s = g->s;
    size_t row = b->q0 - g->context;
    for (size_t r = 0; r < b->nq * g->heads; r++) {
        size_t query = row + r / g->heads, head = r % g->heads;
        w->lse[r] = to->lse[query * s->NH + head];
        w->d[r] = (real)dot_rows(
            b->o + r * b->ldo, to->o + query * s->ldo + head * s->HDV, s->HDV);
    }
}

static void backward_block(const struct head_group *g, struct query_block *b,
                           const struct group_gradient *to)
{
    const struct pp_attention_shape *s = g->s;
    size_t end = keys_end(g, b->q0 + b->nq - 1), row = b->q0 - g->context;
    size_t rows = b->nq * g->heads;
    struct row_stats w;
    gather_queries(g, b);
    gather(b->o, b->ldo, to->dout + row * s->ldo, s->ldo, b->nq, g->heads,
           s->HDV);
    begin_rows(&w, g, b, to);
    memset(b->dq, 0, rows * b->ldq * sizeof *b->dq);
    for (size_t k0 = first_tile(g, b); k0 < end; k0 += TILE) {
        size_t n = smaller(TILE, end - k0);
        gather_keys(g, b, k0, n);
        transpose(b->vt, b->v, b->ldo, n, s->HDV);
        for (struct strip t = {b->q0, 0, k0, 0, 0}; next_strip(g, b, &t);)
            backward_strip(&w, g, b, &t, to);
    }
    for (size_t r = 0; r < rows; r++)
        scale_row(b->dq + r * b->ldq, s->HDQK, (real)s->scale);
    (s->merge ? spread_add : spread)(to->dq + row * s->ldq, s->ldq, b->dq,
                                     b->ldq, b->nq, g->heads, s->HDQK);
}

PP_ATTENTION_BWD(PP_KERNEL(attention_bwd))
{
    (void)stream;
    real *gq = dq, *gk = dk, *gv = dv;
    const real *gout = dout, *out = o, *l = lse;
    struct query_block b;
    block_at(s, scratch, &b);
    if (!s->merge) {
        clear_rows(gq, s->ldq, s->NH * s->HDQK, 0, s->N);
        clear_rows(gk, s->ldkv, s->NKV * s->HDQK, 0, pp_attention_key_rows(s));
        clear_rows(gv, s->ldkv, s->NKV * s->HDV, 0, pp_attention_key_rows(s));
    }
    for (size_t i = 0; i < s->n_sequences; i++)
        for (size_t h = 0; h < s->NH;) {
            size_t row = (size_t)s->cu_padded[i], kv = h / (s->NH / s->NKV);
            size_t key = (size_t)pp_attention_span(s, i).row;
            struct head_group g = group_at(s, q, k, v, i, h);
            struct group_gradient to = {
                .dq = gq + row * s->ldq + h * s->HDQK,
                .dk = gk + key * s->ldkv + kv * s->HDQK,
                .dv = gv + key * s->ldkv + kv * s->HDV,
                .dout = gout + row * s->ldo + h * s->HDV,
                .o = out + row * s->ldo + h * s->HDV,
                .lse = l + row * s->NH + h,
            };
            for (b.q0 = g.context; b.q0 < g.length; b.q0 += g.block_q) {
                b.nq = smaller(g.block_q, g.length - b.q0);
                backward_block(&g, &b, &to);
            }
            h += g.heads;
        }
    return 0;
}
