/* SPDX-License-Identifier: MIT */
/* attention on the CPU: blocks of scores by BLAS, online softmax.
 *
 * The query heads of a key head are rows of one product, so that keys and
 * values are packed for it once and not for every head. Blocks of keys that no
 * query of a block may attend are skipped. A block's size depends on its place
 * in the sequence and on the heads alone, so a sequence gives the same values
 * wherever it is packed. */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "cpu.h"
#include "fastexp.h"
#include "real.h"
#include "reduce.h"

#define BLOCK_Q 64
#define BLOCK_K 512
#define MOST_ROWS 256 /* of a block: queries by heads */
#define MOST_HEADS 16

/* Query heads of one sequence that share a key head: pointers to its first
 * rows, which of the queries is row context. */
struct group {
    const struct pp_attention_shape *s;
    const real *q, *k, *v;
    size_t heads, block_q;  /* queries of a block */
    size_t context, length; /* length: of the keys; 0 without queries */
};

/* The keys [k0, k0 + nk) against the queries [q0, q0 + nq) of a sequence. Row r
 * is query q0 + r / heads, head r % heads. */
struct tile {
    size_t q0, nq, k0, nk;
};

/* A block's parts of scratch. */
struct block {
    real *p, *dp; /* (rows, BLOCK_K) */
    real *q, *o;  /* (rows, HDQK), (rows, HDV); backward: o is dout */
    real *dq;     /* (rows, HDQK) */
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* First key that query t may attend. */
static size_t first_key(const struct pp_attention_shape *s, size_t t)
{
    return s->window && t + 1 > s->window ? t + 1 - s->window : 0;
}

/* Keys of tile t that query row i attends: columns [*lo, *hi). */
static void key_range(const struct pp_attention_shape *s, struct tile t,
                      size_t i, size_t *lo, size_t *hi)
{
    size_t row = t.q0 + i, first = first_key(s, row);
    size_t end = smaller(row + 1, t.k0 + t.nk);
    *lo = first > t.k0 ? first - t.k0 : 0;
    *hi = end > t.k0 ? end - t.k0 : 0;
    if (*lo > *hi)
        *lo = *hi;
}

/* First row of a sequence's keys. */
static size_t key_row(const struct pp_attention_shape *s, size_t sequence)
{
    return (size_t)s->cu_padded[sequence] + (sequence ? s->context : 0);
}

/* Query heads of a group that are taken together, and queries of their
 * blocks: fewer where there are many heads. */
static size_t heads_together(const struct pp_attention_shape *s)
{
    return smaller(s->NH / s->NKV, MOST_HEADS);
}

static size_t block_queries(size_t heads)
{
    return smaller(BLOCK_Q, MOST_ROWS / heads / 16 * 16);
}

static struct block block_at(const struct pp_attention_shape *s, real *scratch)
{
    size_t heads = heads_together(s), rows = heads * block_queries(heads);
    struct block b = {.p = scratch};
    b.dp = b.p + rows * BLOCK_K;
    b.q = b.dp + rows * BLOCK_K;
    b.o = b.q + rows * s->HDQK;
    b.dq = b.o + rows * s->HDV;
    return b;
}

/* The group that begins with query head h. */
static struct group group_at(const struct pp_attention_shape *s, const real *q,
                             const real *k, const real *v, size_t sequence,
                             size_t h)
{
    size_t size = s->NH / s->NKV, kv = h / size, heads = heads_together(s);
    size_t row = (size_t)s->cu_padded[sequence], key = key_row(s, sequence);
    size_t context = sequence ? 0 : s->context;
    return (struct group){
        .s = s,
        .q = q + row * s->ldq + h * s->HDQK,
        .k = k + key * s->ldkv + kv * s->HDQK,
        .v = v + key * s->ldkv + kv * s->HDV,
        .heads = smaller(heads, (kv + 1) * size - h),
        .block_q = block_queries(heads),
        .context = context,
        .length = context + (size_t)(s->cu[sequence + 1] - s->cu[sequence]),
    };
}

/* n rows of that width, between tensors whose rows are so far apart. */
static void copy_rows(real *to, size_t ldto, const real *from, size_t ldfrom,
                      size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * ldto, from + i * ldfrom, width * sizeof *to);
}

/* Rows of a block's queries into b->q. */
static void gather_queries(const struct group *g, struct tile t,
                           const struct block *b)
{
    size_t width = g->heads * g->s->HDQK;
    copy_rows(b->q, width, g->q + (t.q0 - g->context) * g->s->ldq, g->s->ldq,
              t.nq, width);
}

/* scores (nq heads, nk), rows BLOCK_K apart */
static void scores(const struct group *g, struct tile t, const struct block *b)
{
    const struct pp_attention_shape *s = g->s;
    gemm_nt(t.nq * g->heads, t.nk, s->HDQK, (real)s->scale, b->q, s->HDQK,
            g->k + t.k0 * s->ldkv, s->ldkv, 0, b->p, BLOCK_K);
}

