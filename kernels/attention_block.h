/* SPDX-License-Identifier: MIT */
/* attention_block - how attention on the CPU divides a sequence into blocks,
 * tiles and strips, and where each lies in scratch.
 *
 * Query heads that share a key head are rows of one product. A block of queries
 * visits the keys tile by tile, and a tile strip by strip, so that the scores
 * of a strip stay in cache. Each block copies the keys and values of a tile
 * once, and transposes them if a product needs that. It skips tiles and strips
 * to which no query attends. Sizes depend only on the position in the sequence
 * and on the heads, so that a sequence has the same values wherever it is
 * packed. */
#ifndef PP_KERNELS_ATTENTION_BLOCK_H
#define PP_KERNELS_ATTENTION_BLOCK_H

#include <assert.h>
#include <string.h>

#include "attention_span.h"
#include "kernel_sizes.h"
#include "products.h"
#include "real.h"

#define BLOCK_ROWS PP_CPU_BLOCK_ROWS
#define TILE PP_CPU_TILE_KEYS
#define STRIP_ROWS PP_CPU_STRIP_ROWS
#define DIAGONAL_Q 16 /* queries of a strip on the diagonal of the scores */
#define APART PP_CPU_ROWS_APART
#define TILE_LD (TILE + APART)
#define AHEAD 8 /* rows between a prefetch and the copy */
#define LINE (64 / sizeof(real))

/* Query heads of one sequence that share a key head. The pointers are to the
 * first rows of the sequence, and its first query is at position context. */
struct head_group {
    const struct pp_attention_shape *s;
    const struct pp_products *products;
    const real *q, *k, *v;
    size_t heads, block_q;  /* block_q: queries of a block */
    size_t context, length; /* length: position behind the last query */
    size_t keys, base;      /* keys of the span, and where it begins */
};

/* Row r of a block is query q0 + r / heads, head r % heads. */
struct query_block {
    size_t q0, nq;
    real *q, *o, *dq; /* (rows, ldq), (rows, ldo), (rows, ldq); q is scaled; in
                         backward o holds dout */
    size_t ldq, ldo;
    real *k, *v;   /* one tile: (TILE, ldq), (TILE, ldo) */
    real *kt, *vt; /* (HDQK, TILE_LD), (HDV, TILE_LD) */
    real *p, *dp;  /* one strip: (STRIP_ROWS, TILE_LD) */
};

/* Queries [q0, q0 + nq) of a block and columns [lo, hi) of the tile that begins
 * with key k0: all columns to which one of the queries attends. */
struct strip {
    size_t q0, nq, k0, lo, hi;
};

PP_INLINE size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

PP_INLINE size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns the first key to which query t may attend. */
PP_INLINE size_t window_start(const struct pp_attention_shape *s, size_t t)
{
    return (size_t)pp_attention_first(s, (int32_t)t);
}

/* Returns one past the last key to which query t may attend. */
PP_INLINE size_t keys_end(const struct head_group *g, size_t t)
{
    return g->s->whole ? g->keys : smaller(t + 1, g->keys);
}

/* Divides scratch. */
PP_INLINE void block_at(const struct pp_attention_shape *s, real *scratch,
                        struct query_block *b)
{
    size_t heads = pp_attention_heads(s->NH, s->NKV);
    size_t rows = heads * pp_attention_queries(heads);
    size_t at = 0;
    *b = (struct query_block){.ldq = s->HDQK + APART, .ldo = s->HDV + APART};
    struct {
        real **to;
        size_t n;
    } parts[] = {
        {&b->q, rows * b->ldq},         {&b->o, rows * b->ldo},
        {&b->dq, rows * b->ldq},        {&b->k, TILE * b->ldq},
        {&b->v, TILE * b->ldo},         {&b->kt, s->HDQK * TILE_LD},
        {&b->vt, s->HDV * TILE_LD},     {&b->p, STRIP_ROWS * TILE_LD},
        {&b->dp, STRIP_ROWS * TILE_LD},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].to = scratch + at;
        at += parts[i].n;
    }
    assert(at == pp_attention_cpu_scratch(s->NH, s->NKV, s->HDQK, s->HDV));
}

