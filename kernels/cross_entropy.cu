/* SPDX-License-Identifier: MIT */
/* cross_entropy on a GPU. Each row has a block, which reads the logits once,
 * with a running maximum (Milakov and Gimelshein 2018). */
#include "device.cuh"

#include <math.h>

#define THREADS 512
#define AT_ONCE 4 /* packs that a thread reads before it writes one */

/* Sum of exp(x - max). */
struct exp_sum {
    float max, sum;
};

/* exp(x - max) as a term of a sum whose largest term is 1, so that the error of
 * small terms does not matter. */
static __device__ inline float exp_below_max(float x, float max)
{
    return exp2_approx((x - max) * PP_LOG2E);
}

static __device__ inline struct exp_sum merge_sums(struct exp_sum a,
                                                   struct exp_sum b)
{
    struct exp_sum c = {fmaxf(a.max, b.max), 0};
    if (c.max == -INFINITY)
        return c;
    c.sum = a.sum * expf(a.max - c.max) + b.sum * expf(b.max - c.max);
    return c;
}

template <int P>
static __global__ void
cross_entropy_fwd_kernel(float *lse, float *logp, const elem *logits,
                         const int32_t *targets, size_t V)
{
    __shared__ struct exp_sum sums[THREADS];
    const elem *x = logits + (size_t)blockIdx.x * V;
    struct exp_sum mine = {-INFINITY, 0};
    for (size_t i = threadIdx.x; i < V / P; i += THREADS) {
        pack<P> v = ((const pack<P> *)x)[i];
        float max = mine.max;
        for (int j = 0; j < P; j++)
            max = fmaxf(max, to_float(v.at[j]));
        mine.sum *= exp_below_max(mine.max, max);
        mine.max = max;
        for (int j = 0; j < P; j++)
            mine.sum += exp_below_max(to_float(v.at[j]), max);
    }
    sums[threadIdx.x] = mine;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] =
                merge_sums(sums[threadIdx.x], sums[threadIdx.x + half]);
    }
    if (threadIdx.x)
        return;
    int32_t word = targets[blockIdx.x];
    float rest = logf(sums[0].sum);
    float target = word < 0 ? -INFINITY : to_float(x[word]);
    lse[blockIdx.x] = sums[0].max + rest;
    logp[blockIdx.x] = target - sums[0].max - rest;
}

/* Returns the derivative of softcap, which made x; 1 without a cap. */
static __device__ inline float cap_slope(float x, float cap)
{
    float y = cap > 0 ? x / cap : 0;
    return 1 - y * y;
}

/* exp(logit - lse). bfloat16 does not show the error of the fast form. */
static __device__ inline float probability(float logit, float lse)
{
    return sizeof(elem) < sizeof(float) ? exp_below_max(logit, lse)
                                        : expf(logit - lse);
}

template <int P, bool CAPPED>
static __global__ void
cross_entropy_bwd_kernel(elem *logits, const float *lse, const int32_t *targets,
                         const float *scales, size_t V, float cap)
{
    pack<P> *x = (pack<P> *)(logits + (size_t)blockIdx.x * V);
    float shift = lse[blockIdx.x], scale = scales[blockIdx.x];
    size_t target = (size_t)targets[blockIdx.x]; /* beyond V if negative */
    for (size_t at = threadIdx.x; at < V / P; at += AT_ONCE * THREADS) {
        pack<P> v[AT_ONCE];
        PP_UNROLL
        for (size_t k = 0, i = at; k < AT_ONCE; k++, i += THREADS)
            if (i < V / P)
                v[k] = x[i];
        PP_UNROLL
        for (size_t k = 0, i = at; k < AT_ONCE; k++, i += THREADS) {
            if (i >= V / P)
                break;
            int hit = i == target / P ? (int)(target % P) : -1;
            for (int j = 0; j < P; j++) {
                float a = to_float(v[k].at[j]), p = probability(a, shift);
                float d = (j == hit ? p - 1 : p) * scale;
                store(&v[k].at[j], CAPPED ? d * cap_slope(a, cap) : d);
            }
            x[i] = v[k];
        }
    }
}

PP_CROSS_ENTROPY_FWD(PP_CUDA(cross_entropy_fwd))
{
    if (!N)
        return 0;
    auto kernel = packs(logits, V, 0) ? cross_entropy_fwd_kernel<PP_PACK>
                                      : cross_entropy_fwd_kernel<1>;
    return PP_LAUNCH(kernel, (unsigned)N, THREADS, 0, stream, (float *)lse,
                     (float *)logp, (const elem *)logits, targets, V);
}

template <bool CAPPED>
static int launch_gradient(void *logits, const void *lse,
                           const int32_t *targets, const void *scale, size_t N,
                           size_t V, double cap, void *stream)
{
    auto kernel = packs(logits, V, 0)
                      ? cross_entropy_bwd_kernel<PP_PACK, CAPPED>
                      : cross_entropy_bwd_kernel<1, CAPPED>;
    return PP_LAUNCH(kernel, (unsigned)N, THREADS, 0, stream, (elem *)logits,
                     (const float *)lse, targets, (const float *)scale, V,
                     (float)cap);
}

