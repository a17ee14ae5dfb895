/* SPDX-License-Identifier: MIT */
/* distribution on a GPU. Each row has a block. The k largest take k rounds over
 * the row, which is in cache for small k. */
#include "device.cuh"

#include <math.h>

#define THREADS 256

static __global__ void entropy_kernel(float *entropy, const elem *logits,
                                      const float *lse, size_t V)
{
    __shared__ float sums[THREADS];
    const elem *x = logits + (size_t)blockIdx.x * V;
    float sum = 0;
    for (size_t i = threadIdx.x; i < V; i += THREADS) {
        float below = to_float(x[i]) - lse[blockIdx.x], p = expf(below);
        sum -= p > 0 ? p * below : 0;
    }
    sums[threadIdx.x] = sum;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (!threadIdx.x)
        entropy[blockIdx.x] = sums[0];
}

struct candidate {
    float value;
    int32_t id; /* -1: none */
};

static __device__ inline bool comes_before(struct candidate a,
                                           struct candidate b)
{
    if (a.id < 0 || b.id < 0)
        return b.id < a.id;
    return a.value != b.value ? a.value > b.value : a.id < b.id;
}

/* Every round finds the first candidate after that of the round before. */
static __global__ void top_k_kernel(float *values, int32_t *ids,
                                    const elem *logits, size_t V, size_t k)
{
    __shared__ struct candidate best[THREADS];
    const elem *x = logits + (size_t)blockIdx.x * V;
    struct candidate last = {0, -1};
    for (size_t round = 0; round < k; round++) {
        struct candidate mine = {0, -1};
        for (size_t i = threadIdx.x; i < V; i += THREADS) {
            struct candidate c = {to_float(x[i]), (int32_t)i};
            if ((last.id < 0 || comes_before(last, c)) && comes_before(c, mine))
                mine = c;
        }
        best[threadIdx.x] = mine;
        for (unsigned half = THREADS / 2; half; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half &&
                comes_before(best[threadIdx.x + half], best[threadIdx.x]))
                best[threadIdx.x] = best[threadIdx.x + half];
        }
        __syncthreads();
        last = best[0];
        __syncthreads();
        if (!threadIdx.x) {
            values[(size_t)blockIdx.x * k + round] = last.value;
            ids[(size_t)blockIdx.x * k + round] = last.id;
        }
    }
}

PP_ENTROPY(PP_CUDA(entropy))
{
    if (!N)
        return 0;
    return PP_LAUNCH(entropy_kernel, (unsigned)N, THREADS, 0, stream,
                     (float *)entropy, (const elem *)logits, (const float *)lse,
                     V);
}

PP_TOP_K(PP_CUDA(top_k))
{
    if (!N || !k)
        return 0;
    return PP_LAUNCH(top_k_kernel, (unsigned)N, THREADS, 0, stream,
                     (float *)values, ids, (const elem *)logits, V, k);
}
