/* SPDX-License-Identifier: MIT */
/* rmsnorm on the CPU. Sums over a group are in double. */
#include "kernels.h"

#include <math.h>

#include "real.h"

/* A sum over a whole group, and the width of that. */
struct norm_sum {
    double sum, width;
};

static struct norm_sum add_sums(const struct pp_norm_sums *s, size_t group)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += (double)((const real *)s->at)[i * s->stride + group];
    return (struct norm_sum){sum, (double)s->C};
}

PP_CLONES static real norm_group(real *y, const real *x, const real *w,
                                 size_t C, real shift, double eps,
                                 struct norm_sum of)
{
    real rstd = (real)(1 / sqrt(of.sum / of.width + eps));
    PP_INDEPENDENT
    for (size_t i = 0; i < C; i++)
        y[i] = x[i] * rstd * (w ? shift + w[i] : shift);
    return rstd;
}

PP_CLONES static double dot3(const real *a, const real *b, const real *w,
                             real shift, size_t C)
{
    real product[256];
    double sum = 0;
    for (size_t at = 0; at < C; at += 256) {
        size_t n = C - at < 256 ? C - at : 256;
        for (size_t i = 0; i < n; i++)
            product[i] = a[at + i] * (w ? shift + w[at + i] : shift);
        sum += dot_rows(product, b + at, n);
    }
    return sum;
}

PP_CLONES static void norm_group_bwd(real *dx, const real *dy, const real *x,
                                     const real *w, real rstd, real shift,
                                     size_t C, struct norm_sum of)
{
    double mean = of.sum * (double)rstd / of.width;
    real m = (real)(mean * (double)rstd);
    PP_INDEPENDENT
    for (size_t i = 0; i < C; i++)
        dx[i] = rstd * (dy[i] * (w ? shift + w[i] : shift) - x[i] * m);
}

PP_CLONES static void add_row(real *restrict y, const real *restrict r,
                              size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += r[i];
}

PP_CLONES static void norm_group_weight(real *dw, const real *dy, const real *x,
                                        real rstd, size_t C)
{
    for (size_t i = 0; i < C; i++)
        dw[i] += dy[i] * (x[i] * rstd);
}

PP_RMSNORM_SUMS(PP_KERNEL(rmsnorm_sums))
{
    (void)stream;
    const real *by = a, *of = b;
    real *out = sums;
    for (size_t t = 0; t < N; t++)
        for (size_t g = 0; g < G; g++) {
            const real *one = by + t * lda + g * C, *two = of + t * ldb + g * C;
            out[t * G + g] = (real)(w ? dot3(one, two, w, (real)shift, C)
                                      : dot_rows(one, two, C));
        }
    return 0;
}

PP_RMSNORM_FWD(PP_KERNEL(rmsnorm_fwd))
{
    (void)stream;
    real *out = y, *s = rstd;
    const real *more = r;
    for (size_t t = 0; t < N; t++)
        for (size_t g = 0; g < G; g++) {
            size_t at = t * ldy + g * C;
            const real *in = (const real *)x + t * ldx + g * C;
            struct norm_sum of =
                sums ? add_sums(sums, t * G + g)
                     : (struct norm_sum){dot_rows(in, in, C), (double)C};
            s[t * ldr + g] =
                norm_group(out + at, in, w, C, (real)shift, eps, of);
            if (more)
                add_row(out + at, more + at, C);
        }
    return 0;
}

PP_RMSNORM_BWD_INPUT(PP_KERNEL(rmsnorm_bwd_input))
{
    (void)stream;
    real *out = dx;
    const real *s = rstd, *more = r;
    for (size_t t = 0; t < N; t++)
        for (size_t g = 0; g < G; g++) {
            size_t at = t * lddx + g * C;
            const real *d = (const real *)dy + t * lddy + g * C;
            const real *in = (const real *)x + t * ldx + g * C;
            struct norm_sum of =
                sums ? add_sums(sums, t * G + g)
                     : (struct norm_sum){dot3(d, in, w, (real)shift, C),
                                         (double)C};
            norm_group_bwd(out + at, d, in, w, s[t * ldr + g], (real)shift, C,
                           of);
            if (more)
                add_row(out + at, more + at, C);
        }
    return 0;
}

PP_RMSNORM_BWD_WEIGHT(PP_KERNEL(rmsnorm_bwd_weight))
{
    (void)stream;
    const real *d = dy, *in = x, *r = rstd;
    for (size_t t = 0; t < N; t++)
        for (size_t g = 0; g < G; g++)
            norm_group_weight(dw, d + t * lddy + g * C, in + t * ldx + g * C,
                              r[t * ldr + g], C);
    return 0;
}
