/* SPDX-License-Identifier: MIT */
/* gelu on the CPU. (1 + tanh(u)) / 2 is the sigmoid of 2 u, so that the form by
 * tanh needs one exp. The form by erf uses libm's. */
#include "kernels.h"

#include <math.h>

#include "real.h"

#define ROOT ((real)0.79788456080286535588) /* sqrt(2 / pi) */
#define CUBE ((real)0.044715)
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

static double probability(double x)
{
    return 0.5 * (1 + erf(x * ROOT_HALF));
}

static void erf_fwd(real *y, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (real)((double)x[i] * probability((double)x[i]));
}

static void erf_bwd(real *dx, const real *dy, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double a = (double)x[i], density = DENSITY * exp(-0.5 * a * a);
        dx[i] = (real)((double)dy[i] * (probability(a) + a * density));
    }
}

PP_GELU_FWD(PP_KERNEL(gelu_fwd))
{
    (void)stream;
    (exact ? erf_fwd : tanh_fwd)(y, x, n);
    return 0;
}

PP_GELU_BWD(PP_KERNEL(gelu_bwd))
{
    (void)stream;
    (exact ? erf_bwd : tanh_bwd)(dx, dy, x, n);
    return 0;
}
