/* SPDX-License-Identifier: MIT */
#include "emulated_gpus.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

void pp_emulated_refuse_call(const char *what)
{
    fprintf(stderr, "emulated CUDA: %s\n", what);
    abort();
}

/* Error of the calling thread until it reads it: a later launch reports the
 * error of an earlier call. */
static _Thread_local cudaError_t last_error;

cudaError_t pp_emulated_keep_error(cudaError_t rc)
{
    if (rc != cudaSuccess)
        last_error = rc;
    return rc;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    const char *text = getenv("PP_EMULATED_GPUS");
    *n = text ? atoi(text) : 1;
    return pp_emulated_keep_error(*n > 0 ? cudaSuccess : cudaErrorNoDevice);
}

/* Bits of the GPUs of this process's ranks, and of those with peer access. */
static atomic_uint opened, reached;
static _Thread_local int own;

cudaError_t cudaSetDevice(int device)
{
    int n;
    if (cudaGetDeviceCount(&n) || device < 0 || device >= n || device > 31)
        return pp_emulated_keep_error(cudaErrorInvalidValue);
    own = device;
    opened |= 1u << device;
    return cudaSuccess;
}

int pp_emulated_gpu(void)
{
    return own;
}

int pp_emulated_processors(void)
{
    const char *text = getenv("PP_EMULATED_PROCESSORS");
    return text ? atoi(text) : 132;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
                                   int device)
{
    if (attribute != cudaDevAttrMultiProcessorCount || device < 0)
        return pp_emulated_keep_error(cudaErrorInvalidValue);
    *value = pp_emulated_processors();
    return cudaSuccess;
}

/* Refuses peer access to a GPU that no rank of the process has, because a
 * context would take memory there. */
static void check_reached(void)
{
    if (reached & ~opened)
        pp_emulated_refuse_call(
            "peer access to a GPU that no rank of the process has");
}

cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned flags)
{
    int n;
    if (cudaGetDeviceCount(&n) || device < 0 || device >= n || device > 31 ||
        device == own || flags)
        return pp_emulated_keep_error(cudaErrorInvalidValue);
    if (!reached)
        atexit(check_reached);
    reached |= 1u << device;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t rc = last_error;
    last_error = cudaSuccess;
    return rc;
}

const char *cudaGetErrorString(cudaError_t rc)
{
    return rc == cudaErrorNoDevice ? "no CUDA-capable device is detected"
                                   : "emulated error";
}
