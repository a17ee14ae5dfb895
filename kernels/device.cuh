/* SPDX-License-Identifier: MIT */
/* device - what every .cu shares: the element type, packs of 16 bytes, sums
 * in one fixed order, launches.
 *
 * Every .cu is compiled once with PP_ELEMENT_F32 and once with
 * PP_ELEMENT_BF16; PP_CUDA(swiglu_fwd) is pp_swiglu_fwd_cuda_f32 or
 * pp_swiglu_fwd_cuda_bf16. Arithmetic is in float whatever the element.
 * Nothing uses atomics: a result depends on values and shapes alone.
 *
 * The tests also compile these files for the CPU (tests/kernels/emulated.h),
 * block after block, so that their logic is tested where there is no GPU. */
#ifndef PP_KERNELS_DEVICE_CUH
#define PP_KERNELS_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#ifdef PP_EMULATED
#include "emulated.h"
#define PP_UNROLL
#else
#define PP_UNROLL _Pragma("unroll")
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#define PP_LAUNCH(kernel, grid, block, shared, stream, ...)            \
    (kernel<<<(grid), (block), (shared), pp_cuda_stream_of(stream)>>>( \
         __VA_ARGS__),                                                 \
     (int)cudaGetLastError())
#define PP_DYNAMIC_SHARED(name) \
    extern __shared__ __align__(16) unsigned char name[]
#endif

#include "cuda_stream.h"

#if defined(PP_ELEMENT_F32)
typedef float elem;
#define PP_CUDA(name) pp_##name##_cuda_f32
#elif defined(PP_ELEMENT_BF16)
typedef __nv_bfloat16 elem;
#define PP_CUDA(name) pp_##name##_cuda_bf16
#else
#error "define PP_ELEMENT_F32 or PP_ELEMENT_BF16"
#endif

#ifndef PP_EMULATED
static inline cudaStream_t pp_cuda_stream_of(void *stream)
{
    return stream ? (cudaStream_t)((struct pp_cuda_stream *)stream)->stream
                  : (cudaStream_t)0;
}

/* 2 to the x, to 22 bits; exp2f also treats what is below 2^-126. */
static __device__ inline float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

#define PP_WARP 32
#define PP_LOG2E 1.4426950408889634f
#define PP_ALL_LANES 0xffffffffu

static __device__ inline float to_float(float x)
{
    return x;
}

static __device__ inline float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ inline void store(float *p, float x)
{
    *p = x;
}

static __device__ inline void store(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16(x);
}

/* V elements that are read and written at once. */
template <int V> struct alignas(V * sizeof(elem)) pack {
    elem at[V];
};

/* V floats beside them, 16 bytes at a time. */
template <int V> struct alignas(V < 4 ? V * 4 : 16) floats {
    float at[V];
};

/* Elements in 16 bytes. */
#define PP_PACK ((int)(16 / sizeof(elem)))

/* Whether rows of C elements, ld apart, at p can be taken in packs. */
static inline bool packs(const void *p, size_t C, size_t ld)
{
    return (uintptr_t)p % 16 == 0 && C % PP_PACK == 0 && ld % PP_PACK == 0;
}

static inline bool floats_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* Blocks of `threads` for n items, at least 1 and at most what a grid-stride
 * loop wants. */
static inline unsigned blocks_for(size_t n, size_t threads)
{
    size_t blocks = (n + threads - 1) / threads, most = 1u << 16;
    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

/* This thread's place in the grid, and the number of threads in it. */
static __device__ inline size_t grid_thread(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline size_t grid_threads(void)
{
    return (size_t)gridDim.x * blockDim.x;
}

static __device__ inline float warp_sum(float x)
{
    for (int step = PP_WARP / 2; step; step /= 2)
        x += __shfl_xor_sync(PP_ALL_LANES, x, step);
    return x;
}

static __device__ inline float warp_max(float x)
{
    for (int step = PP_WARP / 2; step; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(PP_ALL_LANES, x, step));
    return x;
}

/* The sum over the THREADS consecutive threads that work on one thing, at each
 * of them: a warp, or a whole block of up to 1024, with a float of shared
 * memory for each warp. */
template <int THREADS>
static __device__ inline float team_sum(float x, float *shared)
{
    x = warp_sum(x);
    if (THREADS == PP_WARP)
        return x;
    __syncthreads(); /* shared may still be read from the last time */
    if (threadIdx.x % PP_WARP == 0)
        shared[threadIdx.x / PP_WARP] = x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < THREADS / PP_WARP; i++)
        sum += shared[i];
    return sum;
}

#endif
