/* SPDX-License-Identifier: MIT */
/* gpu_emulated - the emulated device for the kernel tests: kernels run in
 * emulated.cpp, and matrix products in emulated_cublas.c. */
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

#include "cublas.h"
#include "emulated_gate.h"
#include "fused_product.h"

static struct pp_cublas cublas;
static unsigned char partials[PP_CUDA_PARTIAL_BYTES];
static struct pp_cuda_stream stream = {.cublas = &cublas, .partials = partials};

void pp_emulated_enter(void)
{
}

void pp_emulated_leave(void)
{
}

void pp_emulated_queue(void *of, const void *code, void (*run)(void *),
                       void *arg)
{
    (void)of;
    (void)code;
    run(arg);
}

const char *gpu_open(void)
{
    static unsigned char workspace[64];
    if (pp_cublas_open(&cublas, NULL, 0) || cublas.create(&stream.blas))
        return "no cuBLAS";
    if (!cublas.lt.library)
        return "no cuBLASLt";
    stream.fuser = pp_fuser_create(&cublas.lt, workspace, sizeof workspace);
    return stream.fuser ? NULL : "no handle of cuBLASLt";
}

const char *gpu_name(void)
{
    return "emulated";
}

struct pp_cuda_stream *gpu_stream(void)
{
    return &stream;
}

void *gpu_alloc(size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (!p)
        abort();
    return p;
}

void gpu_free(void *p)
{
    free(p);
}

void gpu_put(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void gpu_get(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
