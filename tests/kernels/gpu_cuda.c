/* SPDX-License-Identifier: MIT */
/* gpu_cuda - a real GPU for the kernel tests. */
#include "gpu.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "cublas.h"

static struct pp_cublas cublas;
static struct pp_cuda_stream stream;
static struct cudaDeviceProp device;

static void require_cuda(cudaError_t rc)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(rc));
    exit(3);
}

const char *gpu_open(void)
{
    static char why[256];
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc != cudaSuccess || n < 1)
        return rc != cudaSuccess ? cudaGetErrorString(rc) : "no GPU";
    if (pp_cublas_open(&cublas, why, sizeof why) ||
        pp_cuda_stream_open(&stream, &cublas, why, sizeof why))
        return why;
    require_cuda(cudaGetDeviceProperties(&device, 0));
    return NULL;
}

const char *gpu_name(void)
{
    return device.name;
}

struct pp_cuda_stream *gpu_stream(void)
{
    return &stream;
}

void *gpu_alloc(size_t bytes)
{
    void *p = NULL;
    require_cuda(cudaMalloc(&p, bytes ? bytes : 1));
    return p;
}

void gpu_free(void *p)
{
    require_cuda(cudaFree(p));
}

void gpu_put(void *to, const void *from, size_t bytes)
{
    require_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice,
                                 stream.stream));
    require_cuda(cudaStreamSynchronize(stream.stream));
}

void gpu_get(void *to, const void *from, size_t bytes)
{
    require_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost,
                                 stream.stream));
    require_cuda(cudaStreamSynchronize(stream.stream));
}
