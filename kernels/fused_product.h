/* SPDX-License-Identifier: MIT */
/* fused_product - a matrix product with a bias, a residual or a sum of columns,
 * in one kernel of cuBLASLt.
 *
 * The algorithm is the first that cuBLASLt proposes for the shape, with fp32
 * sums and without reductions that race. It depends on the shape only: cuBLASLt
 * is told that every address has an alignment of 16 bytes, and nothing is
 * timed. */
#ifndef PP_KERNELS_FUSED_PRODUCT_H
#define PP_KERNELS_FUSED_PRODUCT_H

#include <stddef.h>

#include "cublas.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pp_epilogue {
    PP_EPILOGUE_NONE,
    PP_EPILOGUE_BIAS, /* adds bias (m), of the type of d, to every column */
    PP_EPILOGUE_SUMS  /* writes bias (n), of the type of d: sums over k of op(b)
                       */
};

/* Column-major: d (m, n) = op(a) op(b) + beta c. c and d have one type and one
 * leading dimension, and may be the same. Matrices and their columns are device
 * memory with PP_FUSED_ALIGNMENT. */
struct pp_fused_product {
    int op_a, op_b; /* PP_CUBLAS_OP_N or _T */
    size_t m, n, k;
    int type_in, type_out; /* PP_CUBLAS_R_... */
    size_t lda, ldb, ldd;
    enum pp_epilogue epilogue;
    float beta;
    const void *a, *b, *c; /* c: d if beta is 0 */
    void *d, *bias;        /* bias: NULL without an epilogue */
};

#define PP_FUSED_ALIGNMENT 16

/* cuBLASLt has no kernel for the product, and nothing was queued. */
#define PP_NOT_FUSED (-1)

struct pp_fuser;

/* The workspace is device memory. Other users of the same stream may share it.
 * lt outlives the fuser. Returns NULL on failure. */
struct pp_fuser *pp_fuser_create(const struct pp_cublaslt *lt, void *workspace,
                                 size_t workspace_bytes);

/* Accepts NULL. */
void pp_fuser_destroy(struct pp_fuser *f);

/* Queues the product. Returns 0, PP_NOT_FUSED, or a cublasStatus_t. */
int pp_fused_product(struct pp_fuser *f, const struct pp_fused_product *p,
                     void *stream);

#ifdef __cplusplus
}
#endif

#endif
