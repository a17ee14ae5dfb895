/* SPDX-License-Identifier: MIT */
/* linear on a GPU. cuBLAS is column-major, so a row-major matrix is its
 * transpose there. A bias, a residual or the gradient of a bias is fused with
 * the product if cuBLASLt has a kernel for that, and has a kernel of its own
 * otherwise. */
#include "columns.cuh"
#include "cublas.h"
#include "device.cuh"
#include "fused_product.h"

#include <limits.h>

#define THREADS 256

/* A matrix in cuBLAS's column-major view. */
struct blas_matrix {
    const void *at;
    int op;
    size_t ld;
};

/* c (m, n), column-major, = op(a) op(b) + beta c */
static int plain_product(void *stream, struct blas_matrix a,
                         struct blas_matrix b, size_t m, size_t n, size_t k,
                         float beta, void *c, int type_c, size_t ldc)
{
    const struct pp_cuda_stream *s = (const struct pp_cuda_stream *)stream;
    const float one = 1;
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX || a.ld > INT_MAX ||
        b.ld > INT_MAX || ldc > INT_MAX)
        return (int)cudaErrorInvalidValue;
    int rc = s->cublas->gemm(
        s->blas, a.op, b.op, (int)m, (int)n, (int)k, &one, a.at,
        PP_ELEMENT_TYPE, (int)a.ld, b.at, PP_ELEMENT_TYPE, (int)b.ld, &beta, c,
        type_c, (int)ldc, PP_CUBLAS_COMPUTE_32F, PP_CUBLAS_GEMM_DEFAULT);
    return rc ? PP_CUBLAS_ERROR + rc : 0;
}

/* Returns whether the shape and the addresses permit a fused product. In a run
 * every tensor begins on a cache line, so that only the shape decides. */
static bool may_fuse(const struct pp_fused_product *p)
{
    const void *matrices[] = {p->a, p->b, p->c, p->d, p->bias};
    const size_t sizes[] = {p->m, p->n, p->k, p->lda, p->ldb, p->ldd};
    for (const void *at : matrices)
        if ((uintptr_t)at % PP_FUSED_ALIGNMENT)
            return false;
    for (size_t size : sizes)
        if (size > INT_MAX)
            return false;
    return p->lda % PP_PACK == 0 && p->ldb % PP_PACK == 0 &&
           p->ldd % PP_PACK == 0;
}

/* Returns PP_NOT_FUSED, or the result of a kernel. */
static int try_fused(void *stream, const struct pp_fused_product *p)
{
    const struct pp_cuda_stream *s = (const struct pp_cuda_stream *)stream;
    if (!s->fuser || !may_fuse(p))
        return PP_NOT_FUSED;
    int rc = pp_fused_product(s->fuser, p, s->stream);
    return rc > 0 ? PP_CUBLAS_ERROR + rc : rc;
}

/* y += b + r, either of which may be NULL */
static __global__ void add_terms_kernel(elem *y, const elem *b, const elem *r,
                                        size_t N, size_t OC, size_t ldy)
{
    for (size_t i = grid_thread(); i < N * OC; i += grid_threads()) {
        size_t at = i / OC * ldy + i % OC;
        float sum = to_float(y[at]);
        if (b)
            sum += to_float(b[i % OC]);
        if (r)
            sum += to_float(r[at]);
        store(y + at, sum);
    }
}

static int add_terms(void *y, const void *b, const void *r, size_t N, size_t OC,
                     size_t ldy, void *stream)
{
    return b || r ? PP_LAUNCH(add_terms_kernel, blocks_for(N * OC, THREADS),
                              THREADS, 0, stream, (elem *)y, (const elem *)b,
                              (const elem *)r, N, OC, ldy)
                  : 0;
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
    struct blas_matrix a = {w, PP_CUBLAS_OP_T, C},
                       in = {x, PP_CUBLAS_OP_N, ldx};
    const struct pp_fused_product p = {
        .op_a = a.op,
        .op_b = in.op,
        .m = OC,
        .n = N,
        .k = C,
        .type_in = PP_ELEMENT_TYPE,
        .type_out = PP_ELEMENT_TYPE,
        .lda = C,
        .ldb = ldx,
        .ldd = ldy,
        .epilogue = b ? PP_EPILOGUE_BIAS : PP_EPILOGUE_NONE,
        .beta = r ? 1.0f : 0.0f,
        .a = w,
        .b = x,
        .c = r ? r : y,
        .d = y,
        .bias = (void *)b,
    };
    if (!N || !OC)
        return 0;
    int rc = b || r ? try_fused(stream, &p) : PP_NOT_FUSED;
    if (rc != PP_NOT_FUSED)
        return rc;
    rc =
        plain_product(stream, a, in, OC, N, C, r == y, y, PP_ELEMENT_TYPE, ldy);
    return rc ? rc : add_terms(y, b, r == y ? NULL : r, N, OC, ldy, stream);
}

