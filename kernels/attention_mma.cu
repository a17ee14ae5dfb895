/* SPDX-License-Identifier: MIT */
/* attention forward on tensor cores, for bfloat16. As in FlashAttention-2 (Dao
 * 2023), a block holds 128 queries, 32 for each warp, and visits 64 keys at a
 * time. With the widest values a warp has 16 queries, because their sums have
 * to fit into registers. The values are copied while the scores are computed,
 * and the next keys while the values are added up. */
#include "attention_tiles.cuh"

#include <math.h>

#define KEYS PP_ATTENTION_TILE /* keys that a block visits at a time */

/* Tiles of 16 queries of a warp, which share the fragments of the keys, and
 * queries of a block. */
#define QUERY_TILES(V) ((V) > 128 ? 1 : 2)
#define QUERIES(V) (WARPS * QUERY_TILES(V) * 16)

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

/* Sets the scores of keys to which a query does not attend to -infinity. query
 * and key are the first of the tile. The loop counts keys from the first key of
 * the lane, so that all indices are constants. */
static __device__ inline void mask_keys(const struct pp_attention_shape *s,
                                        int n_keys, int query, int key,
                                        float p[KEYS / 8][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    key += lane % 4 * 2;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int position = query + lane / 4 + r * 8;
        int first = first_key(s, position) - key,
            last = last_key(s, n_keys, position) - key;
        PP_UNROLL
        for (int n = 0; n < KEYS / 8; n++)
            PP_UNROLL
        for (int j = 0; j < 2; j++)
            if (n * 8 + j < first || n * 8 + j > last)
                p[n][2 * r + j] = -INFINITY;
    }
}

/* Replaces scores with exp2(scale score - running max). Scales earlier results
 * down if the maximum grows. scale is positive. */
template <int D>
static __device__ inline void softmax(struct row_softmax *w, float scale,
                                      float p[KEYS / 8][4], float acc[D / 8][4])
{
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        float most = -INFINITY;
        PP_UNROLL
        for (int n = 0; n < KEYS / 8; n++)
            most = fmaxf(most, fmaxf(p[n][2 * r], p[n][2 * r + 1]));
        float max = fmaxf(w->max[r], quad_max(most) * scale);
        float shift = max == -INFINITY ? 0 : max;
        float by = exp2_approx(w->max[r] - shift), sum = 0;
        w->max[r] = max;
        PP_UNROLL
        for (int d = 0; d < D / 8; d++) {
            acc[d][2 * r] *= by;
            acc[d][2 * r + 1] *= by;
        }
        PP_UNROLL
        for (int n = 0; n < KEYS / 8; n++)
            PP_UNROLL
        for (int j = 2 * r; j < 2 * r + 2; j++) {
            p[n][j] = exp2_approx(p[n][j] * scale - shift);
            sum += p[n][j];
        }
        w->sum[r] = w->sum[r] * by + sum;
    }
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

