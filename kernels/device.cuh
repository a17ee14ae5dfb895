/* SPDX-License-Identifier: MIT */
/* device - code of all .cu files: the element type, packs of 16 bytes, sums
 * in one fixed order, launches.
 *
 * Every .cu is compiled once with PP_ELEMENT_F32 and once with PP_ELEMENT_BF16;
 * PP_CUDA(swiglu_fwd) is pp_swiglu_fwd_cuda_f32 or pp_swiglu_fwd_cuda_bf16.
 * Arithmetic is in float for both element types. There are no atomics, so that
 * a result depends on values and shapes only.
 *
 * The tests also compile these files for the CPU (tests/emulator/emulated.h),
 * so that they check the kernels on machines without a GPU. */
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
#define PP_ELEMENT_TYPE PP_CUBLAS_R_32F /* cublas.h */
#define PP_CUDA(name) pp_##name##_cuda_f32
#elif defined(PP_ELEMENT_BF16)
typedef __nv_bfloat16 elem;
#define PP_ELEMENT_TYPE PP_CUBLAS_R_16BF
#define PP_CUDA(name) pp_##name##_cuda_bf16
#else
#error "define PP_ELEMENT_F32 or PP_ELEMENT_BF16"
#endif

/* The kernels of this element type. */
#define PP_DECLARE(name, type) type PP_CUDA(name);
extern "C" {
PP_ALL_KERNELS(PP_DECLARE)
PP_EXPERT_KERNELS(PP_DECLARE)
extern const struct pp_delta_kernels PP_CUDA(delta_kernels);
}
#undef PP_DECLARE

#ifndef PP_EMULATED
static inline cudaStream_t pp_cuda_stream_of(void *stream)
{
    return stream ? (cudaStream_t)((struct pp_cuda_stream *)stream)->stream
                  : (cudaStream_t)0;
}

/* 2^x with 22 bits. It is faster than exp2f because results below 2^-126 are
 * 0. */
static __device__ inline float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* a / b with 22 bits, or 0 if b is above 2^126. */
static __device__ inline float divide_approx(float a, float b)
{
    return __fdividef(a, b);
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

/* V floats for a pack of V elements, in parts of 16 bytes. */
template <int V> struct alignas(V < 4 ? V * 4 : 16) floats {
    float at[V];
};

/* Elements in 16 bytes. */
#define PP_PACK ((int)(16 / sizeof(elem)))

/* Returns whether rows of C elements, ld apart, at p can be read in packs. */
static inline bool packs(const void *p, size_t C, size_t ld)
{
    return (uintptr_t)p % 16 == 0 && C % PP_PACK == 0 && ld % PP_PACK == 0;
}

/* Pack i of the elements at x + at; zeros if x is NULL. */
template <int V>
static __device__ inline pack<V> rest_of(const elem *x, size_t at, size_t i)
{
    pack<V> zeros;
    for (int j = 0; j < V; j++)
        store(&zeros.at[j], 0);
    return x ? ((const pack<V> *)(x + at))[i] : zeros;
}

static inline bool floats_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* Returns the number of blocks of `threads` threads for n items in a
 * grid-stride loop: at least 1, and limited for large n. */
static inline unsigned blocks_for(size_t n, size_t threads)
{
    size_t blocks = (n + threads - 1) / threads, most = 1u << 16;
    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

static __device__ inline float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Return the index of this thread in the grid, and the number of threads in the
 * grid. */
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

/* Returns the sum over THREADS consecutive threads to each of them. THREADS
 * is PP_WARP or the size of the block, up to 1024. shared has one float for
 * each warp. */
template <int THREADS>
static __device__ inline float team_sum(float x, float *shared)
{
    x = warp_sum(x);
    if (THREADS == PP_WARP)
        return x;
    __syncthreads(); /* threads may still read shared from an earlier call */
    if (threadIdx.x % PP_WARP == 0)
        shared[threadIdx.x / PP_WARP] = x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < THREADS / PP_WARP; i++)
        sum += shared[i];
    return sum;
}

/* Returns the row of this thread's team of TEAM threads, if a block has BLOCK;
 * it may be beyond the last row. */
template <int BLOCK, int TEAM> static __device__ inline size_t team_row(void)
{
    return (size_t)blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
}

#endif
