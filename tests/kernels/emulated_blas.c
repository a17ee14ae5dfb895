/* SPDX-License-Identifier: MIT */
#include "emulated_blas.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cublas.h"

double pp_emulated_element(const void *x, int type, int op, int ld, int i,
                           int j)
{
    size_t at = op == PP_CUBLAS_OP_N ? (size_t)j * (size_t)ld + (size_t)i
                                     : (size_t)i * (size_t)ld + (size_t)j;
    if (type == PP_CUBLAS_R_32F)
        return (double)((const float *)x)[at];
    uint32_t word = (uint32_t)((const uint16_t *)x)[at] << 16;
    float f;
    memcpy(&f, &word, sizeof f);
    return (double)f;
}

void pp_emulated_put(void *x, int type, size_t at, float f)
{
    uint32_t word;
    if (type == PP_CUBLAS_R_32F) {
        ((float *)x)[at] = f;
        return;
    }
    memcpy(&word, &f, sizeof word);
    ((uint16_t *)x)[at] = (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

int pp_emulated_gemm(void *handle, int op_a, int op_b, int m, int n, int k,
                     const void *alpha, const void *a, int type_a, int lda,
                     const void *b, int type_b, int ldb, const void *beta,
                     void *c, int type_c, int ldc, int compute, int algorithm)
{
    (void)handle, (void)algorithm;
    int rows_a = op_a == PP_CUBLAS_OP_N ? m : k;
    int rows_b = op_b == PP_CUBLAS_OP_N ? k : n;
    if (lda < rows_a || ldb < rows_b || ldc < m ||
        compute != PP_CUBLAS_COMPUTE_32F)
        return 7; /* CUBLAS_STATUS_INVALID_VALUE */
    double by = (double)*(const float *)beta;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            size_t at = (size_t)j * (size_t)ldc + (size_t)i;
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += pp_emulated_element(a, type_a, op_a, lda, i, l) *
                       pp_emulated_element(b, type_b, op_b, ldb, l, j);
            sum *= (double)*(const float *)alpha;
            if (by != 0)
                sum += by * pp_emulated_element(c, type_c, PP_CUBLAS_OP_N, ldc,
                                                i, j);
            pp_emulated_put(c, type_c, at, (float)sum);
        }
    return 0;
}
