/* SPDX-License-Identifier: MIT */
/* cublaslt - the functions of cuBLASLt that are used, found when the program
 * runs; without them products are by cuBLAS and what follows them by kernels.
 *
 * Types are the ABI's (enumerations are int, handles and descriptors pointers);
 * cublaslt.c checks them against the toolkit's header. */
#ifndef PP_KERNELS_CUBLASLT_H
#define PP_KERNELS_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    PP_CUBLASLT_PREFERENCE_ALIGNMENT = 5, /* of a; b, c, d are the next ones */
    PP_CUBLASLT_REDUCTION_COMPUTE_TYPE = 2,
    PP_CUBLAS_NOT_SUPPORTED = 15
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
    void *library; /* NULL: there is none */
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

/* Opens cuBLASLt. 0, or -1 and the struct zeroed. */
int pp_cublaslt_open(struct pp_cublaslt *l);

/* Accepts a zeroed struct. */
void pp_cublaslt_close(struct pp_cublaslt *l);

#ifdef __cplusplus
}
#endif

#endif
