/* SPDX-License-Identifier: MIT */
/* gelu, gates and xielu on the CPU. (1 + tanh(u)) / 2 is the sigmoid of 2 u, so
 * that the form by tanh needs one exp. */
#include "kernels.h"

#include <math.h>

#include "real.h"

#define ROOT ((real)0.79788456080286535588) /* sqrt(2 / pi) */
#define CUBE ((real)0.044715)
#define STEEP ((real)1.702)
#define ROOT_HALF 0.70710678118654752440
#define DENSITY 0.39894228040143267794 /* 1 / sqrt(2 pi) */

PP_CLONES static void tanh_fwd(real *restrict y, const real *restrict x,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        real u = ROOT * (x[i] + CUBE * x[i] * x[i] * x[i]);
        y[i] = x[i] / (1 + fast_exp(-2 * u));
    }
}

/* With s = sigmoid(2 u), the derivative is s + x s (1 - s) 2 u'. */
PP_CLONES static void tanh_bwd(real *dx, const real *dy, const real *x,
                               size_t n)
{
    PP_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        real a = x[i], square = a * a;
        real s = 1 / (1 + fast_exp(-2 * ROOT * (a + CUBE * square * a)));
        real slope = 2 * ROOT * (1 + 3 * CUBE * square);
        dx[i] = dy[i] * (s + a * s * (1 - s) * slope);
    }
}

/* Returns P(X <= x), where e = exp(-x^2 / 2). f64 uses libm's erf. In f32, with
 * z = |x| / sqrt 2 and t = 1 / (1 + z / 2), erfc(z) exp(z^2) / t is the exp of
 * a polynomial in t; the one of degree 9 that interpolates at Chebyshev's nodes
 * is off by 1e-7. */
PP_INLINE real probability(real x, real e)
{
#ifdef PP_REAL_F32
    real t = 1 / (1 + (x < 0 ? -x : x) * ((real)ROOT_HALF / 2));
    real p = 1.708728658e-01f;
    p = p * t - 8.221526508e-01f;
    p = p * t + 1.488516716e+00f;
    p = p * t - 1.135204896e+00f;
    p = p * t + 2.788686580e-01f;
    p = p * t - 1.862882815e-01f;
    p = p * t + 9.678423800e-02f;
    p = p * t + 3.740919542e-01f;
    p = p * t + 1.000023680e+00f;
    p = p * t - 1.265512225e+00f;
    real tail = t * e * fast_exp(p) / 2; /* P(X <= -|x|) */
    return x < 0 ? tail : 1 - tail;
#else
    (void)e;
    return (1 + erf(x * ROOT_HALF)) / 2;
#endif
}

PP_CLONES static void erf_fwd(real *restrict y, const real *restrict x,
                              size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * probability(x[i], fast_exp(x[i] * x[i] / -2));
}

PP_CLONES static void erf_bwd(real *dx, const real *dy, const real *x, size_t n)
{
    PP_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        real a = x[i], e = fast_exp(a * a / -2);
        dx[i] = dy[i] * (probability(a, e) + a * (real)DENSITY * e);
    }
}

PP_CLONES static void sigmoid_fwd(real *restrict y, const real *restrict x,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + fast_exp(-STEEP * x[i]));
}

PP_CLONES static void sigmoid_bwd(real *dx, const real *dy, const real *x,
                                  size_t n)
{
    PP_INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        real a = x[i], s = 1 / (1 + fast_exp(-STEEP * a));
        dx[i] = dy[i] * (s + a * s * (1 - s) * STEEP);
    }
}

PP_CLONES static void square_fwd(real *restrict y, const real *restrict x,
                                 size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[i] * x[i] : 0;
}

PP_CLONES static void square_bwd(real *dx, const real *dy, const real *x,
                                 size_t n)
{
    PP_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        dx[i] = x[i] > 0 ? dy[i] * 2 * x[i] : 0;
}

/* --- gate --- */

PP_CLONES static void gate_row(real *y, const real *x, const real *g, size_t C)
{
    PP_INDEPENDENT
    for (size_t i = 0; i < C; i++)
        y[i] = x[i] / (1 + fast_exp(-g[i]));
}

PP_CLONES static void gate_row_bwd(real *restrict dg, const real *restrict dx,
                                   const real *restrict x,
                                   const real *restrict g, size_t C)
{
    for (size_t i = 0; i < C; i++)
        dg[i] = dx[i] * x[i] / (1 + fast_exp(g[i]));
}

PP_SIGMOID_GATE_FWD(PP_KERNEL(sigmoid_gate_fwd))
{
    (void)stream;
    real *out = y;
    const real *in = x, *by = g;
    for (size_t t = 0; t < N; t++)
        gate_row(out + t * C, in + t * C, by + t * ldg, C);
    return 0;
}

PP_SIGMOID_GATE_BWD(PP_KERNEL(sigmoid_gate_bwd))
{
    (void)stream;
    real *out = dg;
    const real *d = dx, *in = x, *by = g;
    for (size_t t = 0; t < N; t++)
        gate_row_bwd(out + t * ldg, d + t * C, in + t * C, by + t * ldg, C);
    return 0;
}

/* --- geglu --- */

PP_CLONES static void geglu_row(real *restrict y, const real *restrict gate,
                                const real *restrict up, size_t C)
{
    tanh_fwd(y, gate, C);
    for (size_t i = 0; i < C; i++)
        y[i] *= up[i];
}

