/* SPDX-License-Identifier: MIT */
/* cuda_stream - opens a stream with its cuBLAS handle and its buffers. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#include "cublas.h"
#include "cuda_stream.h"
#include "fused_product.h"

static int cuda_failed(cudaError_t rc, const char *what, char *why, size_t n)
{
    if (rc == cudaSuccess)
        return 0;
    snprintf(why, n, "%s: %s", what, cudaGetErrorString(rc));
    return -1;
}

static int open_blas(struct pp_cuda_stream *s, char *why, size_t n)
{
    const struct pp_cublas *c = s->cublas;
    int rc = c->create(&s->blas);
    if (!rc)
        rc = c->set_stream(s->blas, s->stream);
    if (!rc)
        rc = c->set_workspace(s->blas, s->workspace, PP_CUDA_WORKSPACE_BYTES);
    if (!rc)
        rc = c->set_math_mode(s->blas, PP_CUBLAS_FULL_REDUCTION);
    if (!rc)
        return 0;
    snprintf(why, n, "cuBLAS: status %d", rc);
    return -1;
}

int pp_cuda_stream_open(struct pp_cuda_stream *s,
                        const struct pp_cublas *cublas, char *why, size_t n)
{
    cudaStream_t stream = NULL;
    *s = (struct pp_cuda_stream){.cublas = cublas};
    int rc =
        cuda_failed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                    "stream", why, n) ||
        cuda_failed(cudaMalloc(&s->workspace, PP_CUDA_WORKSPACE_BYTES),
                    "workspace", why, n) ||
        cuda_failed(cudaMalloc(&s->partials, PP_CUDA_PARTIAL_BYTES),
                    "partial sums", why, n);
    s->stream = stream;
    if (!rc && !open_blas(s, why, n)) {
        if (cublas->lt.library)
            s->fuser = pp_fuser_create(&cublas->lt, s->workspace,
                                       PP_CUDA_WORKSPACE_BYTES);
        return 0;
    }
    pp_cuda_stream_close(s);
    return -1;
}

void pp_cuda_stream_close(struct pp_cuda_stream *s)
{
    pp_fuser_destroy(s->fuser);
    if (s->blas)
        s->cublas->destroy(s->blas);
    cudaFree(s->workspace);
    cudaFree(s->partials);
    if (s->stream)
        cudaStreamDestroy(s->stream);
    *s = (struct pp_cuda_stream){0};
}
