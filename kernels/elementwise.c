/* SPDX-License-Identifier: MIT */
/* elementwise on the CPU. */
#include "elementwise.h"

#include <string.h>

#include "real.h"

#define BLOCK 1024

PP_CLONES static void add_all(real *y, const real *a, const real *b, size_t n)
{
    PP_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
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

PP_SUM_SQUARES(PP_KERNEL(sum_squares))
{
    (void)stream;
    const real *in = x;
    double sum = 0;
    for (size_t at = 0; at < n; at += BLOCK)
        sum += block_squares(in + at, n - at < BLOCK ? n - at : BLOCK);
    *out = sum;
    return 0;
}