/* x = exp(x - shift) on [lo, hi), 0 elsewhere; returns the sum. */
PP_CLONES static double exp_row(real *x, size_t n, size_t lo, size_t hi,
                                real shift)
{
    memset(x, 0, lo * sizeof *x);
    for (size_t i = lo; i < hi; i++)
        x[i] = fast_exp(x[i] - shift);
    memset(x + hi, 0, (n - hi) * sizeof *x);
    return sum_row(x + lo, hi - lo);
}

PP_CLONES static real row_max(const real *x, size_t n)
{
    return max_row(x, n);
}

PP_CLONES static void scale_row(real *x, size_t n, real by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

PP_CLONES static double row_dot(const real *a, const real *b, size_t n)
{
    return dot_rows(a, b, n);
}

/* x = p (x - d) scale, the gradient of the scores from that of p */
PP_CLONES static void score_gradient(real *restrict x, const real *restrict p,
                                     size_t n, real d, real scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = p[i] * (x[i] - d) * scale;
}

/* The running softmax of a block's rows. */
struct online {
    real max[MOST_ROWS];
    double sum[MOST_ROWS];
};

/* Scores become exp(score - running max); rows of o made with an older
 * maximum are scaled down. */
static void softmax_tile(struct online *w, const struct group *g, struct tile t,
                         const struct block *b)
{
    size_t HDV = g->s->HDV;
    real *p = b->p;
    for (size_t r = 0; r < t.nq * g->heads; r++, p += BLOCK_K) {
        size_t lo, hi;
        key_range(g->s, t, r / g->heads, &lo, &hi);
        if (lo == hi) {
            memset(p, 0, t.nk * sizeof *p);
            continue;
        }
        real max = row_max(p + lo, hi - lo);
        if (max > w->max[r]) {
            real by = fast_exp(w->max[r] - max);
            w->sum[r] *= (double)by;
            scale_row(b->o + r * HDV, HDV, by);
            w->max[r] = max;
        }
        w->sum[r] += exp_row(p, t.nk, lo, hi, w->max[r]);
    }
}

/* Writes a block's o and lse, at its first row. */
static void finish_block(const struct group *g, const struct online *w,
                         size_t nq, const struct block *b, real *o, real *lse)
{
    const struct pp_attention_shape *s = g->s;
    for (size_t r = 0; r < nq * g->heads; r++) {
        scale_row(b->o + r * s->HDV, s->HDV, (real)(1 / w->sum[r]));
        lse[r / g->heads * s->NH + r % g->heads] =
            (real)((double)w->max[r] + log(w->sum[r]));
    }
    copy_rows(o, s->ldo, b->o, g->heads * s->HDV, nq, g->heads * s->HDV);
}

/* Queries from q0 on; o and lse at the sequence's first row. */
static void forward_block(const struct group *g, size_t q0, real *o, real *lse,
                          const real *sinks, const struct block *b)
{
    const struct pp_attention_shape *s = g->s;
    size_t nq = smaller(g->block_q, g->length - q0), rows = nq * g->heads;
    size_t end = q0 + nq, row = q0 - g->context;
    struct tile t = {q0, nq, first_key(s, q0) / BLOCK_K * BLOCK_K, 0};
    struct online w;
    for (size_t r = 0; r < rows; r++) {
        w.max[r] = sinks ? sinks[r % g->heads] : -(real)INFINITY;
        w.sum[r] = sinks ? 1 : 0;
    }
    memset(b->o, 0, rows * s->HDV * sizeof *b->o);
    gather_queries(g, t, b);
    for (; t.k0 < end; t.k0 += BLOCK_K) {
        t.nk = smaller(BLOCK_K, end - t.k0);
        scores(g, t, b);
        softmax_tile(&w, g, t, b);
        gemm_nn(rows, s->HDV, t.nk, 1, b->p, BLOCK_K, g->v + t.k0 * s->ldkv,
                s->ldkv, 1, b->o, s->HDV);
    }
    finish_block(g, &w, nq, b, o + row * s->ldo, lse + row * s->NH);
}

/* Rows of padding of a sequence: [first, end) of a tensor of that width. */
static void clear_rows(real *x, size_t ld, size_t width, size_t first,
                       size_t end)
{
    for (size_t t = first; t < end; t++)
        memset(x + t * ld, 0, width * sizeof *x);
}

PP_ATTENTION_FWD(PP_KERNEL(attention_fwd))
{
    (void)stream;
    real *out = o, *l = lse;
    const real *sink = sinks;
    const struct block b = block_at(s, scratch);
    size_t h;
    for (size_t i = 0; i < s->n_sequences; i++) {
        size_t row = (size_t)s->cu_padded[i];
        size_t n = (size_t)(s->cu[i + 1] - s->cu[i]);
        size_t end = (size_t)s->cu_padded[i + 1];
        clear_rows(out, s->ldo, s->NH * s->HDV, row + n, end);
        clear_rows(l, s->NH, s->NH, row + n, end);
        for (h = 0; h < s->NH;) {
            struct group g = group_at(s, q, k, v, i, h);
            for (size_t q0 = g.context; q0 < g.length; q0 += g.block_q)
                forward_block(&g, q0, out + row * s->ldo + h * s->HDV,
                              l + row * s->NH + h, sink ? sink + h : NULL, &b);
            h += g.heads;
        }
    }
    return 0;
}

/* Gradients of a group, at the sequence's first row. */
struct group_gradient {
    real *dq, *dk, *dv;
    const real *dout, *o, *lse;
};

/* p from the saved lse, and dp into the gradient of the scores. d is the sum
 * of dout o of every row. */
static void gradient_rows(const struct group *g, struct tile t, const real *d,
                          const real *lse, const struct block *b)
{
    const struct pp_attention_shape *s = g->s;
    for (size_t r = 0; r < t.nq * g->heads; r++) {
        size_t lo, hi, i = r / g->heads;
        key_range(s, t, i, &lo, &hi);
        real *p = b->p + r * BLOCK_K, *dp = b->dp + r * BLOCK_K;
        exp_row(p, t.nk, lo, hi, lse[i * s->NH + r % g->heads]);
        /* Of a single score the sum is known without the rounding of o: where
         * the softmax is 1 the gradient is 0, as it should be. */
        real sum = d[r];
        if (first_key(s, t.q0 + i) == t.q0 + i && lo < hi)
            sum = p[lo] * dp[lo];
        score_gradient(dp, p, t.nk, sum, (real)s->scale);
    }
}

static void backward_tile(const struct group *g, struct tile t, const real *d,
                          const struct group_gradient *to, const real *lse,
                          const struct block *b)
{
    const struct pp_attention_shape *s = g->s;
    size_t rows = t.nq * g->heads, at = t.k0 * s->ldkv;
    scores(g, t, b);
    gemm_nt(rows, t.nk, s->HDV, 1, b->o, s->HDV, g->v + at, s->ldkv, 0, b->dp,
            BLOCK_K);
    gradient_rows(g, t, d, lse, b);
    gemm_tn(t.nk, s->HDV, rows, 1, b->p, BLOCK_K, b->o, s->HDV, 1, to->dv + at,
            s->ldkv);
    gemm_nn(rows, s->HDQK, t.nk, 1, b->dp, BLOCK_K, g->k + at, s->ldkv, 1,
            b->dq, s->HDQK);
    gemm_tn(t.nk, s->HDQK, rows, 1, b->dp, BLOCK_K, b->q, s->HDQK, 1,
            to->dk + at, s->ldkv);
}

/* Queries from q0 on. */
static void backward_block(const struct group *g, size_t q0,
                           const struct group_gradient *to,
                           const struct block *b)
{
    const struct pp_attention_shape *s = g->s;
    size_t nq = smaller(g->block_q, g->length - q0), end = q0 + nq;
    size_t row = q0 - g->context, width = g->heads * s->HDV;
    struct tile t = {q0, nq, first_key(s, q0) / BLOCK_K * BLOCK_K, 0};
    real d[MOST_ROWS];
    gather_queries(g, t, b);
    copy_rows(b->o, width, to->dout + row * s->ldo, s->ldo, nq, width);
    for (size_t r = 0; r < nq * g->heads; r++)
        d[r] = (real)row_dot(b->o + r * s->HDV,
                             to->o + (row + r / g->heads) * s->ldo +
                                 r % g->heads * s->HDV,
                             s->HDV);
    memset(b->dq, 0, nq * g->heads * s->HDQK * sizeof *b->dq);
    for (; t.k0 < end; t.k0 += BLOCK_K) {
        t.nk = smaller(BLOCK_K, end - t.k0);
        backward_tile(g, t, d, to, to->lse + row * s->NH, b);
    }
    copy_rows(to->dq + row * s->ldq, s->ldq, b->dq, g->heads * s->HDQK, nq,
              g->heads * s->HDQK);
}

PP_ATTENTION_BWD(PP_KERNEL(attention_bwd))
{
    (void)stream;
    real *gq = dq, *gk = dk, *gv = dv;
    const real *gout = dout, *out = o, *l = lse;
    const struct block b = block_at(s, scratch);
    size_t h;
    clear_rows(gq, s->ldq, s->NH * s->HDQK, 0, s->N);
    clear_rows(gk, s->ldkv, s->NKV * s->HDQK, 0, s->N + s->context);
    clear_rows(gv, s->ldkv, s->NKV * s->HDV, 0, s->N + s->context);
    for (size_t i = 0; i < s->n_sequences; i++)
        for (h = 0; h < s->NH;) {
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
            for (size_t q0 = g.context; q0 < g.length; q0 += g.block_q)
                backward_block(&g, q0, &to, &b);
            h += g.heads;
        }
    return 0;
}

PP_ATTENTION_SCRATCH(PP_KERNEL(attention_scratch))
{
    size_t heads = heads_together(s), rows = heads * block_queries(heads);
    return rows * (2 * BLOCK_K + 2 * s->HDQK + s->HDV);
}