/* Returns the group that begins with query head h. */
PP_INLINE struct head_group group_at(const struct pp_attention_shape *s,
                                     const real *q, const real *k,
                                     const real *v, size_t sequence, size_t h)
{
    size_t size = s->NH / s->NKV, kv = h / size;
    size_t heads = pp_attention_heads(s->NH, s->NKV);
    struct pp_attention_span at = pp_attention_span(s, sequence);
    size_t row = (size_t)s->cu_padded[sequence], key = (size_t)at.row;
    size_t n = (size_t)(s->cu[sequence + 1] - s->cu[sequence]);
    return (struct head_group){
        .s = s,
        .products = products_at(0),
        .q = q + row * s->ldq + h * s->HDQK,
        .k = k + key * s->ldkv + kv * s->HDQK,
        .v = v + key * s->ldkv + kv * s->HDV,
        .heads = smaller(heads, (kv + 1) * size - h),
        .block_q = pp_attention_queries(heads),
        .context = (size_t)at.query,
        .length = (size_t)at.query + n,
        .keys = (size_t)at.n,
        .base = (size_t)at.base,
    };
}

/* Returns the first key of the first tile of a block. */
PP_INLINE size_t first_tile(const struct head_group *g,
                            const struct query_block *b)
{
    return window_start(g->s, b->q0) / TILE * TILE;
}

/* Moves to the next strip of a tile. Before the first call t has the block's
 * first query, the tile's first key and nq = 0. Returns 0 if no further query
 * attends to the tile. */
PP_INLINE int next_strip(const struct head_group *g,
                         const struct query_block *b, struct strip *t)
{
    size_t q = t->q0 + t->nq, end = b->q0 + b->nq;
    size_t behind = smaller(t->k0 + TILE, g->keys);
    if (!g->s->whole)
        q = larger(q, t->k0);
    size_t first = window_start(g->s, q);
    if (q >= end || first >= behind)
        return 0;
    t->q0 = q;
    t->nq = smaller(STRIP_ROWS / g->heads, end - q);
    if (!g->s->whole && q + 1 < behind)
        t->nq = smaller(t->nq, DIAGONAL_Q);
    t->lo = larger(first, t->k0) - t->k0;
    t->hi = smaller(keys_end(g, q + t->nq - 1), behind) - t->k0;
    return 1;
}

/* Finds columns [*lo, *hi) of the strip to which its i-th query attends. */
PP_INLINE void key_range(const struct head_group *g, const struct strip *t,
                         size_t i, size_t *lo, size_t *hi)
{
    size_t row = t->q0 + i, first = window_start(g->s, row);
    *hi = smaller(keys_end(g, row) - t->k0, t->hi);
    *lo = smaller(larger(first, t->k0) - t->k0, *hi);
}

/* Returns the row of the block where the strip begins. */
PP_INLINE size_t strip_row(const struct head_group *g,
                           const struct query_block *b, const struct strip *t)
{
    return (t->q0 - b->q0) * g->heads;
}

/* Copies `heads` heads of n rows of a tensor to n * heads rows of a block. */
PP_INLINE void gather(real *to, size_t ldto, const real *from, size_t ldfrom,
                      size_t n, size_t heads, size_t width)
{
    for (size_t i = 0; i < n; i++) {
        /* No prefetcher finds rows that are this far apart. */
        for (size_t j = 0; i + AHEAD < n && j < heads * width; j += LINE)
            __builtin_prefetch(from + (i + AHEAD) * ldfrom + j);
        for (size_t h = 0; h < heads; h++)
            memcpy(to + (i * heads + h) * ldto, from + i * ldfrom + h * width,
                   width * sizeof *to);
    }
}

