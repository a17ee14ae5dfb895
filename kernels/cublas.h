/* SPDX-License-Identifier: MIT */
/* cublas - the functions of cuBLAS that are used, found when the program runs,
 * so that it starts where there is none.
 *
 * Types are the ABI's (enumerations are int, handles pointers); cublas.c
 * checks the values against the toolkit's header. */
#ifndef PP_KERNELS_CUBLAS_H
#define PP_KERNELS_CUBLAS_H

#include <stddef.h>

#include "cublaslt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PP_CUBLAS_OP_N = 0,
    PP_CUBLAS_OP_T = 1,
    PP_CUBLAS_R_32F = 0,   /* CUDA_R_32F */
    PP_CUBLAS_R_16BF = 14, /* CUDA_R_16BF */
    PP_CUBLAS_COMPUTE_32F = 68,
    PP_CUBLAS_GEMM_DEFAULT = -1,
    PP_CUBLAS_FULL_REDUCTION = 16 /* CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_
                                     REDUCTION */
};

struct pp_cublas {
    void *library;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_workspace)(void *handle, void *workspace, size_t bytes);
    int (*set_math_mode)(void *handle, int mode);
    /* C (m, n) = alpha op(A) op(B) + beta C, column-major */
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k,
                const void *alpha, const void *a, int type_a, int lda,
                const void *b, int type_b, int ldb, const void *beta, void *c,
                int type_c, int ldc, int compute, int algorithm);
    struct pp_cublaslt lt; /* without a library where there is none */
};

/* Opens cuBLAS, and cuBLASLt where it is there. 0, or -1 with the reason in why
 * (n bytes). */
int pp_cublas_open(struct pp_cublas *c, char *why, size_t n);

/* Accepts a zeroed struct. */
void pp_cublas_close(struct pp_cublas *c);

#ifdef __cplusplus
}
#endif

#endif
