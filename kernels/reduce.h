/* SPDX-License-Identifier: MIT */
/* reduce - sums and maxima of a row in one fixed order.
 *
 * Sums are in double: element i goes to lane i % 16, lanes are folded in
 * halves, what does not fill the lanes is added last. The order depends on n
 * alone, never on the address or the instruction set. GNU vectors, because a
 * compiler may not reorder a plain sum. */
#ifndef PP_KERNELS_REDUCE_H
#define PP_KERNELS_REDUCE_H

#include <string.h>

#include "real.h"

#define PP_LANES 8
typedef real lanes __attribute__((vector_size(PP_LANES * sizeof(real))));
typedef double dlanes __attribute__((vector_size(PP_LANES * sizeof(double))));

PP_INLINE double fold(const dlanes *v)
{
    double s[PP_LANES];
    memcpy(s, v, sizeof s);
    for (int half = PP_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            s[j] += s[j + half];
    return s[0];
}

/* sum a[i] * b[i] in double; a and b may be the same. */
PP_INLINE double dot_rows(const real *a, const real *b, size_t n)
{
    dlanes sum0 = {0}, sum1 = {0};
    size_t i = 0;
    for (; i + 2 * PP_LANES <= n; i += 2 * PP_LANES) {
        lanes x0, y0, x1, y1;
        memcpy(&x0, a + i, sizeof x0);
        memcpy(&y0, b + i, sizeof y0);
        memcpy(&x1, a + i + PP_LANES, sizeof x1);
        memcpy(&y1, b + i + PP_LANES, sizeof y1);
        sum0 += __builtin_convertvector(x0, dlanes) *
                __builtin_convertvector(y0, dlanes);
        sum1 += __builtin_convertvector(x1, dlanes) *
                __builtin_convertvector(y1, dlanes);
    }
    sum0 += sum1;
    double s = fold(&sum0);
    for (; i < n; i++)
        s += (double)a[i] * (double)b[i];
    return s;
}

/* sum x[i] in double. */
PP_INLINE double sum_row(const real *x, size_t n)
{
    dlanes sum0 = {0}, sum1 = {0};
    size_t i = 0;
    for (; i + 2 * PP_LANES <= n; i += 2 * PP_LANES) {
        lanes x0, x1;
        memcpy(&x0, x + i, sizeof x0);
        memcpy(&x1, x + i + PP_LANES, sizeof x1);
        sum0 += __builtin_convertvector(x0, dlanes);
        sum1 += __builtin_convertvector(x1, dlanes);
    }
    sum0 += sum1;
    double s = fold(&sum0);
    for (; i < n; i++)
        s += (double)x[i];
    return s;
}

/* The largest of x; -infinity when n is 0. A maximum has no order. */
PP_INLINE real max_row(const real *x, size_t n)
{
    real best[2 * PP_LANES];
    for (int j = 0; j < 2 * PP_LANES; j++)
        best[j] = -(real)__builtin_inf();
    size_t i = 0;
    for (; i + 2 * PP_LANES <= n; i += 2 * PP_LANES)
        for (int j = 0; j < 2 * PP_LANES; j++)
            best[j] = x[i + (size_t)j] > best[j] ? x[i + (size_t)j] : best[j];
    for (; i < n; i++)
        best[0] = x[i] > best[0] ? x[i] : best[0];
    for (int j = 1; j < 2 * PP_LANES; j++)
        best[0] = best[j] > best[0] ? best[j] : best[0];
    return best[0];
}

#endif
