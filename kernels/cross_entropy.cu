/* SPDX-License-Identifier: MIT */
/* cross_entropy on a GPU: a block for each row, one pass over the logits with
 * a running maximum (Milakov and Gimelshein 2018). */
#include "cuda.cuh"
#include "device.cuh"

#include <math.h>

#define THREADS 512

/* exp(x) summed relative to its maximum. */
struct tail {
    float max, sum;
};

/* exp(x - max), of a sum whose largest term is 1: the error of what is small
 * does not count. */
static __device__ inline float exp_of(float x, float max)
{
    return exp2_approx((x - max) * PP_LOG2E);
}

static __device__ inline struct tail merge(struct tail a, struct tail b)
{
    struct tail c = {fmaxf(a.max, b.max), 0};
    if (c.max == -INFINITY)
        return c;
    c.sum = a.sum * expf(a.max - c.max) + b.sum * expf(b.max - c.max);
    return c;
}

template <int P>
static __global__ void fwd_kernel(float *lse, float *logp, const elem *logits,
                                  const int32_t *targets, size_t V)
{
    __shared__ struct tail tails[THREADS];
    const elem *x = logits + (size_t)blockIdx.x * V;
    struct tail mine = {-INFINITY, 0};
    for (size_t i = threadIdx.x; i < V / P; i += THREADS) {
        pack<P> v = ((const pack<P> *)x)[i];
        float max = mine.max;
        for (int j = 0; j < P; j++)
            max = fmaxf(max, to_float(v.at[j]));
        mine.sum *= exp_of(mine.max, max);
        mine.max = max;
        for (int j = 0; j < P; j++)
            mine.sum += exp_of(to_float(v.at[j]), max);
    }
    tails[threadIdx.x] = mine;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            tails[threadIdx.x] =
                merge(tails[threadIdx.x], tails[threadIdx.x + half]);
    }
    if (threadIdx.x)
        return;
    float rest = logf(tails[0].sum), target = to_float(x[targets[blockIdx.x]]);
    lse[blockIdx.x] = tails[0].max + rest;
    logp[blockIdx.x] = target - tails[0].max - rest;
}

template <int P>
static __global__ void bwd_kernel(elem *logits, const float *lse,
                                  const int32_t *targets, size_t V, float scale)
{
    pack<P> *x = (pack<P> *)(logits + (size_t)blockIdx.x * V);
    float shift = lse[blockIdx.x];
    size_t target = (size_t)targets[blockIdx.x];
    for (size_t i = threadIdx.x; i < V / P; i += THREADS) {
        pack<P> v = x[i];
        for (int j = 0; j < P; j++) {
            float p = expf(to_float(v.at[j]) - shift);
            store(&v.at[j], (i * P + j == target ? p - 1 : p) * scale);
        }
        x[i] = v;
    }
}

PP_CROSS_ENTROPY_FWD(PP_CUDA(cross_entropy_fwd))
{
    if (!N)
        return 0;
    auto kernel = packs(logits, V, 0) ? fwd_kernel<PP_PACK> : fwd_kernel<1>;
    return PP_LAUNCH(kernel, (unsigned)N, THREADS, 0, stream, (float *)lse,
                     (float *)logp, (const elem *)logits, targets, V);
}

PP_CROSS_ENTROPY_BWD(PP_CUDA(cross_entropy_bwd))
{
    if (!N)
        return 0;
    auto kernel = packs(logits, V, 0) ? bwd_kernel<PP_PACK> : bwd_kernel<1>;
    return PP_LAUNCH(kernel, (unsigned)N, THREADS, 0, stream, (elem *)logits,
                     (const float *)lse, targets, V, (float)scale);
}
