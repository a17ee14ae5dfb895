/* SPDX-License-Identifier: MIT */
/* elementwise, rope and swiglu on the CPU. */
#include "kernels.h"

#include <string.h>

#include "kernel_sizes.h"
#include "real.h"

#define BLOCK 1024

PP_CLONES static void add_all(real *y, const real *a, const real *b, size_t n)
{
    PP_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

PP_CLONES static void scale_all(real *y, real factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] *= factor;
}

PP_CLONES static void cap_all(real *y, real cap, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = cap * fast_tanh(y[i] / cap);
}

PP_CLONES static double block_squares(const real *x, size_t n)
{
    return dot_rows(x, x, n);
}

PP_ADD(PP_KERNEL(add))
{
    (void)stream;
    add_all(y, a, b, n);
    return 0;
}

PP_ADD(PP_KERNEL(add_gradient))
{
    (void)stream;
    add_all(y, a, b, n);
    return 0;
}

PP_COPY(PP_KERNEL(copy))
{
    (void)stream;
    real *out = y;
    const real *in = x;
    for (size_t t = 0; t < N; t++)
        memcpy(out + t * ldy, in + t * ldx, C * sizeof *out);
    return 0;
}

PP_ZERO(PP_KERNEL(zero))
{
    (void)stream;
    if (n)
        memset(y, 0, n * sizeof(real));
    return 0;
}

PP_SCALE_BY(PP_KERNEL(scale_by))
{
    (void)stream;
    for (size_t t = 0; t < N; t++)
        scale_all((real *)y + t * ldy, (real)factor, C);
    return 0;
}

PP_SOFTCAP(PP_KERNEL(softcap))
{
    (void)stream;
    cap_all(y, (real)factor, n);
    return 0;
}

PP_SUM_SQUARES(PP_KERNEL(sum_squares))
{
    (void)stream;
    const real *in = x;
    for (size_t at = 0; at < n; at += BLOCK) {
        double sum = block_squares(in + at, n - at < BLOCK ? n - at : BLOCK);
        if (at % PP_SQUARES_BLOCK == 0)
            out[at / PP_SQUARES_BLOCK] = 0;
        out[at / PP_SQUARES_BLOCK] += sum;
    }
    return 0;
}

/* --- rope --- */

PP_CLONES static void rotate(real *x, const real *cos, const real *sin,
                             size_t half, real sign)
{
    real *lo = x, *hi = x + half;
    PP_INDEPENDENT
    for (size_t i = 0; i < half; i++) {
        real a = lo[i], b = hi[i], s = sign * sin[i];
        lo[i] = a * cos[i] - b * s;
        hi[i] = b * cos[i] + a * s;
    }
}

static void rotate_pairs(real *x, const real *cos, const real *sin, size_t half,
                         real sign)
{
    for (size_t i = 0; i < half; i++) {
        real a = x[2 * i], b = x[2 * i + 1], s = sign * sin[i];
        x[2 * i] = a * cos[i] - b * s;
        x[2 * i + 1] = b * cos[i] + a * s;
    }
}

PP_ROPE(PP_KERNEL(rope))
{
    (void)stream;
    real *row = x;
    const real *c = cos, *s = sin;
    size_t half = HD / 2;
    for (size_t t = 0; t < N; t++) {
        size_t at = (size_t)position[t] * half;
        for (size_t g = 0; g < G; g++)
            (adjacent ? rotate_pairs : rotate)(row + t * ldx + g * ldg, c + at,
                                               s + at, half, (real)direction);
    }
    return 0;
}

PP_ROPE_ON_AXES(PP_KERNEL(rope_axes))
{
    real c[PP_MOST_AXES_HEAD / 2], s[PP_MOST_AXES_HEAD / 2];
    const real *cos_t = axes->cos, *sin_t = axes->sin;
    const int32_t first = 0;
    size_t half = HD / 2;
    for (size_t t = 0; t < N; t++) {
        for (size_t a = 0, i = 0; a < axes->n; a++) {
            int32_t p = position[t * axes->n + a];
            for (size_t end = i + axes->width[a]; i < end; i++) {
                double angle = cos_t ? 0 : p * axes->frequency[i];
                c[i] = cos_t ? cos_t[(size_t)p * half + i] : (real)cos(angle);
                s[i] = cos_t ? sin_t[(size_t)p * half + i] : (real)sin(angle);
            }
        }
        PP_KERNEL(rope)
        ((real *)x + t * ldx, c, s, &first, 1, G, HD, ldx, ldg, false,
         direction, stream);
    }
    return 0;
}

/* --- swiglu --- */

PP_CLONES static void swiglu_row(real *restrict y, const real *restrict gate,
                                 const real *restrict up, size_t C)
{
    for (size_t i = 0; i < C; i++)
        y[i] = gate[i] / (1 + fast_exp(-gate[i])) * up[i];
}

/* d silu(g) = s (1 + g (1 - s)), s = sigmoid(g). */
PP_CLONES static void swiglu_row_bwd(real *restrict dgate, real *restrict dup,
                                     const real *restrict dy,
                                     const real *restrict gate,
                                     const real *restrict up, size_t C)
{
    for (size_t i = 0; i < C; i++) {
        real g = gate[i], s = 1 / (1 + fast_exp(-g));
        dgate[i] = dy[i] * up[i] * (s * (1 + g * (1 - s)));
        dup[i] = dy[i] * (g * s);
    }
}

PP_SWIGLU_FWD(PP_KERNEL(swiglu_fwd))
{
    (void)stream;
    real *out = y;
    const real *in = gu;
    for (size_t t = 0; t < N; t++)
        swiglu_row(out + t * C, in + t * 2 * C, in + t * 2 * C + C, C);
    return 0;
}

PP_SWIGLU_BWD(PP_KERNEL(swiglu_bwd))
{
    (void)stream;
    real *out = dgu;
    const real *d = dy, *in = gu;
    for (size_t t = 0; t < N; t++)
        swiglu_row_bwd(out + t * 2 * C, out + t * 2 * C + C, d + t * C,
                       in + t * 2 * C, in + t * 2 * C + C, C);
    return 0;
}
