/* SPDX-License-Identifier: MIT */
/* rope on the CPU. */
#include "rope.h"

#include "real.h"

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

PP_ROPE(PP_KERNEL(rope))
{
    (void)stream;
    real *row = x;
    const real *c = cos, *s = sin;
    size_t half = HD / 2;
    for (size_t t = 0; t < N; t++) {
        size_t at = (size_t)position[t] * half;
        for (size_t g = 0; g < G; g++)
            rotate(row + t * ldx + g * HD, c + at, s + at, half,
                   (real)direction);
    }
    return 0;
}