template <int QK, int V>
static __global__ void __launch_bounds__(THREADS)
    mma_fwd_kernel(elem *o, float *lse, const elem *q, const elem *k,
                   const elem *v, const elem *sinks, struct attention_view view)
{
    PP_DYNAMIC_SHARED(shared);
    const int M = QUERY_TILES(V);
    elem *tq = (elem *)shared, *tk = tq + QUERIES(V) * QK, *tv = tk + KEYS * QK;
    const struct pp_attention_shape *s = &view.s;
    struct sequence_tile tile =
        tile_of(s, gridDim.y - 1 - blockIdx.y, QUERIES(V), false);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           keys = keys_at(s, tile.sequence);
    size_t h = blockIdx.x;
    int warp = (int)threadIdx.x / PP_WARP * 16 * M, from, to;
    int position = sq.context + tile.at + warp; /* the warp's first query */
    if (tile.at >= sq.padded)
        return;
    struct head_inputs in = head_inputs_at(s, sq, keys, h, q, k, v);
    float acc[M][V / 8][4] = {}, p[M][KEYS / 8][4];
    float scale = view.scale * PP_LOG2E;
    float max = sinks ? to_float(sinks[h]) * PP_LOG2E : -INFINITY;
    float sum = sinks && threadIdx.x % 4 == 0 ? 1 : 0;
    const struct row_softmax first = {{max, max}, {sum, sum}};
    struct row_softmax w[M];
    PP_UNROLL
    for (int m = 0; m < M; m++)
        w[m] = first;
    if (s->merge)
        PP_UNROLL
    for (int m = 0; m < M; m++)
        load_results<V>(o, lse, s, sq, h, tile.at + warp + m * 16, &w[m],
                        acc[m]);
    key_tiles(s, keys, sq.context + tile.at, QUERIES(V), KEYS, &from, &to);
    if (from < to) {
        load_tile<QK, QUERIES(V)>(tq, in.q, s->ldq, tile.at, sq.length,
                                  s->HDQK);
        load_tile<QK, KEYS>(tk, in.k, s->ldkv, from * KEYS, keys.length,
                            s->HDQK);
        copy_commit();
    }
    for (int i = from; i < to; i++) {
        int key = i * KEYS;
        bool any = tile.at + warp < sq.length &&
                   any_attends(s, keys.length, position, 16 * M, key, KEYS);
        copy_wait<0>();
        __syncthreads(); /* the keys have arrived; no warp reads the last values
                            any more */
        load_tile<V, KEYS>(tv, in.v, s->ldkv, key, keys.length, s->HDV);
        copy_commit();
        if (any)
            multiply<QK, M, KEYS / 8>(p, tq, warp, tk);
        copy_wait<0>();
        __syncthreads(); /* the values have arrived; no warp reads the keys any
                            more */
        if (i + 1 < to) {
            load_tile<QK, KEYS>(tk, in.k, s->ldkv, key + KEYS, keys.length,
                                s->HDQK);
            copy_commit();
        }
        if (!any)
            continue;
        if (!all_attend(s, keys.length, position, 16 * M, key, KEYS))
            PP_UNROLL
        for (int m = 0; m < M; m++)
            mask_keys(s, keys.length, position + m * 16, key, p[m]);
        PP_UNROLL
        for (int m = 0; m < M; m++)
            softmax<V>(&w[m], scale, p[m], acc[m]);
        accumulate<V, M, KEYS / 8>(acc, p, tv);
    }
    PP_UNROLL
    for (int m = 0; m < M; m++)
        store_queries<V>(o, lse, s, sq, h, tile.at + warp + m * 16, &w[m],
                         acc[m]);
}

bool pp_attention_mma_fits(const struct pp_attention_shape *s)
{
    return s->HDQK % 8 == 0 && s->HDV % 8 == 0 && s->HDQK <= 256 &&
           s->HDV <= 256 && n_tiles(s, s->N, PP_ATTENTION_TILE) <= UINT16_MAX &&
           n_tiles(s, pp_attention_key_rows(s), PP_ATTENTION_TILE) <=
               UINT16_MAX;
}

template <int QK, int V>
static int launch_fwd(elem *o, float *lse, const elem *q, const elem *k,
                      const elem *v, const elem *sinks,
                      struct attention_view view, void *stream)
{
    const size_t shared = ((QUERIES(V) + KEYS) * QK + KEYS * V) * sizeof(elem);
    int rc = allow_shared(mma_fwd_kernel<QK, V>, shared);
    return rc ? rc
              : PP_LAUNCH((mma_fwd_kernel<QK, V>),
                          tile_grid(&view.s, view.s.N, QUERIES(V), view.s.NH),
                          THREADS, shared, stream, o, lse, q, k, v, sinks,
                          view);
}

int pp_attention_mma_fwd(elem *o, float *lse, const elem *q, const elem *k,
                         const elem *v, const elem *sinks,
                         struct attention_view view, void *stream)
{
#define LAUNCH(QK, V)                         \
    if (view.s.HDQK <= QK && view.s.HDV <= V) \
        return launch_fwd<QK, V>(o, lse, q, k, v, sinks, view, stream);
    PP_ATTENTION_WIDTHS(LAUNCH)
    return launch_fwd<256, 256>(o, lse, q, k, v, sinks, view, stream);
}
