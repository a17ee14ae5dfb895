/* SPDX-License-Identifier: MIT */
/* attention forward on the CPU: tiles of scores, online softmax. */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "attention_block.h"
#include "cpu.h"
#include "fastexp.h"

/* The running softmax of a block's rows. */
struct online {
    real max[BLOCK_ROWS];
    double sum[BLOCK_ROWS];
};

/* Scores become exp(score - running max); rows of o made with an older
 * maximum are scaled down. */
static void softmax_strip(struct online *w, const struct group *g,
                          const struct block *b, const struct strip *t)
{
    size_t HDV = g->s->HDV, row = strip_row(g, b, t);
    real *p = b->p;
    for (size_t i = 0; i < t->nq * g->heads; i++, row++, p += TILE_LD) {
        size_t lo, hi;
        key_range(g->s, t, i / g->heads, &lo, &hi);
        real max = g->products->max(p + lo, hi - lo);
        if (max > w->max[row]) {
            real by = fast_exp(w->max[row] - max);
            w->sum[row] *= (double)by;
            scale_row(b->o + row * b->ldo, HDV, by);
            w->max[row] = max;
        }
        w->sum[row] += (double)exp_row(g, p, t, lo, hi, w->max[row]);
    }
}

/* Writes a block's o and lse, at its first row. */
static void finish_block(const struct group *g, const struct online *w,
                         const struct block *b, real *o, real *lse)
{
    const struct pp_attention_shape *s = g->s;
    for (size_t r = 0; r < b->nq * g->heads; r++) {
        scale_row(b->o + r * b->ldo, s->HDV, (real)(1 / w->sum[r]));
        lse[r / g->heads * s->NH + r % g->heads] =
            (real)((double)w->max[r] + log(w->sum[r]));
    }
    spread(o, s->ldo, b->o, b->ldo, b->nq, g->heads, s->HDV);
}

/* Queries from q0 on; o and lse at the sequence's first row. */
static void forward_block(const struct group *g, struct block *b, real *o,
                          real *lse, const real *sinks)
{
    const struct pp_attention_shape *s = g->s;
    size_t end = b->q0 + b->nq, row = b->q0 - g->context;
    struct online w;
    for (size_t r = 0; r < b->nq * g->heads; r++) {
        w.max[r] = sinks ? sinks[r % g->heads] : -(real)INFINITY;
        w.sum[r] = sinks ? 1 : 0;
    }
    memset(b->o, 0, b->nq * g->heads * b->ldo * sizeof *b->o);
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
    finish_block(g, &w, b, o + row * s->ldo, lse + row * s->NH);
}

PP_ATTENTION_FWD(PP_KERNEL(attention_fwd))
{
    (void)stream;
    real *out = o, *l = lse;
    const real *sink = sinks;
    struct block b;
    block_at(s, scratch, &b);
    for (size_t i = 0; i < s->n_sequences; i++) {
        size_t row = (size_t)s->cu_padded[i];
        size_t n = (size_t)(s->cu[i + 1] - s->cu[i]);
        size_t end = (size_t)s->cu_padded[i + 1];
        clear_rows(out, s->ldo, s->NH * s->HDV, row + n, end);
        clear_rows(l, s->NH, s->NH, row + n, end);
        for (size_t h = 0; h < s->NH;) {
            struct group g = group_at(s, q, k, v, i, h);
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
    struct block b;
    return block_at(s, NULL, &b);
}
