/* SPDX-License-Identifier: MIT */
/* swiglu on the CPU. */
#include "swiglu.h"

#include "real.h"

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
