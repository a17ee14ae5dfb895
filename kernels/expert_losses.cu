/* SPDX-License-Identifier: MIT */
/* expert_losses - the loads of experts and the auxiliary losses of routers on a
 * GPU. */
#include "token_warps.cuh"

#define SUM_BLOCKS 256 /* most blocks of a sum over tokens */

/* --- loads --- */

static __global__ void load_kernel(float *load, struct pp_routing r,
                                   size_t first, size_t end)
{
    __shared__ int counts[WARPS];
    int sum = 0, before;
    for (size_t at = first; at < end; at += THREADS) {
        size_t i = at + threadIdx.x;
        bool here = i < end && r.expert[r.row[i]] == (int32_t)blockIdx.x;
        sum += count_threads(here, counts, &before);
    }
    if (threadIdx.x == 0)
        load[blockIdx.x] += (float)sum;
}

PP_LOAD(PP_CUDA(load))
{
    return first < end ? PP_LAUNCH(load_kernel, (unsigned)E, THREADS, 0, stream,
                                   (float *)load, *r, first * K, end * K)
                       : 0;
}

/* A few hundred experts, once a step: each thread adds all loads. */
static __global__ void follow_load_kernel(elem *bias, float *master,
                                          const float *load, size_t first,
                                          size_t n, size_t E, double rate,
                                          bool centred)
{
    double sum = 0, below = 0, above = 0;
    for (size_t e = 0; e < E; e++)
        sum += (double)load[e];
    for (size_t e = 0; e < E; e++) {
        below += (double)load[e] * (double)E < sum;
        above += (double)load[e] * (double)E > sum;
    }
    double mean = centred ? (below - above) / (double)E : 0;
    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        double at = (double)load[first + i] * (double)E;
        double sign = (double)(at < sum) - (double)(at > sum);
        float before = master ? master[i] : to_float(bias[i]);
        float b = (float)((double)before + rate * (sign - mean));
        store(&bias[i], b);
        if (master)
            master[i] = b;
    }
}

PP_FOLLOW_LOAD(PP_CUDA(follow_load))
{
    return n ? PP_LAUNCH(follow_load_kernel, blocks_for(n, THREADS), THREADS, 0,
                         stream, (elem *)bias, (float *)master,
                         (const float *)load, first, n, E, rate, centred)
             : 0;
}

/* --- auxiliary losses --- */

/* TERM has a device function `double of(size_t token) const` for a warp. */
template <class TERM>
static __global__ void token_partials(double *partial, TERM term, size_t first,
                                      size_t end)
{
    __shared__ double sums[WARPS];
    double sum = 0;
    for (size_t t = first + warp_token(); t < end;
         t += (size_t)gridDim.x * WARPS)
        sum += term.of(t);
    if (lane_of() == 0)
        sums[threadIdx.x / PP_WARP] = sum;
    __syncthreads();
    if (threadIdx.x)
        return;
    for (int i = 1; i < WARPS; i++)
        sum += sums[i];
    partial[blockIdx.x] = sum;
}

static __global__ void token_gather(double *out, const double *partial,
                                    unsigned n, double scale)
{
    double sum = 0;
    if (threadIdx.x)
        return;
    for (unsigned i = 0; i < n; i++)
        sum += partial[i];
    *out += scale * sum;
}

/* *out += scale times the sum of the terms of tokens first .. end - 1 */
template <class TERM>
static int add_tokens(double *out, TERM term, double scale, size_t first,
                      size_t end, void *stream)
{
    double *partial = (double *)((struct pp_cuda_stream *)stream)->partials;
    if (first >= end)
        return 0;
    unsigned n = token_blocks(end - first);
    n = n < SUM_BLOCKS ? n : SUM_BLOCKS;
    int rc = PP_LAUNCH((token_partials<TERM>), n, THREADS, 0, stream, partial,
                       term, first, end);
    return rc ? rc
              : PP_LAUNCH(token_gather, 1, PP_WARP, 0, stream, out,
                          (const double *)partial, n, scale);
}

struct balance_term {
    const float *load, *probs;
    size_t E;
    bool sigmoid;

    /* Returns what scores are divided by, so that they add up to 1. */
    __device__ float score_sum(size_t t) const
    {
        float sum = 0;
        for (size_t e = (size_t)lane_of(); sigmoid && e < E; e += PP_WARP)
            sum += probs[t * E + e];
        return sigmoid ? warp_sum(sum) : 1;
    }

    __device__ float mean(size_t t, float by) const
    {
        float sum = 0;
        for (size_t e = (size_t)lane_of(); e < E; e += PP_WARP)
            sum += load[e] * probs[t * E + e];
        return warp_sum(sum) / by;
    }

    __device__ double of(size_t t) const
    {
        return (double)mean(t, score_sum(t));
    }
};

static __global__ void balance_bwd_kernel(elem *dlogits,
                                          struct balance_term term, float scale,
                                          size_t first, size_t end)
{
    size_t t = first + warp_token(), E = term.E;
    if (t >= end)
        return;
    float by = term.score_sum(t), mean = term.mean(t, by);
    for (size_t e = (size_t)lane_of(); e < E; e += PP_WARP) {
        float p = term.probs[t * E + e], slope = term.sigmoid ? 1 - p : 1;
        elem *out = &dlogits[t * E + e];
        store(out,
              to_float(*out) + scale * p / by * slope * (term.load[e] - mean));
    }
}

PP_BALANCE_FWD(PP_CUDA(balance_fwd))
{
    struct balance_term term = {(const float *)load, (const float *)probs, E,
                                sigmoid};
    return add_tokens(loss, term, scale, first, end, stream);
}

PP_BALANCE_BWD(PP_CUDA(balance_bwd))
{
    struct balance_term term = {(const float *)load, (const float *)probs, E,
                                sigmoid};
    return first < end
               ? PP_LAUNCH(balance_bwd_kernel, token_blocks(end - first),
                           THREADS, 0, stream, (elem *)dlogits, term,
                           (float)scale, first, end)
               : 0;
}

struct size_term {
    const float *logits;
    size_t E;

    __device__ float log_sum_exp(size_t t) const
    {
        const float *x = logits + t * E;
        float most = warp_largest(x, E);
        return most + logf(warp_exp_sum(x, E, most));
    }

    __device__ double of(size_t t) const
    {
        double size = (double)log_sum_exp(t);
        return size * size;
    }
};

static __global__ void logit_size_bwd_kernel(elem *dlogits,
                                             struct size_term term, float scale,
                                             size_t first, size_t end)
{
    size_t t = first + warp_token(), E = term.E;
    if (t >= end)
        return;
    float size = term.log_sum_exp(t);
    for (size_t e = (size_t)lane_of(); e < E; e += PP_WARP) {
        elem *out = &dlogits[t * E + e];
        store(out, to_float(*out) +
                       2 * scale * size * expf(term.logits[t * E + e] - size));
    }
}

PP_LOGIT_SIZE_FWD(PP_CUDA(logit_size_fwd))
{
    struct size_term term = {(const float *)logits, E};
    return add_tokens(loss, term, scale, first, end, stream);
}

PP_LOGIT_SIZE_BWD(PP_CUDA(logit_size_bwd))
{
    struct size_term term = {(const float *)logits, E};
    return first < end
               ? PP_LAUNCH(logit_size_bwd_kernel, token_blocks(end - first),
                           THREADS, 0, stream, (elem *)dlogits, term,
                           (float)scale, first, end)
               : 0;
}
