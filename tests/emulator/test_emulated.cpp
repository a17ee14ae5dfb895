/* SPDX-License-Identifier: MIT */
/* test_emulated - checks that the emulated device detects faults: it runs
 * correct kernels, and the same kernels with one fault each. */
#define PP_ELEMENT_BF16
#include "device.cuh"

#include "outcome.h"
#include "tap.h"

#define THREADS 64

enum fault {
    NONE,
    NO_BARRIER_BEFORE_READING,
    NO_BARRIER_BEFORE_WRITING,
    NOT_WRITTEN,
    TWO_BARRIERS,
    BARRIER_FOR_SOME,
    LANE_GONE,
    LANE_ELSEWHERE,
    NOT_WAITED,
    WAITED_FOR_ONE_LESS,
    ODD_ADDRESS,
    SAME_BANKS,
};

/* Reverses each row: out (2, THREADS) = in (2, THREADS). */
template <enum fault FAULT>
static __global__ void turn(float *out, const float *in)
{
    __shared__ float row[THREADS];
    int t = (int)threadIdx.x;
    for (int i = 0; i < 2; i++) {
        if (FAULT != NOT_WRITTEN)
            row[t] = in[i * THREADS + t];
        if (FAULT == TWO_BARRIERS && t < PP_WARP)
            __syncthreads();
        else if (FAULT == BARRIER_FOR_SOME && t == 5)
            __syncwarp();
        else if (FAULT != NO_BARRIER_BEFORE_READING)
            __syncthreads();
        out[i * THREADS + t] = row[THREADS - 1 - t];
        if (FAULT != NO_BARRIER_BEFORE_WRITING)
            __syncthreads();
    }
}

/* Reverses rows by an exchange between the lanes of a warp. */
template <enum fault FAULT>
static __global__ void turn_warps(float *out, const float *in)
{
    int t = (int)threadIdx.x;
    for (int i = 0; i < 2; i++) {
        if (FAULT == LANE_GONE && t == 7)
            return;
        if (FAULT == LANE_ELSEWHERE && t == 7)
            __syncthreads();
        float x = in[i * THREADS + t];
        x = __shfl_sync(PP_ALL_LANES, x, PP_WARP - 1 - t % PP_WARP);
        out[i * THREADS + (THREADS - PP_WARP) - t / PP_WARP * PP_WARP +
            t % PP_WARP] = x;
    }
}

/* Reverses rows with asynchronous copies of the next row. */
template <enum fault FAULT>
static __global__ void turn_copies(float *out, const float *in)
{
    __shared__ float rows[2 * THREADS + 4] __attribute__((aligned(16)));
    int t = (int)threadIdx.x;
    for (int i = 0; i <= 2; i++) {
        if (i < 2 && t < THREADS / 4)
            copy_begin(rows + i * THREADS + t * 4 + (FAULT == ODD_ADDRESS),
                       in + i * THREADS + t * 4, true);
        copy_commit();
        if (i == 0)
            continue;
        if (FAULT == WAITED_FOR_ONE_LESS)
            copy_wait<2>();
        else if (FAULT != NOT_WAITED)
            copy_wait<1>();
        __syncthreads();
        out[(i - 1) * THREADS + t] = rows[i * THREADS - 1 - t];
    }
    if (FAULT != NOT_WAITED)
        copy_wait<0>();
    uint32_t words[4];
    load_matrices(words, FAULT == SAME_BANKS ? rows : rows + t % 8 * 4);
}

typedef void kernel_fn(float *out, const float *in);

static enum outcome run(kernel_fn *kernel, dim3 grid, unsigned block,
                        size_t shared)
{
    alignas(16) static float in[2 * THREADS], out[2 * THREADS];
    for (int i = 0; i < 2 * THREADS; i++)
        in[i] = (float)(i * i);
    if (PP_LAUNCH(kernel, grid, block, shared, NULL, out, in))
        return NOT_LAUNCHED;
    for (int i = 0; i < 2 * THREADS; i++)
        if (out[i] != in[i / THREADS * THREADS + THREADS - 1 - i % THREADS])
            return WRONG;
    return RIGHT;
}

static enum outcome outcome_of(kernel_fn *kernel, dim3 grid, unsigned block,
                               size_t shared)
{
    return outcome_in_process(
        [=]() { return run(kernel, grid, block, shared); });
}

static void test_kernels(void)
{
    static const struct {
        const char *what;
        kernel_fn *kernel;
        enum outcome want;
    } cases[] = {
        {"barriers", turn<NONE>, RIGHT},
        {"no barrier before reading", turn<NO_BARRIER_BEFORE_READING>, WRONG},
        {"no barrier before writing", turn<NO_BARRIER_BEFORE_WRITING>, WRONG},
        {"shared memory that nobody wrote", turn<NOT_WRITTEN>, WRONG},
        {"two barriers for one", turn<TWO_BARRIERS>, REFUSED},
        {"a barrier that one skips", turn<BARRIER_FOR_SOME>, REFUSED},
        {"lanes exchange", turn_warps<NONE>, RIGHT},
        {"a lane has ended", turn_warps<LANE_GONE>, REFUSED},
        {"a lane waits elsewhere", turn_warps<LANE_ELSEWHERE>, REFUSED},
        {"copies", turn_copies<NONE>, RIGHT},
        {"copies not waited for", turn_copies<NOT_WAITED>, REFUSED},
        {"one group too few", turn_copies<WAITED_FOR_ONE_LESS>, WRONG},
        {"an odd address", turn_copies<ODD_ADDRESS>, REFUSED},
        {"a bank conflict", turn_copies<SAME_BANKS>, REFUSED},
    };
    for (const auto &c : cases)
        is_int(outcome_of(c.kernel, 1, THREADS, 0), c.want, c.what);
}

static void test_limits(void)
{
    is_int(outcome_of(turn<NONE>, dim3(1, 65536), THREADS, 0), NOT_LAUNCHED,
           "a grid that is too high");
    is_int(outcome_of(turn<NONE>, dim3(1, 1, 65536), THREADS, 0), NOT_LAUNCHED,
           "a grid that is too deep");
    is_int(outcome_of(turn<NONE>, 1, 1056, 0), NOT_LAUNCHED,
           "more than 1024 threads");
    is_int(outcome_of(turn<NONE>, 1, THREADS, 48 << 10), RIGHT,
           "48 KiB of shared memory");
    is_int(outcome_of(turn<NONE>, 1, THREADS, (48 << 10) + 16), NOT_LAUNCHED,
           "more, not asked for");
    is_int(cudaFuncSetAttribute(turn<NONE>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (99 << 10) + 16),
           cudaErrorInvalidValue, "more than every GPU has");
}

int main(void)
{
    test_kernels();
    test_limits();
    return done();
}