/* logits += b, in float */
static __global__ void add_offsets_kernel(float *logits, const elem *b,
                                          size_t N, size_t E)
{
    for (size_t i = grid_thread(); i < N * E; i += grid_threads())
        logits[i] += to_float(b[i % E]);
}

PP_SCORES(PP_CUDA(scores))
{
    struct blas_matrix a = {w, PP_CUBLAS_OP_T, C}, in = {x, PP_CUBLAS_OP_N, C};
    if (!N || !E)
        return 0;
    int rc =
        plain_product(stream, a, in, E, N, C, 0, logits, PP_CUBLAS_R_32F, E);
    if (rc || !b)
        return rc;
    return PP_LAUNCH(add_offsets_kernel, blocks_for(N * E, THREADS), THREADS, 0,
                     stream, (float *)logits, (const elem *)b, N, E);
}

PP_LINEAR_BWD_INPUT(PP_CUDA(linear_bwd_input))
{
    struct blas_matrix a = {w, PP_CUBLAS_OP_N, C},
                       d = {dy, PP_CUBLAS_OP_N, lddy};
    if (!N)
        return 0;
    int rc = plain_product(stream, a, d, C, N, OC, r == dx, dx, PP_ELEMENT_TYPE,
                           lddx);
    return rc ? rc
              : add_terms(dx, NULL, r == dx ? NULL : r, N, C, lddx, stream);
}

/* Computes dw and the gradient of the bias in one product. It writes the sums
 * of the bias to the partials, and then adds them to db. */
static int fused_gradients(void *dw, void *db, struct blas_matrix d,
                           struct blas_matrix in, size_t N, size_t C, size_t OC,
                           bool writes, void *stream)
{
    void *sums = ((const struct pp_cuda_stream *)stream)->partials;
    const struct pp_fused_product p = {
        .op_a = in.op,
        .op_b = d.op,
        .m = C,
        .n = OC,
        .k = N,
        .type_in = PP_ELEMENT_TYPE,
        .type_out = PP_CUBLAS_R_32F,
        .lda = in.ld,
        .ldb = d.ld,
        .ldd = C,
        .epilogue = PP_EPILOGUE_SUMS,
        .beta = writes ? 0.0f : 1.0f,
        .a = in.at,
        .b = d.at,
        .c = dw,
        .d = dw,
        .bias = sums,
    };
    if (OC > PP_CUDA_PARTIAL_BYTES / sizeof(float))
        return PP_NOT_FUSED;
    int rc = try_fused(stream, &p);
    return rc ? rc : PP_CUDA(add_gradient)(db, db, sums, OC, stream);
}

PP_LINEAR_BWD_WEIGHT(PP_CUDA(linear_bwd_weight))
{
    struct blas_matrix in = {x, PP_CUBLAS_OP_N, ldx},
                       d = {dy, PP_CUBLAS_OP_T, lddy};
    if (!N)
        return 0;
    int rc = db ? fused_gradients(dw, db, d, in, N, C, OC, writes, stream)
                : PP_NOT_FUSED;
    if (rc != PP_NOT_FUSED)
        return rc;
    rc =
        plain_product(stream, in, d, C, OC, N, !writes, dw, PP_CUBLAS_R_32F, C);
    if (rc || !db)
        return rc;
    struct bias_term term = {(const elem *)dy, lddy};
    return add_columns((float *)db, term, N, OC, stream);
}
