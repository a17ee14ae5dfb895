/* SPDX-License-Identifier: MIT */
/* token_warps - a warp for each token, and what it needs for the scores of
 * experts. */
#ifndef PP_KERNELS_TOKEN_WARPS_CUH
#define PP_KERNELS_TOKEN_WARPS_CUH

#include "device.cuh"

#define THREADS 256
#define WARPS (THREADS / PP_WARP)

static __device__ inline int lane_of(void)
{
    return (int)(threadIdx.x % PP_WARP);
}

/* Returns the token of this warp; it may be N or more. */
static __device__ inline size_t warp_token(void)
{
    return (size_t)blockIdx.x * WARPS + threadIdx.x / PP_WARP;
}

static inline unsigned token_blocks(size_t N)
{
    return (unsigned)((N + WARPS - 1) / WARPS);
}

/* Returns the sequence that token `at` is a real one of, or -1. */
static __device__ inline int sequence_of(const struct pp_real_tokens *s,
                                         size_t at)
{
    int32_t t = (int32_t)(s->first + at);
    size_t low = 0, high = s->n; /* sequences that begin at t or before */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->cu_padded[middle] <= t)
            low = middle + 1;
        else
            high = middle;
    }
    bool real =
        low > 0 && t - s->cu_padded[low - 1] < s->cu[low] - s->cu[low - 1];
    return real ? (int)low - 1 : -1;
}

static __device__ inline float warp_largest(const float *x, size_t E)
{
    float most = -INFINITY;
    for (size_t e = (size_t)lane_of(); e < E; e += PP_WARP)
        most = fmaxf(most, x[e]);
    return warp_max(most);
}

static __device__ inline float warp_exp_sum(const float *x, size_t E,
                                            float most)
{
    float sum = 0;
    for (size_t e = (size_t)lane_of(); e < E; e += PP_WARP)
        sum += expf(x[e] - most);
    return warp_sum(sum);
}

/* Adds the numbers of the threads for which `here` is true, in the block; the
 * sum of the warps before this one goes to *before. */
static __device__ int count_threads(bool here, int *counts, int *before)
{
    int warp = (int)threadIdx.x / PP_WARP, all = 0;
    uint32_t mask = __ballot_sync(PP_ALL_LANES, here);
    __syncthreads(); /* threads may still read counts from an earlier call */
    if (lane_of() == 0)
        counts[warp] = __popc(mask);
    __syncthreads();
    *before = __popc(mask & ((1u << lane_of()) - 1));
    for (int i = 0; i < WARPS; i++) {
        *before += i < warp ? counts[i] : 0;
        all += counts[i];
    }
    return all;
}

#endif