PP_CLONES static void geglu_row_bwd(real *restrict dgate, real *restrict dup,
                                    const real *restrict dy,
                                    const real *restrict gate,
                                    const real *restrict up, size_t C)
{
    tanh_fwd(dup, gate, C);
    tanh_bwd(dgate, dy, gate, C);
    for (size_t i = 0; i < C; i++) {
        dgate[i] *= up[i];
        dup[i] *= dy[i];
    }
}

PP_SWIGLU_FWD(PP_KERNEL(geglu_fwd))
{
    (void)stream;
    real *out = y;
    const real *in = gu;
    for (size_t t = 0; t < N; t++)
        geglu_row(out + t * C, in + t * 2 * C, in + t * 2 * C + C, C);
    return 0;
}

PP_SWIGLU_BWD(PP_KERNEL(geglu_bwd))
{
    (void)stream;
    real *out = dgu;
    const real *d = dy, *in = gu;
    for (size_t t = 0; t < N; t++)
        geglu_row_bwd(out + t * 2 * C, out + t * 2 * C + C, d + t * C,
                      in + t * 2 * C, in + t * 2 * C + C, C);
    return 0;
}

/* --- xielu --- */

/* The numbers of xielu, and the derivatives of a and b by p and n. */
struct slopes {
    real a, b, beta, eps, da, db;
};

static struct slopes slopes_of(const struct pp_xielu *by)
{
    real p = *(const real *)by->p, n = *(const real *)by->n;
    real beta = *(const real *)by->beta;
    return (struct slopes){.a = (real)log1p(exp(p)),
                           .b = beta + (real)log1p(exp(n)),
                           .beta = beta,
                           .eps = *(const real *)by->eps,
                           .da = (real)(1 / (1 + exp(-p))),
                           .db = (real)(1 / (1 + exp(-n)))};
}

/* Returns exp(x) - 1 for x <= 0. Near 0 the difference would lose its digits in
 * f32, and the series is off by 1e-9. */
PP_INLINE real exp_less_1(real x)
{
#ifdef PP_REAL_F32
    real series = 1 + x / 7 * (1 + x / 8);
    for (int k = 6; k > 1; k--)
        series = 1 + x / (real)k * series;
    return x > -0.5f ? x * series : fast_exp(x) - 1;
#else
    return expm1(x);
#endif
}

PP_CLONES static void xielu_row(real *restrict y, const real *restrict x,
                                size_t C, const struct slopes *s)
{
    for (size_t i = 0; i < C; i++) {
        real low = x[i] < s->eps ? x[i] : s->eps;
        real below = s->b * (exp_less_1(low) - x[i]);
        y[i] = (x[i] > 0 ? s->a * x[i] * x[i] : below) + s->beta * x[i];
    }
}

/* Adds the gradients of p and n by at most BLOCK elements of a row. */
enum { BLOCK = 64 };

PP_CLONES static void xielu_block_bwd(real *dx, double sums[2], const real *dy,
                                      const real *x, size_t n,
                                      const struct slopes *s)
{
    real of_p[BLOCK], of_n[BLOCK];
    for (size_t i = 0; i < n; i++) {
        real low = exp_less_1(x[i] < s->eps ? x[i] : s->eps);
        real slope = x[i] < s->eps ? s->b * low : -s->b;
        of_p[i] = x[i] > 0 ? dy[i] * x[i] * x[i] : 0;
        of_n[i] = x[i] > 0 ? 0 : dy[i] * (low - x[i]);
        dx[i] = dy[i] * ((x[i] > 0 ? 2 * s->a * x[i] : slope) + s->beta);
    }
    sums[0] += sum_row(of_p, n);
    sums[1] += sum_row(of_n, n);
}

PP_XIELU_FWD(PP_KERNEL(xielu_fwd))
{
    (void)stream;
    const struct slopes s = slopes_of(by);
    for (size_t t = 0; t < N; t++)
        xielu_row((real *)y + t * C, (const real *)x + t * C, C, &s);
    return 0;
}

PP_XIELU_BWD(PP_KERNEL(xielu_bwd))
{
    (void)stream;
    const struct slopes s = slopes_of(by);
    real *to = sums;
    for (size_t t = 0; t < N; t++) {
        double row[2] = {0, 0};
        for (size_t i = 0, at = t * C; i < C; i += BLOCK, at += BLOCK)
            xielu_block_bwd((real *)dx + at, row, (const real *)dy + at,
                            (const real *)x + at, C - i < BLOCK ? C - i : BLOCK,
                            &s);
        to[t] = s.da * (real)row[0];
        to[N + t] = s.db * (real)row[1];
    }
    return 0;
}

PP_GELU_FWD(PP_KERNEL(gelu_fwd))
{
    static void (*const forms[])(real *, const real *, size_t) = {
        [PP_GELU_TANH] = tanh_fwd,
        [PP_GELU_ERF] = erf_fwd,
        [PP_GELU_SIGMOID] = sigmoid_fwd,
        [PP_RELU_SQUARED] = square_fwd,
    };
    (void)stream;
    forms[form](y, x, n);
    return 0;
}

PP_GELU_BWD(PP_KERNEL(gelu_bwd))
{
    static void (*const forms[])(real *, const real *, const real *, size_t) = {
        [PP_GELU_TANH] = tanh_bwd,
        [PP_GELU_ERF] = erf_bwd,
        [PP_GELU_SIGMOID] = sigmoid_bwd,
        [PP_RELU_SQUARED] = square_bwd,
    };
    (void)stream;
    forms[form](dx, dy, x, n);
    return 0;
}
