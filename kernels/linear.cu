/* SPDX-License-Identifier: MIT */
/* linear on a GPU: products by cuBLAS, which is column-major: a row-major
 * matrix is its transpose there. */
#include "columns.cuh"
#include "cublas.h"
#include "cuda.cuh"

#include <limits.h>

#define THREADS 256

#ifdef PP_ELEMENT_F32
#define ELEMENT_TYPE PP_CUBLAS_R_32F
#else
#define ELEMENT_TYPE PP_CUBLAS_R_16BF
#endif

/* A matrix as cuBLAS sees it. */
struct matrix {
    const void *at;
    int op;
    size_t ld;
};

/* c (m, n), column-major, = op(a) op(b) + beta c */
static int product(void *stream, struct matrix a, struct matrix b, size_t m,
                   size_t n, size_t k, float beta, void *c, int type_c,
                   size_t ldc)
{
    const struct pp_cuda_stream *s = (const struct pp_cuda_stream *)stream;
    const float one = 1;
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX || a.ld > INT_MAX ||
        b.ld > INT_MAX || ldc > INT_MAX)
        return (int)cudaErrorInvalidValue;
    int rc = s->cublas->gemm(s->blas, a.op, b.op, (int)m, (int)n, (int)k, &one,
                             a.at, ELEMENT_TYPE, (int)a.ld, b.at, ELEMENT_TYPE,
                             (int)b.ld, &beta, c, type_c, (int)ldc,
                             PP_CUBLAS_COMPUTE_32F, PP_CUBLAS_GEMM_DEFAULT);
    return rc ? PP_CUBLAS_ERROR + rc : 0;
}

static __global__ void bias_kernel(elem *y, const elem *b, size_t N, size_t OC,
                                   size_t ldy)
{
    for (size_t i = grid_thread(); i < N * OC; i += grid_threads()) {
        elem *at = y + i / OC * ldy + i % OC;
        store(at, to_float(*at) + to_float(b[i % OC]));
    }
}

struct bias_term {
    const elem *dy;
    size_t lddy;

    __device__ float at(size_t t, size_t c) const
    {
        return to_float(dy[t * lddy + c]);
    }
};

PP_LINEAR_FWD(PP_CUDA(linear_fwd))
{
    struct matrix a = {w, PP_CUBLAS_OP_T, C}, in = {x, PP_CUBLAS_OP_N, ldx};
    if (!N || !OC)
        return 0;
    int rc = product(stream, a, in, OC, N, C, 0, y, ELEMENT_TYPE, ldy);
    if (rc || !b)
        return rc;
    return PP_LAUNCH(bias_kernel, blocks_for(N * OC, THREADS), THREADS, 0,
                     stream, (elem *)y, (const elem *)b, N, OC, ldy);
}

PP_LINEAR_BWD_INPUT(PP_CUDA(linear_bwd_input))
{
    struct matrix a = {w, PP_CUBLAS_OP_N, C}, d = {dy, PP_CUBLAS_OP_N, lddy};
    return N ? product(stream, a, d, C, N, OC, 0, dx, ELEMENT_TYPE, lddx) : 0;
}

PP_LINEAR_BWD_WEIGHT(PP_CUDA(linear_bwd_weight))
{
    struct matrix in = {x, PP_CUBLAS_OP_N, ldx}, d = {dy, PP_CUBLAS_OP_T, lddy};
    if (!N)
        return 0;
    int rc = product(stream, in, d, C, OC, N, 1, dw, PP_CUBLAS_R_32F, C);
    if (rc || !db)
        return rc;
    struct bias_term term = {(const elem *)dy, lddy};
    return add_columns((float *)db, term, N, OC, stream);
}
