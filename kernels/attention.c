/* SPDX-License-Identifier: MIT */
/* attention on the CPU: blocks of scores by BLAS, online softmax.
 *
 * Heads are strided views of the rows, so nothing is transposed or gathered.
 * Blocks of keys that no query of a block may attend are skipped. A block's
 * size depends on its place in the sequence alone, so a sequence gives the
 * same values wherever it is packed. */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "cpu.h"
#include "fastexp.h"
#include "real.h"
#include "reduce.h"

#define BLOCK_Q 64
#define BLOCK_K 256

/* One head of one sequence: pointers to its first rows, which of the queries
 * is row context. */
struct head {
    const struct pp_attention_shape *s;
    const real *q, *k, *v;
    size_t context, length; /* length: of the keys; 0 without queries */
};

/* The keys [k0, k0 + nk) against the queries [q0, q0 + nq) of a sequence. */
struct tile {
    size_t q0, nq, k0, nk;
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

static struct head head_at(const struct pp_attention_shape *s, const real *q,
                           const real *k, const real *v, size_t sequence,
                           size_t h)
{
    size_t row = (size_t)s->cu_padded[sequence], kv = h / (s->NH / s->NKV);
    size_t key = key_row(s, sequence), context = sequence ? 0 : s->context;
    return (struct head){
        .s = s,
        .q = q + row * s->ldq + h * s->HDQK,
        .k = k + key * s->ldkv + kv * s->HDQK,
        .v = v + key * s->ldkv + kv * s->HDV,
        .context = context,
        .length = context + (size_t)(s->cu[sequence + 1] - s->cu[sequence]),
    };
}

/* scores (nq, nk), rows BLOCK_K apart */
static void scores(const struct head *h, struct tile t, real *out)
{
    const struct pp_attention_shape *s = h->s;
    gemm_nt(t.nq, t.nk, s->HDQK, (real)s->scale,
            h->q + (t.q0 - h->context) * s->ldq, s->ldq, h->k + t.k0 * s->ldkv,
            s->ldkv, 0, out, BLOCK_K);
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

/* The running softmax of a block of queries. */
struct online {
    real max[BLOCK_Q];
    double sum[BLOCK_Q];
};

/* Scores become exp(score - running max); rows of o made with an older
 * maximum are scaled down. */
static void softmax_tile(struct online *w, const struct head *h, struct tile t,
                         real *p, real *o)
{
    const struct pp_attention_shape *s = h->s;
    for (size_t i = 0; i < t.nq; i++, p += BLOCK_K) {
        size_t lo, hi;
        key_range(s, t, i, &lo, &hi);
        if (lo == hi) {
            memset(p, 0, t.nk * sizeof *p);
            continue;
        }
        real max = row_max(p + lo, hi - lo);
        if (max > w->max[i]) {
            real by = fast_exp(w->max[i] - max);
            w->sum[i] *= (double)by;
            scale_row(o + i * s->ldo, s->HDV, by);
            w->max[i] = max;
        }
        w->sum[i] += exp_row(p, t.nk, lo, hi, w->max[i]);
    }
}

/* Queries [q0, q0 + nq) of one head; o and lse at the sequence's first row. */
static void forward_block(const struct head *h, size_t q0, real *o, real *lse,
                          const real *sink, real *p)
{
    const struct pp_attention_shape *s = h->s;
    size_t nq = smaller(BLOCK_Q, h->length - q0);
    struct online w;
    o += (q0 - h->context) * s->ldo;
    lse += (q0 - h->context) * s->NH;
    for (size_t i = 0; i < nq; i++) {
        w.max[i] = sink ? *sink : -(real)INFINITY;
        w.sum[i] = sink ? 1 : 0;
        memset(o + i * s->ldo, 0, s->HDV * sizeof *o);
    }
    size_t k0 = first_key(s, q0) / BLOCK_K * BLOCK_K;
    for (; k0 < q0 + nq; k0 += BLOCK_K) {
        struct tile t = {q0, nq, k0, smaller(BLOCK_K, q0 + nq - k0)};
        scores(h, t, p);
        softmax_tile(&w, h, t, p, o);
        gemm_nn(nq, s->HDV, t.nk, 1, p, BLOCK_K, h->v + k0 * s->ldkv, s->ldkv,
                1, o, s->ldo);
    }
    for (size_t i = 0; i < nq; i++) {
        scale_row(o + i * s->ldo, s->HDV, (real)(1 / w.sum[i]));
        lse[i * s->NH] = (real)((double)w.max[i] + log(w.sum[i]));
    }
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
    for (size_t i = 0; i < s->n_sequences; i++) {
        size_t row = (size_t)s->cu_padded[i];
        size_t n = (size_t)(s->cu[i + 1] - s->cu[i]);
        size_t end = (size_t)s->cu_padded[i + 1];
        clear_rows(out, s->ldo, s->NH * s->HDV, row + n, end);
        clear_rows(l, s->NH, s->NH, row + n, end);
        for (size_t h = 0; h < s->NH; h++) {
            struct head head = head_at(s, q, k, v, i, h);
            for (size_t q0 = head.context; q0 < head.length; q0 += BLOCK_Q)
                forward_block(&head, q0, out + row * s->ldo + h * s->HDV,
                              l + row * s->NH + h, sink ? sink + h : NULL,
                              scratch);
        }
    }
    return 0;
}

/* Gradients of one head, at the sequence's first row. */
struct head_gradient {
    real *dq, *dk, *dv;
    const real *dout, *o, *lse;
};

/* p (nq, nk) from the saved lse, and dp into the gradient of the scores. d is
 * the sum of dout o of every query. */
static void backward_tile(const struct head *h, const struct head_gradient *g,
                          struct tile t, const real *d, real *p, real *dp)
{
    const struct pp_attention_shape *s = h->s;
    size_t row = t.q0 - h->context;
    const real *dout = g->dout + row * s->ldo;
    const real *q = h->q + row * s->ldq, *k = h->k + t.k0 * s->ldkv;
    scores(h, t, p);
    gemm_nt(t.nq, t.nk, s->HDV, 1, dout, s->ldo, h->v + t.k0 * s->ldkv, s->ldkv,
            0, dp, BLOCK_K);
    for (size_t i = 0; i < t.nq; i++) {
        size_t lo, hi;
        key_range(s, t, i, &lo, &hi);
        real *pi = p + i * BLOCK_K, *dpi = dp + i * BLOCK_K;
        exp_row(pi, t.nk, lo, hi, g->lse[(row + i) * s->NH]);
        /* Of a single score the sum is known without the rounding of o: where
         * the softmax is 1 the gradient is 0, as it should be. */
        real sum = d[i];
        if (first_key(s, t.q0 + i) == t.q0 + i && lo < hi)
            sum = pi[lo] * dpi[lo];
        score_gradient(dpi, pi, t.nk, sum, (real)s->scale);
    }
    gemm_tn(t.nk, s->HDV, t.nq, 1, p, BLOCK_K, dout, s->ldo, 1,
            g->dv + t.k0 * s->ldkv, s->ldkv);
    gemm_nn(t.nq, s->HDQK, t.nk, 1, dp, BLOCK_K, k, s->ldkv, 1,
            g->dq + row * s->ldq, s->ldq);
    gemm_tn(t.nk, s->HDQK, t.nq, 1, dp, BLOCK_K, q, s->ldq, 1,
            g->dk + t.k0 * s->ldkv, s->ldkv);
}

static void backward_head(const struct head *h, const struct head_gradient *g,
                          real *scratch)
{
    const struct pp_attention_shape *s = h->s;
    real d[BLOCK_Q];
    for (size_t q0 = h->context; q0 < h->length; q0 += BLOCK_Q) {
        size_t nq = smaller(BLOCK_Q, h->length - q0), row = q0 - h->context;
        for (size_t i = 0; i < nq; i++)
            d[i] = (real)row_dot(g->dout + (row + i) * s->ldo,
                                 g->o + (row + i) * s->ldo, s->HDV);
        size_t k0 = first_key(s, q0) / BLOCK_K * BLOCK_K;
        for (; k0 < q0 + nq; k0 += BLOCK_K) {
            struct tile t = {q0, nq, k0, smaller(BLOCK_K, q0 + nq - k0)};
            backward_tile(h, g, t, d, scratch, scratch + BLOCK_Q * BLOCK_K);
        }
    }
}

PP_ATTENTION_BWD(PP_KERNEL(attention_bwd))
{
    (void)stream;
    real *gq = dq, *gk = dk, *gv = dv;
    const real *gout = dout, *out = o, *l = lse;
    clear_rows(gq, s->ldq, s->NH * s->HDQK, 0, s->N);
    clear_rows(gk, s->ldkv, s->NKV * s->HDQK, 0, s->N + s->context);
    clear_rows(gv, s->ldkv, s->NKV * s->HDV, 0, s->N + s->context);
    for (size_t i = 0; i < s->n_sequences; i++)
        for (size_t h = 0; h < s->NH; h++) {
            size_t row = (size_t)s->cu_padded[i], kv = h / (s->NH / s->NKV);
            size_t key = key_row(s, i);
            struct head head = head_at(s, q, k, v, i, h);
            struct head_gradient g = {
                .dq = gq + row * s->ldq + h * s->HDQK,
                .dk = gk + key * s->ldkv + kv * s->HDQK,
                .dv = gv + key * s->ldkv + kv * s->HDV,
                .dout = gout + row * s->ldo + h * s->HDV,
                .o = out + row * s->ldo + h * s->HDV,
                .lse = l + row * s->NH + h,
            };
            backward_head(&head, &g, scratch);
        }
    return 0;
}

PP_ATTENTION_SCRATCH(PP_KERNEL(attention_scratch))
{
    (void)s; /* tiles have one size; other backends look at the shape */
    return (size_t)2 * BLOCK_Q * BLOCK_K;
}
