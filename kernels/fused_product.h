/* SPDX-License-Identifier: MIT */
/* fused_product - a matrix product and what is added to it, or summed beside
 * it, in one kernel of cuBLASLt.
 *
 * The algorithm is cuBLASLt's first for the shape, with sums in fp32 and none
 * that race: it depends on the shape alone, as all addresses are taken to be of
 * 16 bytes and no better, and nothing is timed. */
#ifndef PP_KERNELS_FUSED_PRODUCT_H
#define PP_KERNELS_FUSED_PRODUCT_H

#include <stddef.h>

#include "cublaslt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pp_epilogue {
    PP_EPILOGUE_NONE,
    PP_EPILOGUE_BIAS, /* bias (m) of d's type is added to every column */
    PP_EPILOGUE_SUMS /* bias (n) of d's type is written: sums over k of op(b) */
};

/* Column-major: d (m, n) = op(a) op(b) + beta c, c and d of one type and
 * leading dimension, and maybe the same. Device memory, aligned to 16 bytes,
 * and so is every column. */
struct pp_fused_product {
    int op_a, op_b; /* PP_CUBLAS_OP_N or _T */
    size_t m, n, k;
    int type_in, type_out; /* PP_CUBLAS_R_... */
    size_t lda, ldb, ldd;
    enum pp_epilogue epilogue;
    float beta;
    const void *a, *b, *c; /* c: d where beta is 0 */
    void *d, *bias;        /* bias: NULL without an epilogue */
};

#define PP_FUSED_ALIGNMENT 16

/* cuBLASLt has nothing for it: nothing was queued. */
#define PP_NOT_FUSED (-1)

struct pp_fuser;

/* The workspace, device memory, may be that of others on the same stream.
 * lt outlives it. NULL when it cannot be opened. */
struct pp_fuser *pp_fuser_create(const struct pp_cublaslt *lt, void *workspace,
                                 size_t workspace_bytes);

/* Accepts NULL. */
void pp_fuser_destroy(struct pp_fuser *f);

/* Queues the product: 0, PP_NOT_FUSED, or a cublasStatus_t. */
int pp_fused_product(struct pp_fuser *f, const struct pp_fused_product *p,
                     void *stream);

#ifdef __cplusplus
}
#endif

#endif
