/* SPDX-License-Identifier: MIT */
/* attention_softmax - the running softmax of attention forward on tensor cores,
 * for 16 queries of a warp: scores and results are fragments of products, as
 * attention_tiles.cuh says. */
#ifndef PP_KERNELS_ATTENTION_SOFTMAX_CUH
#define PP_KERNELS_ATTENTION_SOFTMAX_CUH

#include "attention_tiles.cuh"

#include <math.h>

/* The maximum over the four lanes that share a row of a fragment. */
static __device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(PP_ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(PP_ALL_LANES, x, 2));
}

static __device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(PP_ALL_LANES, x, 1);
    return x + __shfl_xor_sync(PP_ALL_LANES, x, 2);
}

/* Running softmax of this lane's two rows of 16, with exponents of 2. */
struct row_softmax {
    float max[2], sum[2];
};

/* Returns the softmax before the first key: without a sink, or with the one of
 * head h. One of the four lanes of a row has its sum. */
static __device__ inline struct row_softmax first_softmax(const elem *sinks,
                                                          size_t h)
{
    float max = sinks ? to_float(sinks[h]) * PP_LOG2E : -INFINITY;
    float sum = sinks && threadIdx.x % 4 == 0 ? 1 : 0;
    struct row_softmax w = {{max, max}, {sum, sum}};
    return w;
}

/* Caps scores, which become powers of 2. */
template <int N>
static __device__ inline void cap_scores(const struct attention_view *view,
                                         float p[N][4])
{
    PP_UNROLL
    for (int i = 0; i < N * 4; i++)
        p[i / 4][i % 4] = view->cap * score_tanh(view, p[i / 4][i % 4]);
}

/* Sets the scores of keys to which a query does not attend to -infinity. query
 * and key are the first of the tile, which has 8 N keys. The loop counts keys
 * from the first key of the lane, so that all indices are constants. */
template <int N>
static __device__ inline void mask_keys(const struct pp_attention_shape *s,
                                        int n_keys, int query, int key,
                                        float p[N][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    key += lane % 4 * 2;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int position = query + lane / 4 + r * 8;
        int first = pp_attention_first(s, position) - key,
            last = last_key(s, n_keys, position) - key;
        PP_UNROLL
        for (int n = 0; n < N; n++)
            PP_UNROLL
        for (int j = 0; j < 2; j++)
            if (n * 8 + j < first || n * 8 + j > last)
                p[n][2 * r + j] = -INFINITY;
    }
}

/* Replaces scores with exp2(scale score - running max). by[] becomes what
 * earlier results are scaled by, because the maximum may grow. scale is
 * positive. */
template <int N>
static __device__ inline void softmax(struct row_softmax *w, float scale,
                                      float p[N][4], float by[2])
{
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        float most = -INFINITY;
        PP_UNROLL
        for (int n = 0; n < N; n++)
            most = fmaxf(most, fmaxf(p[n][2 * r], p[n][2 * r + 1]));
        float max = fmaxf(w->max[r], quad_max(most) * scale);
        float shift = max == -INFINITY ? 0 : max, sum = 0;
        by[r] = exp2_approx(w->max[r] - shift);
        w->max[r] = max;
        PP_UNROLL
        for (int n = 0; n < N; n++)
            PP_UNROLL
        for (int j = 2 * r; j < 2 * r + 2; j++) {
            p[n][j] = exp2_approx(p[n][j] * scale - shift);
            sum += p[n][j];
        }
        w->sum[r] = w->sum[r] * by[r] + sum;
    }
}

template <int N>
static __device__ inline void scale_rows(float acc[N][4], const float by[2])
{
    PP_UNROLL
    for (int i = 0; i < N * 4; i++)
        acc[i / 4][i % 4] *= by[i % 4 / 2];
}

/* Divides the results by the sums of the softmax, and writes 16 rows from row t
 * on. */
template <int D>
static __device__ inline void
store_queries(elem *o, float *lse, const struct pp_attention_shape *s,
              struct packed_sequence sq, size_t h, int t,
              const struct row_softmax *w, const float acc[D / 8][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    float by[2];
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + lane / 4 + r * 8;
        float sum = quad_sum(w->sum[r]);
        by[r] = sum > 0 ? 1 / sum : 0;
        if (lane % 4 == 0 && at < sq.padded)
            lse[(size_t)(sq.begin + at) * s->NH + h] =
                at < sq.length ? (w->max[r] + log2f(sum)) * LN2 : 0;
    }
    store_rows<D>(o + (size_t)sq.begin * s->ldo + h * s->HDV, s->ldo, s->HDV, t,
                  sq, acc, by);
}

/* Takes the results of other keys for 16 rows from row t on. One of the four
 * lanes of a row has its sum. */
template <int D>
static __device__ inline void
load_results(const elem *o, const float *lse,
             const struct pp_attention_shape *s, struct packed_sequence sq,
             size_t h, int t, struct row_softmax *w, float acc[D / 8][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + lane / 4 + r * 8;
        size_t row = (size_t)(sq.begin + at);
        w->max[r] =
            at < sq.length ? lse[row * s->NH + h] * PP_LOG2E : -INFINITY;
        w->sum[r] = w->max[r] > -INFINITY && lane % 4 == 0 ? 1 : 0;
        if (at >= sq.length)
            continue;
        const elem *from = o + row * s->ldo + h * s->HDV + lane % 4 * 2;
        PP_UNROLL
        for (int i = 0; i < D / 8 * 2; i++)
            if (i / 2 * 8 < (int)s->HDV)
                acc[i / 2][2 * r + i % 2] = to_float(from[i / 2 * 8 + i % 2]);
    }
}

#endif
