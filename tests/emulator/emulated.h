/* SPDX-License-Identifier: MIT */
/* emulated - enough of CUDA to run the kernels on a CPU, for the tests.
 *
 * Blocks run one after the other. The threads of a block are coroutines, which
 * switch only at barriers and at operations of a whole warp. A warp runs up to
 * the next barrier before another warp begins. The order of warps, and of
 * lanes, is ascending in one block and descending in the next. A missing
 * barrier thus gives a wrong result, and results do not depend on chance.
 * Shared memory is NaN when a block begins. Sanitizers can check a kernel,
 * because its memory is the CPU's.
 *
 * A use that a GPU refuses, or executes in another way than a CPU, ends the
 * test: grids and shared memory beyond the limits, misaligned accesses of 16
 * bytes, threads that wait at different places or for ever, reads of a tile
 * before its copy is complete, copies without a wait, and bank conflicts of
 * matrix loads. */
#ifndef PP_TESTS_EMULATED_H
#define PP_TESTS_EMULATED_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tuple>
#include <utility>

#define __global__
#define __device__
/* emulated.cpp finds and poisons shared arrays. */
#define __shared__ static thread_local
#define __forceinline__ inline
#define __launch_bounds__(...)

enum { cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9 };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };

/* Allows a kernel to use more dynamic shared memory than 48 KiB. */
int pp_emulate_allow_shared(const void *kernel, int bytes);

template <class KERNEL>
static inline int cudaFuncSetAttribute(KERNEL kernel, int, int bytes)
{
    return pp_emulate_allow_shared((const void *)kernel, bytes);
}

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

/* bfloat16, rounded to nearest even as in the toolkit's header. */
struct __nv_bfloat16 {
    uint16_t bits;
};

static inline float __bfloat162float(__nv_bfloat16 x)
{
    uint32_t wide = (uint32_t)x.bits << 16;
    float y;
    memcpy(&y, &wide, sizeof y);
    return y;
}

static inline __nv_bfloat16 __float2bfloat16(float x)
{
    uint32_t wide;
    memcpy(&wide, &x, sizeof wide);
    if (x != x)
        return __nv_bfloat16{0x7fff};
    wide += 0x7fff + (wide >> 16 & 1);
    return __nv_bfloat16{(uint16_t)(wide >> 16)};
}

/* The compiler fuses neither with another operation. */
static inline double __dadd_rn(double a, double b)
{
    volatile double sum = a + b;
    return sum;
}

static inline double __dmul_rn(double a, double b)
{
    volatile double product = a * b;
    return product;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* Barriers of a block and of a warp. `place` identifies the barrier in the
 * code. */
void pp_emulate_barrier(int place);
void pp_emulate_warp(int place);
#define __syncthreads() pp_emulate_barrier(__LINE__)
#define __syncwarp() pp_emulate_warp(__LINE__)

/* Gives every lane of the warp the words of all lanes: (32, n). They are valid
 * until the second next barrier of the warp. */
const uint32_t *pp_emulate_exchange(const uint32_t *mine, int n);

static inline float pp_emulate_lane(float x, int lane)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    word = pp_emulate_exchange(&word, 1)[lane];
    memcpy(&x, &word, sizeof x);
    return x;
}

static inline float __shfl_sync(unsigned, float x, int lane)
{
    return pp_emulate_lane(x, lane);
}

static inline float __shfl_xor_sync(unsigned, float x, int mask)
{
    return pp_emulate_lane(x, (int)(threadIdx.x % 32) ^ mask);
}

static inline int __shfl_xor_sync(unsigned, int x, int mask)
{
    uint32_t word = (uint32_t)x;
    return (int)pp_emulate_exchange(&word, 1)[(int)(threadIdx.x % 32) ^ mask];
}

static inline unsigned __ballot_sync(unsigned, bool here)
{
    uint32_t word = here, mask = 0;
    const uint32_t *all = pp_emulate_exchange(&word, 1);
    for (int i = 0; i < 32; i++)
        mask |= all[i] << i;
    return mask;
}

/* The matrix instructions of attention_tiles.cuh. */
uint32_t pack_bf16(float low, float high);
void mma(float c[4], const uint32_t a[4], const uint32_t b[2]);
void load_matrices(uint32_t r[4], const void *row);
void load_transposed(uint32_t r[4], const void *row);

static inline float exp2_approx(float x)
{
    return exp2f(x);
}

static inline float divide_approx(float a, float b)
{
    return a / b;
}

void copy_begin(void *shared, const void *from, bool there);
void copy_word_begin(void *shared, const void *from, bool there);
void copy_commit(void);
void pp_emulate_copy_wait(unsigned keep);

template <int KEEP> static inline void copy_wait(void)
{
    pp_emulate_copy_wait(KEEP);
}

/* Each thread of a grid runs it. */
struct pp_emulated_body {
    virtual void run(void) const = 0;
    virtual ~pp_emulated_body()
    {
    }
};

/* Runs body for every thread of the grid, after the earlier work of the stream
 * if there are streams (emulated_gate.h), then deletes it. One grid runs at a
 * time. Returns 0, or an error if some GPU from sm_80 on would refuse the
 * launch. */
int pp_emulate(void *stream, const void *kernel, dim3 grid, dim3 block,
               size_t shared, const pp_emulated_body *body);
extern unsigned char *pp_emulated_shared;

/* A kernel with a copy of its arguments, made at the launch as on a GPU, not
 * when the kernel runs. */
template <class... PARAMETERS>
struct pp_emulated_kernel final : pp_emulated_body {
    void (*kernel)(PARAMETERS...);
    std::tuple<PARAMETERS...> arguments;

    template <class... ARGUMENTS>
    pp_emulated_kernel(void (*kernel)(PARAMETERS...), ARGUMENTS... arguments)
        : kernel(kernel), arguments(static_cast<PARAMETERS>(arguments)...)
    {
    }

    template <size_t... I> void call(std::index_sequence<I...>) const
    {
        kernel(std::get<I>(arguments)...);
    }

    void run(void) const override
    {
        call(std::index_sequence_for<PARAMETERS...>());
    }
};

template <class... PARAMETERS, class... ARGUMENTS>
static inline int pp_emulate_call(void *stream, dim3 grid, dim3 block,
                                  size_t shared, void (*kernel)(PARAMETERS...),
                                  ARGUMENTS... arguments)
{
    return pp_emulate(
        stream, (const void *)kernel, grid, block, shared,
        new pp_emulated_kernel<PARAMETERS...>(kernel, arguments...));
}

#define PP_LAUNCH(kernel, grid, block, shared, stream, ...) \
    pp_emulate_call((stream), (grid), (block), (shared), kernel, __VA_ARGS__)
#define PP_DYNAMIC_SHARED(name) unsigned char *name = pp_emulated_shared

#endif
