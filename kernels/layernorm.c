/* SPDX-License-Identifier: MIT */
/* layernorm on the CPU. Sums over a row are in double. */
#include "kernels.h"

#include <math.h>

#include "real.h"

#define BLOCK 256 /* elements of a row at a time */

PP_CLONES static void norm_row(real *restrict y, real *mean, real *rstd,
                               const real *restrict x, const real *restrict w,
                               const real *restrict b, size_t C, double eps)
{
    real m = (real)(sum_row(x, C) / (double)C);
    for (size_t i = 0; i < C; i++)
        y[i] = x[i] - m;
    real r = (real)(1 / sqrt(dot_rows(y, y, C) / (double)C + eps));
    for (size_t i = 0; !w && i < C; i++)
        y[i] *= r;
    for (size_t i = 0; w && i < C; i++)
        y[i] = y[i] * r * w[i];
    for (size_t i = 0; b && i < C; i++)
        y[i] += b[i];
    *mean = m;
    *rstd = r;
}

/* Finds the sums over a row of dy w, and of dy w times the normed x. */
PP_CLONES static void row_sums(const real *dy, const real *x, const real *w,
                               real mean, real rstd, size_t C, double sums[2])
{
    real g[BLOCK], normed[BLOCK];
    sums[0] = sums[1] = 0;
    for (size_t at = 0; at < C; at += BLOCK) {
        size_t n = C - at < BLOCK ? C - at : BLOCK;
        for (size_t i = 0; i < n; i++) {
            g[i] = w ? dy[at + i] * w[at + i] : dy[at + i];
            normed[i] = (x[at + i] - mean) * rstd;
        }
        sums[0] += sum_row(g, n);
        sums[1] += dot_rows(g, normed, n);
    }
}

PP_CLONES static void norm_row_bwd(real *dx, const real *dy, const real *x,
                                   const real *w, real mean, real rstd,
                                   size_t C)
{
    double sums[2];
    row_sums(dy, x, w, mean, rstd, C, sums);
    real a = (real)(sums[0] / (double)C), b = (real)(sums[1] / (double)C);
    PP_INDEPENDENT
    for (size_t i = 0; i < C; i++)
        dx[i] =
            rstd * ((w ? dy[i] * w[i] : dy[i]) - a - (x[i] - mean) * rstd * b);
}

PP_CLONES static void add_weight(real *restrict dw, const real *restrict dy,
                                 const real *restrict x, real mean, real rstd,
                                 size_t C)
{
    for (size_t i = 0; i < C; i++)
        dw[i] += dy[i] * ((x[i] - mean) * rstd);
}

PP_CLONES static void add_row(real *restrict sum, const real *restrict x,
                              size_t C)
{
    for (size_t i = 0; i < C; i++)
        sum[i] += x[i];
}

PP_LAYERNORM_FWD(PP_KERNEL(layernorm_fwd))
{
    (void)stream;
    real *out = y, *m = mean, *s = rstd;
    const real *in = x, *more = r;
    for (size_t t = 0; t < N; t++) {
        norm_row(out + t * C, m + t, s + t, in + t * C, w, b, C, eps);
        if (more)
            add_row(out + t * C, more + t * C, C);
    }
    return 0;
}

PP_LAYERNORM_BWD_INPUT(PP_KERNEL(layernorm_bwd_input))
{
    (void)stream;
    real *out = dx;
    const real *d = dy, *in = x, *m = mean, *s = rstd, *more = r;
    for (size_t t = 0; t < N; t++) {
        norm_row_bwd(out + t * C, d + t * C, in + t * C, w, m[t], s[t], C);
        if (more)
            add_row(out + t * C, more + t * C, C);
    }
    return 0;
}

PP_LAYERNORM_BWD_WEIGHT(PP_KERNEL(layernorm_bwd_weight))
{
    (void)stream;
    const real *d = dy, *in = x, *m = mean, *r = rstd;
    for (size_t t = 0; dw && t < N; t++)
        add_weight(dw, d + t * C, in + t * C, m[t], r[t], C);
    for (size_t t = 0; db && t < N; t++)
        add_row(db, d + t * C, C);
    return 0;
}
