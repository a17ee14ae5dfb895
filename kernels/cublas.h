/* SPDX-License-Identifier: MIT */
/* cublas - the functions that we use of cuBLAS and cuBLASLt. They are loaded at
 * run time, so that the program starts on a machine without the libraries.
 *
 * Types are as in the ABI: an enumeration is an int, a handle or a
 * descriptor a pointer. cublas.c checks the values against the toolkit's
 * headers. */
#ifndef PP_KERNELS_CUBLAS_H
#define PP_KERNELS_CUBLAS_H

#include <stddef.h>
#include <stdint.h>

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
    PP_CUBLAS_FULL_REDUCTION =
        16, /* CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION */
    PP_CUBLAS_NOT_SUPPORTED = 15
};

/* --- cuBLASLt --- */

enum {
    PP_CUBLASLT_DESC_OP_A = 3,
    PP_CUBLASLT_DESC_OP_B = 4,
    PP_CUBLASLT_DESC_EPILOGUE = 7,
    PP_CUBLASLT_DESC_BIAS = 8,
    PP_CUBLASLT_EPILOGUE_DEFAULT = 1,
    PP_CUBLASLT_EPILOGUE_BIAS = 4,
    PP_CUBLASLT_EPILOGUE_BGRADB = 512,
    PP_CUBLASLT_PREFERENCE_WORKSPACE = 1,
    PP_CUBLASLT_PREFERENCE_REDUCTION = 3,
    PP_CUBLASLT_PREFERENCE_ALIGNMENT =
        5, /* alignment of a; b, c and d follow */
    PP_CUBLASLT_REDUCTION_COMPUTE_TYPE = 2
};

struct pp_cublaslt_algorithm {
    uint64_t data[8];
};

struct pp_cublaslt_result {
    struct pp_cublaslt_algorithm algorithm;
    size_t workspace_bytes;
    int state; /* a cublasStatus_t */
    float waves;
    int reserved[4];
};

struct pp_cublaslt {
    void *library; /* NULL if cuBLASLt was not found */
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*desc_create)(void **desc, int compute, int scale_type);
    int (*desc_destroy)(void *desc);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows,
                         uint64_t columns, int64_t ld);
    int (*layout_destroy)(void *layout);
    int (*preference_create)(void **preference);
    int (*preference_destroy)(void *preference);
    int (*preference_set)(void *preference, int attribute, const void *value,
                          size_t bytes);
    int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c,
                     void *d, void *preference, int n,
                     struct pp_cublaslt_result *results, int *n_results);
    /* D = alpha op(A) op(B) + beta C, then the epilogue */
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a,
                  void *layout_a, const void *b, void *layout_b,
                  const void *beta, const void *c, void *layout_c, void *d,
                  void *layout_d, const struct pp_cublaslt_algorithm *algorithm,
                  void *workspace, size_t workspace_bytes, void *stream);
};

/* --- the libraries --- */

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
    /* The same for n groups of size[i] products each, whose matrices begin
     * where arrays in device memory say; the other arrays are in host memory.
     * NULL in a cuBLAS before 12.5. */
    int (*gemm_grouped)(void *handle, const int *op_a, const int *op_b,
                        const int *m, const int *n, const int *k,
                        const void *alpha, const void *const *a, int type_a,
                        const int *lda, const void *const *b, int type_b,
                        const int *ldb, const void *beta, void *const *c,
                        int type_c, const int *ldc, int n_groups,
                        const int *size, int compute);
    struct pp_cublaslt lt; /* optional: its library may be NULL */
};

/* Opens cuBLAS, and cuBLASLt if it is installed. Returns 0, or -1 with the
 * reason in why (n bytes). */
int pp_cublas_open(struct pp_cublas *c, char *why, size_t n);

/* Accepts a zeroed struct. */
void pp_cublas_close(struct pp_cublas *c);

#ifdef __cplusplus
}
#endif

#endif
