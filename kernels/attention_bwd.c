/* SPDX-License-Identifier: MIT */
/* attention backward on the CPU: the scores again, and the softmax from the
 * log-sum-exp that forward saved. */
#include <string.h>

#include "attention.h"
#include "attention_block.h"
#include "cpu.h"
#include "reduce.h"

/* Gradients of a group, at the sequence's first row. */
struct group_gradient {
    real *dq, *dk, *dv;
    const real *dout, *o, *lse;
};

/* Of a block's rows: lse, and the sum of dout o. */
struct rows {
    real lse[BLOCK_ROWS], d[BLOCK_ROWS];
};

/* x = p (x - d), the gradient of the scores from that of p */
PP_CLONES static void score_gradient(real *restrict x, const real *restrict p,
                                     size_t n, real d)
{
    for (size_t i = 0; i < n; i++)
        x[i] = p[i] * (x[i] - d);
}

/* Scores become the softmax, the gradient of the softmax becomes that of the
 * scaled scores. */
static void gradient_strip(const struct rows *w, const struct group *g,
                           const struct block *b, const struct strip *t)
{
    const struct pp_attention_shape *s = g->s;
    real *p = b->p, *dp = b->dp;
    size_t row = strip_row(g, b, t);
    for (size_t r = 0; r < t->nq * g->heads; r++, row++) {
        size_t lo, hi, query = t->q0 + r / g->heads;
        key_range(s, t, r / g->heads, &lo, &hi);
        exp_row(g, p, t, lo, hi, w->lse[row]);
        /* Of a single score the sum is known without the rounding of o: where
         * the softmax is 1 the gradient is 0, as it should be. */
        real d = first_key(s, query) == query && lo < hi ? p[lo] * dp[lo]
                                                         : w->d[row];
        score_gradient(dp + t->lo, p + t->lo, t->hi - t->lo, d);
        p += TILE_LD;
        dp += TILE_LD;
    }
}

static void backward_strip(const struct rows *w, const struct group *g,
                           const struct block *b, const struct strip *t,
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

PP_CLONES static void begin_rows(struct rows *w, const struct group *g,
                                 const struct block *b,
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

static void backward_block(const struct group *g, struct block *b,
                           const struct group_gradient *to)
{
    const struct pp_attention_shape *s = g->s;
    size_t end = b->q0 + b->nq, row = b->q0 - g->context;
    size_t rows = b->nq * g->heads;
    struct rows w;
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
    spread(to->dq + row * s->ldq, s->ldq, b->dq, b->ldq, b->nq, g->heads,
           s->HDQK);
}

PP_ATTENTION_BWD(PP_KERNEL(attention_bwd))
{
    (void)stream;
    real *gq = dq, *gk = dk, *gv = dv;
    const real *gout = dout, *out = o, *l = lse;
    struct block b;
    block_at(s, scratch, &b);
    clear_rows(gq, s->ldq, s->NH * s->HDQK, 0, s->N);
    clear_rows(gk, s->ldkv, s->NKV * s->HDQK, 0, s->N + s->context);
    clear_rows(gv, s->ldkv, s->NKV * s->HDV, 0, s->N + s->context);
    for (size_t i = 0; i < s->n_sequences; i++)
        for (size_t h = 0; h < s->NH;) {
            size_t row = (size_t)s->cu_padded[i], kv = h / (s->NH / s->NKV);
            size_t key = key_row(s, i);
            struct group g = group_at(s, q, k, v, i, h);
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
