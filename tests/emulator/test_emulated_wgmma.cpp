/* SPDX-License-Identifier: MIT */
/* test_emulated_wgmma - products of warpgroups on the emulated device: against
 * plain loops, exactly, and kernels with one fault each. */
#define PP_ELEMENT_BF16
#include "attention_wgmma.cuh"

#include "outcome.h"
#include "tap.h"

#define GROUPS 2
#define BLOCK (GROUPS * WARPGROUP)
#define HEIGHT (GROUPS * 64) /* rows of the result */
#define MOST 128             /* columns, and rows of other tiles */
#define BYTES (3 * MOST * MOST * (int)sizeof(elem))

enum fault {
    NONE,
    NO_FENCE,
    NO_FENCE_AFTER_WAIT,
    CHANGED_AFTER_FENCE,
    LEFT_CHANGED_AFTER_FENCE,
    NO_PROXY_FENCE,
    PROXY_FENCE_OF_SOME,
    NO_BARRIER,
    NOT_COMMITTED,
    NOT_WAITED,
    WAITED_FOR_ONE_LESS,
    NEVER_WAITED,
    OVERWRITTEN,
    SUMS_WRITTEN,
    MISPLACED,
    OTHER_PERMUTATION,
    OTHER_DISTANCE,
    BEYOND,
    ONE_WARP_LESS,
    ONE_WARP_ELSEWHERE,
};

template <int D, int N, enum fault FAULT>
static __device__ void load_tiles(elem *tq, elem *tk, elem *tv, const elem *in)
{
    int thread = (int)threadIdx.x;
    load_panels<D, HEIGHT, BLOCK>(tq, in, MOST, 0, HEIGHT, thread);
    load_panels<D, N, BLOCK>(tk, in + MOST * MOST, MOST, 0, N, thread);
    load_panels<D, N, BLOCK>(tv, in + 2 * MOST * MOST, MOST, 0, N, thread);
    copy_commit();
    copy_wait<0>();
    if (FAULT != NO_PROXY_FENCE && (FAULT != PROXY_FENCE_OF_SOME || thread))
        proxy_fence();
    if (FAULT != NO_BARRIER)
        __syncthreads();
}

/* s (64, N) = Q K^T */
template <int D, int N, enum fault FAULT>
static __device__ void scores(float s[N / 8][4], uint64_t q, uint64_t k,
                              elem *tk, const elem *in)
{
    if (FAULT != NO_FENCE)
        wgmma_fence();
    multiply_tiles<D, N, HEIGHT, N>(s, q, k);
    if (FAULT != NOT_COMMITTED)
        wgmma_commit();
    if (FAULT == OVERWRITTEN)
        copy_begin(tk + threadIdx.x * 8, in, true);
    if (FAULT == SUMS_WRITTEN)
        s[0][1] = 0;
    if (FAULT == WAITED_FOR_ONE_LESS)
        wgmma_wait<1>();
    else if (FAULT != NOT_WAITED)
        wgmma_wait<0>();
    pin<N / 8>(s);
}

/* out (HEIGHT, D) = 2 (Q K^T) V */
template <int D, int N, enum fault FAULT>
static __global__ void chain(float *out, const elem *in)
{
    PP_TILES_IN_SHARED(shared);
    int warp = (int)threadIdx.x / PP_WARP, group = warp / 4;
    elem *tq = (elem *)shared, *tk = tq + HEIGHT * D;
    tk += FAULT == MISPLACED ? PANEL : 0;
    elem *tv = tk + N * D + (FAULT == BEYOND ? MOST * MOST : 0);
    float s[N / 8][4], acc[D / 8][4] = {};
    uint32_t p[N / 16][4];
    load_tiles<D, N, FAULT>(tq, tk, FAULT == BEYOND ? tk : tv, in);
    uint64_t q = tile_descriptor<HEIGHT>(tq + group * 64 * PANEL);
    uint64_t k = tile_descriptor<N>(tk), v = tile_descriptor<N>(tv);
    if (FAULT == OTHER_PERMUTATION)
        k += (uint64_t)1 << 62;
    if (FAULT == OTHER_DISTANCE)
        v = tile_descriptor<N / 2>(tv);
    if (FAULT == ONE_WARP_ELSEWHERE && warp == 1)
        k = q;
    scores<D, N, FAULT>(s, q, k, tk, in);
    pack_sums<N>(p, s);
    for (int i = 0; i < 2; i++) {
        if (FAULT != NO_FENCE_AFTER_WAIT || i == 0)
            wgmma_fence();
        if (FAULT == CHANGED_AFTER_FENCE)
            acc[0][0] += (float)i;
        if (FAULT == LEFT_CHANGED_AFTER_FENCE)
            p[0][0] += (uint32_t)i;
        if (FAULT != ONE_WARP_LESS || i == 0 || warp != 2)
            accumulate_tile<D, N>(acc, p, v);
        wgmma_commit();
        if (FAULT != NEVER_WAITED || i == 0)
            wgmma_wait<0>();
        pin<D / 8>(acc);
    }
    int lane = (int)threadIdx.x % PP_WARP;
    for (int i = 0; i < D / 2; i++)
        out[(warp * 16 + lane / 4 + i % 4 / 2 * 8) * D + i / 4 * 8 +
            lane % 4 * 2 + i % 2] = acc[i / 4][i % 4];
    copy_wait<0>();
}

