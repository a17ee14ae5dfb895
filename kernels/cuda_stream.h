/* SPDX-License-Identifier: MIT */
/* cuda_stream - the CUDA backend: a stream with the buffers and handles that
 * kernels need, and the two tables.
 *
 * A kernel's `stream` argument is a struct pp_cuda_stream, or NULL for the
 * default stream, which has no matrix products. Pointers are to device memory,
 * except for shapes and other structs. Kernels return 0, a cudaError_t, or
 * PP_CUBLAS_ERROR plus a cublasStatus_t. They queue work and never wait for
 * it. */
#ifndef PP_KERNELS_CUDA_STREAM_H
#define PP_KERNELS_CUDA_STREAM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernel_sizes.h"
#include "kernels.h"

#define PP_CUBLAS_ERROR 10000

struct pp_cublas; /* cublas.h */
struct pp_fuser;  /* fused_product.h */

struct pp_cuda_stream {
    void *stream; /* cudaStream_t */
    const struct pp_cublas *cublas;
    void *blas;      /* cublasHandle_t bound to stream, with a workspace */
    void *workspace; /* for cuBLAS, PP_CUDA_WORKSPACE_BYTES */
    struct pp_fuser *fuser; /* NULL without cuBLASLt */
    void *partials;         /* PP_CUDA_PARTIAL_BYTES of device memory */
};

/* Opens a stream on the device of the calling thread. Returns 0, or -1 with the
 * reason in why (n bytes). cublas outlives the stream. */
int pp_cuda_stream_open(struct pp_cuda_stream *s,
                        const struct pp_cublas *cublas, char *why, size_t n);

/* Accepts a zeroed struct. */
void pp_cuda_stream_close(struct pp_cuda_stream *s);

extern const struct pp_kernels pp_kernels_cuda_f32; /* cuda.cu */
extern const struct pp_kernels pp_kernels_cuda_bf16;

#ifdef __cplusplus
}
#endif

#endif
