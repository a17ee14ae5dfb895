/* SPDX-License-Identifier: MIT */
/* device_cuda - one stream for each rank. What is put and copied goes into it
 * like the kernels do, so nothing needs an event. */
#include "run/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "cublas.h"
#include "cuda_stream.h"

struct gpu {
    struct pp_device base;
    struct pp_cublas cublas;
    struct pp_cuda_stream stream;
};

static int failed(cudaError_t rc, const char *what, struct pp_err *err)
{
    return rc == cudaSuccess ? 0
                             : pp_fail(err, PP_EXIT_SYSTEM, "CUDA: %s: %s",
                                       what, cudaGetErrorString(rc));
}

static cudaStream_t stream_of(const struct pp_device *d)
{
    return ((const struct gpu *)d)->stream.stream;
}

static int count(int *n, struct pp_err *err)
{
    cudaError_t rc = cudaGetDeviceCount(n);
    if (rc != cudaSuccess)
        return pp_fail(err, PP_EXIT_SYSTEM, "no GPU can be used: %s",
                       cudaGetErrorString(rc));
    return *n > 0 ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "there is no GPU");
}

static int cuda_check(int n_ranks, struct pp_err *err)
{
    struct pp_cublas cublas;
    char why[160];
    int n;
    (void)n_ranks; /* they share what there is */
    if (count(&n, err))
        return -1;
    if (pp_cublas_open(&cublas, why, sizeof why))
        return pp_fail(err, PP_EXIT_SYSTEM, "no matrix products: %s", why);
    pp_cublas_close(&cublas);
    return 0;
}

/* Lets this GPU read the others' memory where the machine can; elsewhere copies
 * between them take a way through the host's. */
static void reach_peers(int own, int n)
{
    for (int other = 0; other < n; other++)
        if (other != own && cudaDeviceEnablePeerAccess(other, 0) != cudaSuccess)
            cudaGetLastError(); /* taken back: it is no failure */
}

static void cuda_close(struct pp_device *d)
{
    struct gpu *g = (struct gpu *)d;
    if (!g)
        return;
    if (g->stream.stream)
        cudaStreamSynchronize(g->stream.stream);
    pp_cuda_stream_close(&g->stream);
    pp_cublas_close(&g->cublas);
    free(g);
}

static int cuda_open(int rank, struct pp_device **out, struct pp_err *err)
{
    char why[160];
    int n;
    struct gpu *g = calloc(1, sizeof *g);
    if (!g)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    g->base.ops = &pp_device_cuda;
    g->base.stream = &g->stream;
    if (count(&n, err) || failed(cudaSetDevice(rank % n), "GPU", err))
        goto out;
    reach_peers(rank % n, n);
    if (pp_cublas_open(&g->cublas, why, sizeof why) ||
        pp_cuda_stream_open(&g->stream, &g->cublas, why, sizeof why)) {
        pp_fail(err, PP_EXIT_SYSTEM, "GPU %d: %s", rank % n, why);
        goto out;
    }
    *out = &g->base;
    return 0;
out:
    cuda_close(&g->base);
    return -1;
}

static int cuda_zero(struct pp_device *d, void *p, size_t bytes,
                     struct pp_err *err)
{
    return failed(cudaMemsetAsync(p, 0, bytes, stream_of(d)), "zero", err);
}

static void *cuda_alloc(struct pp_device *d, size_t bytes)
{
    void *p = NULL;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    if (cudaMemsetAsync(p, 0, bytes, stream_of(d)) == cudaSuccess)
        return p;
    cudaFree(p);
    return NULL;
}

static void cuda_free(struct pp_device *d, void *p)
{
    (void)d;
    cudaFree(p);
}

static int cuda_wait(struct pp_device *d, struct pp_err *err)
{
    return failed(cudaStreamSynchronize(stream_of(d)), "kernels", err);
}

/* From pageable memory: the driver has taken the bytes when this returns. */
static int cuda_put(struct pp_device *d, void *to, const void *from,
                    size_t bytes, struct pp_err *err)
{
    return failed(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(d)),
        "copy to the GPU", err);
}

static int cuda_get(struct pp_device *d, void *to, const void *from,
                    size_t bytes, struct pp_err *err)
{
    if (failed(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost,
                               stream_of(d)),
               "copy from the GPU", err))
        return -1;
    return cuda_wait(d, err);
}

static int cuda_copy(struct pp_device *d, void *to, const void *from,
                     size_t bytes, struct pp_err *err)
{
    return failed(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(d)),
        "copy", err);
}

const struct pp_device_ops pp_device_cuda = {
    .name = "cuda",
    .check = cuda_check,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .put = cuda_put,
    .get = cuda_get,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .wait = cuda_wait,
};