PP_CLONES static void scale_row(real *x, size_t n, real by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

/* Copies the rows of a block back to the heads of a tensor. */
PP_INLINE void spread(real *to, size_t ldto, const real *from, size_t ldfrom,
                      size_t n, size_t heads, size_t width)
{
    for (size_t i = 0; i < n * heads; i++)
        memcpy(to + i / heads * ldto + i % heads * width, from + i * ldfrom,
               width * sizeof *to);
}

/* Adds the rows that spread copies. */
PP_CLONES static void spread_add(real *to, size_t ldto, const real *from,
                                 size_t ldfrom, size_t n, size_t heads,
                                 size_t width)
{
    for (size_t i = 0; i < n * heads; i++)
        for (size_t c = 0; c < width; c++)
            to[i / heads * ldto + i % heads * width + c] +=
                from[i * ldfrom + c];
}

/* Copies and scales the queries of a block. */
PP_INLINE void gather_queries(const struct head_group *g, struct query_block *b)
{
    const struct pp_attention_shape *s = g->s;
    gather(b->q, b->ldq, g->q + (b->q0 - g->context) * s->ldq, s->ldq, b->nq,
           g->heads, s->HDQK);
    for (size_t r = 0; r < b->nq * g->heads; r++)
        scale_row(b->q + r * b->ldq, s->HDQK, (real)s->scale);
}

/* Copies n rows to the columns of `to`, which are TILE_LD apart. 16 rows at a
 * time stay in cache. */
PP_CLONES static void transpose(real *to, const real *from, size_t ldfrom,
                                size_t n, size_t width)
{
    for (size_t j0 = 0, m; j0 < n; j0 += m) {
        m = smaller(n - j0, 16);
        for (size_t i = 0; i < width; i++)
            for (size_t j = j0; j < j0 + m; j++)
                to[i * TILE_LD + j] = from[j * ldfrom + i];
    }
}

/* Copies n keys and values from k0 on, and transposes the keys. */
PP_INLINE void gather_keys(const struct head_group *g,
                           const struct query_block *b, size_t k0, size_t n)
{
    const struct pp_attention_shape *s = g->s;
    gather(b->k, b->ldq, g->k + k0 * s->ldkv, s->ldkv, n, 1, s->HDQK);
    gather(b->v, b->ldo, g->v + k0 * s->ldkv, s->ldkv, n, 1, s->HDV);
    transpose(b->kt, b->k, b->ldq, n, s->HDQK);
}

/* Replaces n scores by cap tanh(score / cap). */
PP_CLONES static void cap_scores(real *x, size_t n, real cap)
{
    for (size_t i = 0; i < n; i++)
        x[i] = cap * fast_tanh(x[i] / cap);
}

/* p = q K^T of a strip, capped if scores are */
PP_INLINE void scores(const struct head_group *g, const struct query_block *b,
                      const struct strip *t)
{
    g->products->nn(t->nq * g->heads, t->hi - t->lo, g->s->HDQK,
                    b->q + strip_row(g, b, t) * b->ldq, b->ldq, b->kt + t->lo,
                    TILE_LD, false, b->p + t->lo, TILE_LD);
    for (size_t r = 0; g->s->cap > 0 && r < t->nq * g->heads; r++)
        cap_scores(b->p + r * TILE_LD + t->lo, t->hi - t->lo, (real)g->s->cap);
}

/* x = exp(x - shift) on [lo, hi), and 0 in the other columns of the strip.
 * Returns the sum. */
PP_INLINE real exp_row(const struct head_group *g, real *x,
                       const struct strip *t, size_t lo, size_t hi, real shift)
{
    memset(x + t->lo, 0, (lo - t->lo) * sizeof *x);
    memset(x + hi, 0, (t->hi - hi) * sizeof *x);
    return g->products->exp(x + lo, hi - lo, shift);
}

/* Clears rows [first, end) of a tensor. */
PP_INLINE void clear_rows(real *x, size_t ld, size_t width, size_t first,
                          size_t end)
{
    for (size_t t = first; t < end; t++)
        memset(x + t * ld, 0, width * sizeof *x);
}

#endif
