/* SPDX-License-Identifier: MIT */
/* emulated_blas - what cuBLAS's documentation says of its product, on the
 * CPU: sums in double, rounded once. */
#ifndef PP_TESTS_EMULATED_BLAS_H
#define PP_TESTS_EMULATED_BLAS_H

#include <stddef.h>

/* Element (i, j) of op(x), column-major. */
double pp_emulated_element(const void *x, int type, int op, int ld, int i,
                           int j);
void pp_emulated_put(void *x, int type, size_t at, float f);

/* struct pp_cublas's gemm; handle is not used. */
int pp_emulated_gemm(void *handle, int op_a, int op_b, int m, int n, int k,
                     const void *alpha, const void *a, int type_a, int lda,
                     const void *b, int type_b, int ldb, const void *beta,
                     void *c, int type_c, int ldc, int compute, int algorithm);

#endif
