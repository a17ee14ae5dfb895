/* SPDX-License-Identifier: MIT */
/* products - small matrix products whose operands stay in cache, and the two
 * passes of a softmax over their results.
 *
 * BLAS copies its operands before it multiplies, which costs as much as a
 * product of a few dozen rows. These products read the operands in place.
 * Row-major:
 *
 *   nn   C (M, N) = A (M, K) B (K, N), or += if add
 *   tn   C (M, N) = A^T B, A (K, M)
 *
 * An element of C is the sum over k in ascending order; if add, the sum begins
 * with the old element. So it does not depend on M, N or its position in C. The
 * sums use fused multiply-adds on machines that have them, so that bits are the
 * same on one kind of machine only, as with BLAS. The functions access nothing
 * outside M, N and K. */
#ifndef PP_KERNELS_PRODUCTS_H
#define PP_KERNELS_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>

#include "real.h"

typedef void pp_product_fn(size_t M, size_t N, size_t K, const real *a,
                           size_t lda, const real *b, size_t ldb, bool add,
                           real *c, size_t ldc);

/* Returns the largest of n > 0 elements. */
typedef real pp_row_max_fn(const real *x, size_t n);

/* x = exp(x - shift). shift may be below the largest x by a rounding error.
 * Returns the sum, in the element's type: rows have a few hundred elements. */
typedef real pp_row_exp_fn(real *x, size_t n, real shift);

struct pp_products {
    const char *name; /* name of the instruction set */
    pp_product_fn *nn, *tn;
    pp_row_max_fn *max;
    pp_row_exp_fn *exp;
};

/* products.c is compiled once for each instruction set. */
extern const struct pp_products PP_KERNEL(products_base);
#ifdef PP_PRODUCTS_X86
extern const struct pp_products PP_KERNEL(products_avx2);
extern const struct pp_products PP_KERNEL(products_avx512);
#endif

/* Returns the i-th set that this machine can run, fastest first; NULL after the
 * last. */
PP_INLINE const struct pp_products *products_at(size_t i)
{
#ifdef PP_PRODUCTS_X86
    if (__builtin_cpu_supports("avx512f") && i-- == 0)
        return &PP_KERNEL(products_avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        i-- == 0)
        return &PP_KERNEL(products_avx2);
#endif
    return i == 0 ? &PP_KERNEL(products_base) : NULL;
}

#endif