/* Fills three matrices (MOST, MOST) with -1, 0 and 1. */
static void fill(elem *in)
{
    unsigned state = 1;
    for (int i = 0; i < 3 * MOST * MOST; i++) {
        state = state * 1664525 + 1013904223;
        in[i] = __float2bfloat16((float)(state >> 16) / 65536 * 3 < 1 ? -1.0f
                                 : state >> 31                        ? 1.0f
                                                                      : 0.0f);
    }
}

static float at(const elem *in, int matrix, int row, int column)
{
    return to_float(in[(matrix * MOST + row) * MOST + column]);
}

/* Returns whether out is 2 (Q K^T) V. All numbers are small integers. */
static bool is_chain(const float *out, const elem *in, int D, int N)
{
    for (int i = 0; i < HEIGHT; i++) {
        float want[MOST] = {};
        for (int n = 0; n < N; n++) {
            float s = 0;
            for (int d = 0; d < D; d++)
                s += at(in, 0, i, d) * at(in, 1, n, d);
            for (int d = 0; d < D; d++)
                want[d] += 2 * s * at(in, 2, n, d);
        }
        for (int d = 0; d < D; d++)
            if (out[i * D + d] != want[d])
                return false;
    }
    return true;
}

/* Runs two blocks, in which warps run in opposite orders. */
template <int D, int N, enum fault FAULT = NONE>
static enum outcome outcome_of(void)
{
    return outcome_in_process([]() {
        alignas(16) static elem in[3 * MOST * MOST];
        static float out[HEIGHT * MOST];
        auto kernel = chain<D, N, FAULT>;
        fill(in);
        const int shared = (HEIGHT + 2 * N) * D * (int)sizeof(elem) +
                           (FAULT == MISPLACED ? 1024 : 0);
        if (cudaFuncSetAttribute(
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) ||
            PP_LAUNCH(kernel, 2, BLOCK, shared, NULL, out, in))
            return NOT_LAUNCHED;
        return is_chain(out, in, D, N) ? RIGHT : WRONG;
    });
}

static void test_products(void)
{
    is_int(outcome_of<64, 64>(), RIGHT, "64 columns, 64 rows");
    is_int(outcome_of<64, 128>(), RIGHT, "64 columns, 128 rows");
    is_int(outcome_of<128, 64>(), RIGHT, "128 columns, 64 rows");
    is_int(outcome_of<128, 128>(), RIGHT, "128 columns, 128 rows");
}

#define EXPECT(fault, want) is_int((outcome_of<128, 64, fault>()), want, #fault)

static void test_faults(void)
{
    EXPECT(NO_FENCE, REFUSED);
    EXPECT(NO_FENCE_AFTER_WAIT, REFUSED);
    EXPECT(CHANGED_AFTER_FENCE, REFUSED);
    EXPECT(LEFT_CHANGED_AFTER_FENCE, REFUSED);
    EXPECT(NO_PROXY_FENCE, REFUSED);
    EXPECT(PROXY_FENCE_OF_SOME, REFUSED);
    EXPECT(NO_BARRIER, REFUSED);
    EXPECT(NOT_COMMITTED, WRONG);
    EXPECT(NOT_WAITED, WRONG);
    EXPECT(WAITED_FOR_ONE_LESS, WRONG);
    EXPECT(NEVER_WAITED, REFUSED);
    EXPECT(OVERWRITTEN, REFUSED);
    EXPECT(SUMS_WRITTEN, REFUSED);
    EXPECT(MISPLACED, REFUSED);
    EXPECT(OTHER_PERMUTATION, REFUSED);
    EXPECT(OTHER_DISTANCE, WRONG);
    EXPECT(BEYOND, REFUSED);
    EXPECT(ONE_WARP_LESS, REFUSED);
    EXPECT(ONE_WARP_ELSEWHERE, REFUSED);
}

static void test_limits(void)
{
    const int attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
    auto kernel = chain<128, 64, NONE>;
    ok(!gpu_has_wgmma(), "other GPUs have no products of warpgroups");
    is_int(cudaFuncSetAttribute(kernel, attribute, 227 << 10),
           cudaErrorInvalidValue, "nor so much shared memory");
    setenv("PP_EMULATED_CAPABILITY", "90", 1);
    ok(gpu_has_wgmma(), "GPUs of 9.0 have them");
    is_int(cudaFuncSetAttribute(kernel, attribute, 227 << 10), 0,
           "and 227 KiB of shared memory");
    is_int(cudaFuncSetAttribute(kernel, attribute, (227 << 10) + 16),
           cudaErrorInvalidValue, "but not more");
}

int main(void)
{
    test_limits();
    test_products();
    test_faults();
    return done();
}