PP_CROSS_ENTROPY_BWD(PP_CUDA(cross_entropy_bwd))
{
    if (!N)
        return 0;
    auto launch = cap > 0 ? launch_gradient<true> : launch_gradient<false>;
    return launch(logits, lse, targets, scale, N, V, cap, stream);
}

static __global__ void cross_entropy_merge_kernel(float *lse, float *logp,
                                                  const float *parts, size_t N,
                                                  size_t P)
{
    size_t t = blockIdx.x * (size_t)THREADS + threadIdx.x;
    struct exp_sum all = {-INFINITY, 0};
    float found = -INFINITY;
    if (t >= N)
        return;
    for (size_t k = 0; k < P; k++) {
        struct exp_sum part = {parts[2 * k * N + t], 1};
        all = merge_sums(all, part);
    }
    float rest = logf(all.sum);
    for (size_t k = 0; k < P; k++)
        found = fmaxf(found, parts[(2 * k + 1) * N + t] +
                                 (parts[2 * k * N + t] - all.max - rest));
    lse[t] = all.max + rest;
    logp[t] = found;
}

PP_CROSS_ENTROPY_MERGE(PP_CUDA(cross_entropy_merge))
{
    if (!N)
        return 0;
    return PP_LAUNCH(cross_entropy_merge_kernel,
                     (unsigned)((N + THREADS - 1) / THREADS), THREADS, 0,
                     stream, (float *)lse, (float *)logp, (const float *)parts,
                     N, P);
}

#define SOFT_THREADS 128

static __global__ void soft_targets_fwd_kernel(float *logp, const elem *logits,
                                               const float *lse,
                                               const int32_t *ids,
                                               const float *weights, size_t V,
                                               size_t k)
{
    __shared__ float shared[SOFT_THREADS / PP_WARP];
    const elem *x = logits + (size_t)blockIdx.x * V;
    float sum = 0;
    ids += blockIdx.x * k;
    weights += blockIdx.x * k;
    for (size_t j = threadIdx.x; j < k; j += SOFT_THREADS)
        if (ids[j] >= 0)
            sum += weights[j] * (to_float(x[ids[j]]) - lse[blockIdx.x]);
    sum = team_sum<SOFT_THREADS>(sum, shared);
    if (!threadIdx.x)
        logp[blockIdx.x] += sum;
}

PP_SOFT_TARGETS_FWD(PP_CUDA(soft_targets_fwd))
{
    if (!N)
        return 0;
    return PP_LAUNCH(soft_targets_fwd_kernel, (unsigned)N, SOFT_THREADS, 0,
                     stream, (float *)logp, (const elem *)logits,
                     (const float *)lse, ids, (const float *)weights, V, k);
}

/* Computes the elements with a weight from the logits, so that each is rounded
 * once; shared has the logits (k) while the row is overwritten. */
static __global__ void soft_targets_bwd_kernel(elem *logits, const float *lse,
                                               const int32_t *ids,
                                               const float *weights,
                                               const float *scales, size_t V,
                                               size_t k, float cap)
{
    __shared__ float kept[PP_MOST_SOFT_TARGETS];
    elem *x = logits + (size_t)blockIdx.x * V;
    float shift = lse[blockIdx.x], scale = scales[blockIdx.x];
    ids += blockIdx.x * k;
    weights += blockIdx.x * k;
    for (size_t j = threadIdx.x; j < k; j += THREADS)
        kept[j] = ids[j] < 0 ? 0 : to_float(x[ids[j]]);
    __syncthreads();
    for (size_t i = threadIdx.x; i < V; i += THREADS) {
        float a = to_float(x[i]);
        store(&x[i], expf(a - shift) * scale * cap_slope(a, cap));
    }
    __syncthreads();
    for (size_t j = threadIdx.x; j < k; j += THREADS)
        if (ids[j] >= 0)
            store(&x[ids[j]], (expf(kept[j] - shift) - weights[j]) * scale *
                                  cap_slope(kept[j], cap));
}

PP_SOFT_TARGETS_BWD(PP_CUDA(soft_targets_bwd))
{
    if (!N)
        return 0;
    return PP_LAUNCH(soft_targets_bwd_kernel, (unsigned)N, THREADS, 0, stream,
                     (elem *)logits, (const float *)lse, ids,
                     (const float *)weights, (const float *)scale, V, k,
                     (float)cap);
}

/* One block: its threads read rows side by side, and the first one adds them in
 * their order. No product is fused with a sum, as on the CPU. */
static __global__ void cross_entropy_add_kernel(double *sum, const float *logp,
                                                double scale, size_t N)
{
    __shared__ float row[THREADS];
    double all = 0;
    for (size_t at = 0; at < N; at += THREADS) {
        if (at + threadIdx.x < N)
            row[threadIdx.x] = logp[at + threadIdx.x];
        __syncthreads();
        for (size_t i = 0; !threadIdx.x && i < THREADS && at + i < N; i++)
            all -= (double)row[i];
        __syncthreads();
    }
    if (!threadIdx.x)
        *sum = __dadd_rn(*sum, __dmul_rn(all, scale));
}

PP_CROSS_ENTROPY_ADD(PP_CUDA(cross_entropy_add))
{
    if (!N)
        return 0;
    return PP_LAUNCH(cross_entropy_add_kernel, 1, THREADS, 0, stream, sum,
                     (const float *)logp, scale, N);
}
