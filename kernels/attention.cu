/* SPDX-License-Identifier: MIT */
/* attention on a GPU, for any width. Each query or key has a warp, and the warp
 * visits 32 of the others at a time, one for each lane. bfloat16 heads use
 * tensor cores instead if their widths are multiples of 8 (attention_mma.cu).
 * Backward computes dq with a warp for each query, dk and dv with a warp for
 * each key; a warp adds its terms in order. */
#include "attention.cuh"

#include <math.h>

#define PACK_TEAM 8 /* lanes of a row of 64 elements in packs of 8 */
#define WARPS 4
#define THREADS (WARPS * PP_WARP)
#define LANE_COLUMNS 8 /* most columns of a row for one lane */
#define MAX_WIDTH (LANE_COLUMNS * PP_WARP)

/* sum a[i] b[i] in order. Lanes may read rows that are far apart, so each reads
 * V elements at a time. */
template <int V>
static __device__ inline float dot_elements(const elem *a, const elem *b,
                                            size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i += V) {
        pack<V> x = *(const pack<V> *)(a + i), y = *(const pack<V> *)(b + i);
        for (int j = 0; j < V; j++)
            sum += to_float(x.at[j]) * to_float(y.at[j]);
    }
    return sum;
}

/* For each of the n rows at x: acc += row l times the `by` of lane l. A lane
 * has columns lane, lane + 32, ... */
static __device__ inline void accumulate_rows(float acc[LANE_COLUMNS], float by,
                                              const elem *x, size_t ld, int n,
                                              size_t width)
{
    size_t lane = threadIdx.x % PP_WARP;
    for (int l = 0; l < PP_WARP; l++) {
        float f = __shfl_sync(PP_ALL_LANES, by, l);
        if (l >= n)
            continue;
        for (int j = 0; j < LANE_COLUMNS; j++) {
            size_t c = lane + (size_t)j * PP_WARP;
            if (c < width)
                acc[j] += f * to_float(x[(size_t)l * ld + c]);
        }
    }
}

static __device__ inline void load_row(float acc[LANE_COLUMNS], const elem *x,
                                       size_t width)
{
    size_t lane = threadIdx.x % PP_WARP;
    for (int j = 0; j < LANE_COLUMNS; j++)
        if (lane + (size_t)j * PP_WARP < width)
            acc[j] = to_float(x[lane + (size_t)j * PP_WARP]);
}

static __device__ inline void store_row(elem *y, const float acc[LANE_COLUMNS],
                                        float by, size_t width)
{
    size_t lane = threadIdx.x % PP_WARP;
    for (int j = 0; j < LANE_COLUMNS; j++)
        if (lane + (size_t)j * PP_WARP < width)
            store(&y[lane + (size_t)j * PP_WARP], acc[j] * by);
}

/* Writes a row of a gradient, or adds to it. */
static __device__ inline void store_gradient(elem *y, float acc[LANE_COLUMNS],
                                             bool merge, size_t width)
{
    float before[LANE_COLUMNS] = {0};
    if (merge)
        load_row(before, y, width);
    for (int j = 0; j < LANE_COLUMNS; j++)
        acc[j] += before[j];
    store_row(y, acc, 1, width);
}

/* Returns the score of a pair. */
template <int V, bool CAPPED>
static __device__ inline float pair_score(const struct attention_view *view,
                                          const elem *query, const elem *key)
{
    float x = view->scale * dot_elements<V>(query, key, view->s.HDQK);
    float cap = (float)view->s.cap;
    return CAPPED ? cap * tanhf(x / cap) : x;
}

template <int V, bool CAPPED>
static __global__ void attention_fwd_kernel(elem *o, float *lse, const elem *q,
                                            const elem *k, const elem *v,
                                            const elem *sinks,
                                            struct attention_view view)
{
    const struct pp_attention_shape *s = &view.s;
    struct sequence_tile tile = tile_of(s, blockIdx.x, WARPS, false);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           keys = keys_at(s, tile.sequence);
    size_t h = blockIdx.y, kv = h / (s->NH / s->NKV);
    int t = tile.at + (int)threadIdx.x / PP_WARP;
    int lane = (int)threadIdx.x % PP_WARP;
    int last = last_key(s, keys.length, sq.context + t);
    if (t >= sq.padded)
        return;
    size_t row = (size_t)(sq.begin + t);
    const elem *query = q + row * s->ldq + h * s->HDQK;
    float acc[LANE_COLUMNS] = {0}, max = -INFINITY, sum = 0;
    bool counts = t < sq.length;
    if (counts && s->merge) {
        load_row(acc, o + row * s->ldo + h * s->HDV, s->HDV);
        max = lse[row * s->NH + h];
    } else if (counts && sinks) {
        max = to_float(sinks[h]);
    }
    sum = max > -INFINITY ? 1 : 0;
    for (int at = pp_attention_first(s, sq.context + t); counts && at <= last;
         at += PP_WARP) {
        int n = last + 1 - at < PP_WARP ? last + 1 - at : PP_WARP;
        size_t first = (size_t)(keys.begin + at);
        const elem *key = k + first * s->ldkv + kv * s->HDQK;
        float score = -INFINITY;
        if (lane < n)
            score = pair_score<V, CAPPED>(&view, query,
                                          key + (size_t)lane * s->ldkv);
        float most = fmaxf(max, warp_max(score)), by = expf(max - most);
        float p = lane < n ? expf(score - most) : 0;
        sum = sum * by + warp_sum(p);
        max = most;
        for (int j = 0; j < LANE_COLUMNS; j++)
            acc[j] *= by;
        accumulate_rows(acc, p, v + first * s->ldkv + kv * s->HDV, s->ldkv, n,
                        s->HDV);
    }
    store_row(o + row * s->ldo + h * s->HDV, acc,
              counts && sum > 0 ? 1 / sum : 0, s->HDV);
    if (lane == 0)
        lse[row * s->NH + h] = counts ? max + logf(sum) : 0;
}

/* Computes delta for each row and head, with TEAM lanes for each. */
template <int V, int TEAM>
static __global__ void attention_delta_kernel(float *delta, const elem *dout,
                                              const elem *o, size_t N,
                                              size_t NH, size_t HDV, size_t ldo)
{
    size_t i = grid_thread() / TEAM, lane = threadIdx.x % TEAM;
    size_t at = i / NH * ldo + i % NH * HDV;
    bool inside = i < N * NH;
    float sum = 0;
    for (size_t c = lane * V; inside && c < HDV; c += TEAM * V) {
        pack<V> x = *(const pack<V> *)(dout + at + c);
        pack<V> y = *(const pack<V> *)(o + at + c);
        for (int j = 0; j < V; j++)
            sum += to_float(x.at[j]) * to_float(y.at[j]);
    }
    for (int step = TEAM / 2; step; step /= 2)
        sum += __shfl_xor_sync(PP_ALL_LANES, sum, step);
    if (inside && lane == 0)
        delta[i] = sum;
}

/* Returns the gradient of the score of a pair, and its probability in *p.
 * lone: the query has no other key. */
template <int V, bool CAPPED>
static __device__ inline float
pair_gradient(const struct bwd_inputs *b, bool lone, size_t row, size_t h,
              const elem *query, const elem *key, const elem *value, float *p)
{
    const struct pp_attention_shape *s = &b->view.s;
    size_t at = row * s->NH + h;
    float score = pair_score<V, CAPPED>(&b->view, query, key);
    float by = CAPPED ? score / (float)s->cap : 0;
    *p = expf(score - b->lse[at]);
    float dp =
        dot_elements<V>(b->dout + row * s->ldo + h * s->HDV, value, s->HDV);
    float ds = *p * (dp - row_term(lone, *p, dp, b->delta[at]));
    return ds * (1 - by * by) * b->view.scale;
}

template <int V, bool CAPPED>
static __global__ void attention_dq_kernel(elem *dq, struct bwd_inputs b)
{
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile = tile_of(s, blockIdx.x, WARPS, false);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           all = keys_at(s, tile.sequence);
    size_t h = blockIdx.y, kv = h / (s->NH / s->NKV);
    int t = tile.at + (int)threadIdx.x / PP_WARP;
    int lane = (int)threadIdx.x % PP_WARP;
    int last = last_key(s, all.length, sq.context + t);
    if (t >= sq.padded)
        return;
    size_t row = (size_t)(sq.begin + t);
    const elem *query = b.q + row * s->ldq + h * s->HDQK;
    float acc[LANE_COLUMNS] = {0};
    bool counts = t < sq.length;
    bool lone = pp_attention_is_lone(s, sq.base, all.length, sq.context + t);
    for (int at = pp_attention_first(s, sq.context + t); counts && at <= last;
         at += PP_WARP) {
        int n = last + 1 - at < PP_WARP ? last + 1 - at : PP_WARP;
        size_t first = (size_t)(all.begin + at);
        const elem *keys = b.k + first * s->ldkv + kv * s->HDQK;
        const elem *values = b.v + first * s->ldkv + kv * s->HDV;
        float p, ds = 0;
        if (lane < n)
            ds = pair_gradient<V, CAPPED>(&b, lone, row, h, query,
                                          keys + (size_t)lane * s->ldkv,
                                          values + (size_t)lane * s->ldkv, &p);
        accumulate_rows(acc, ds, keys, s->ldkv, n, s->HDQK);
    }
    store_gradient(dq + row * s->ldq + h * s->HDQK, acc, s->merge, s->HDQK);
}

/* Adds what the queries of sequence i give to key t. */
template <int V, bool CAPPED>
static __device__ inline void
add_sequence(float k_acc[LANE_COLUMNS], float v_acc[LANE_COLUMNS],
             const struct bwd_inputs *b, unsigned i, int t, size_t kv)
{
    const struct pp_attention_shape *s = &b->view.s;
    struct packed_sequence sq = sequence_at(s, i), keys = keys_at(s, i);
    size_t group = s->NH / s->NKV, row = (size_t)(keys.begin + t);
    int lane = (int)threadIdx.x % PP_WARP;
    const elem *key = b->k + row * s->ldkv + kv * s->HDQK;
    const elem *value = b->v + row * s->ldkv + kv * s->HDV;
    int end = t < keys.length
                  ? pp_attention_end(s, sq.context + sq.length, t) - sq.context
                  : 0;
    int begin = first_position(s, t) - sq.context;
    begin = begin > 0 ? begin : 0;
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
        for (int at = begin; at < end; at += PP_WARP) {
            int n = end - at < PP_WARP ? end - at : PP_WARP;
            size_t first = (size_t)(sq.begin + at);
            const elem *queries = b->q + first * s->ldq + h * s->HDQK;
            float p = 0, ds = 0;
            if (lane < n)
                ds = pair_gradient<V, CAPPED>(
                    b,
                    pp_attention_is_lone(s, sq.base, keys.length,
                                         sq.context + at + lane),
                    first + (size_t)lane, h, queries + (size_t)lane * s->ldq,
                    key, value, &p);
            accumulate_rows(k_acc, ds, queries, s->ldq, n, s->HDQK);
            accumulate_rows(v_acc, p, b->dout + first * s->ldo + h * s->HDV,
                            s->ldo, n, s->HDV);
        }
}

template <int V, bool CAPPED>
static __global__ void attention_dkv_kernel(elem *dk, elem *dv,
                                            struct bwd_inputs b)
{
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile = tile_of(s, blockIdx.x, WARPS, true);
    struct packed_sequence keys = keys_at(s, tile.sequence);
    size_t kv = blockIdx.y;
    int t = tile.at + (int)threadIdx.x / PP_WARP;
    if (t >= keys.padded)
        return;
    size_t row = (size_t)(keys.begin + t);
    float k_acc[LANE_COLUMNS] = {0}, v_acc[LANE_COLUMNS] = {0};
    for (unsigned i = 0; i < sharers(s); i++)
        add_sequence<V, CAPPED>(k_acc, v_acc, &b, tile.sequence + i, t, kv);
    store_gradient(dk + row * s->ldkv + kv * s->HDQK, k_acc, s->merge, s->HDQK);
    store_gradient(dv + row * s->ldkv + kv * s->HDV, v_acc, s->merge, s->HDV);
}

static struct attention_view view_of(const struct pp_attention_shape *s)
{
    struct attention_view view = {*s, (float)s->scale, (float)s->cap * PP_LOG2E,
                                  0};
    if (s->cap > 0)
        view.tanh_scale = (float)(2 * s->scale / s->cap) * PP_LOG2E;
    return view;
}

static bool is_refused(const struct pp_attention_shape *s)
{
    return s->HDQK > MAX_WIDTH || s->HDV > MAX_WIDTH || s->NH > UINT16_MAX;
}

/* The kernel of a name for rows in packs of V elements. */
#define VERSION(name, V, cap) ((cap) > 0 ? name<V, true> : name<V, false>)

static dim3 warp_grid(const struct pp_attention_shape *s, size_t rows,
                      size_t heads)
{
    return dim3((unsigned)n_tiles(s, rows, WARPS), (unsigned)heads);
}

/* Room for delta and its alignment, in whole packs, so that the buffer after it
 * has the same alignment. */
PP_ATTENTION_SCRATCH(PP_CUDA(attention_scratch))
{
    return pp_attention_cuda_scratch(s->N, s->NH) / sizeof(elem);
}

PP_ATTENTION_FWD(PP_CUDA(attention_fwd))
{
    (void)scratch;
    if (!s->N || !s->n_sequences)
        return 0;
    if (is_refused(s))
        return (int)cudaErrorInvalidValue;
#ifdef PP_ELEMENT_BF16
    if (pp_attention_mma_fits(s) && packs(q, 8, s->ldq) &&
        packs(k, 8, s->ldkv) && packs(v, 8, s->ldkv) && packs(o, 8, s->ldo)) {
        auto fwd = pp_attention_wgmma_fits(s) ? pp_attention_wgmma_fwd
                                              : pp_attention_mma_fwd;
        return fwd((elem *)o, (float *)lse, (const elem *)q, (const elem *)k,
                   (const elem *)v, (const elem *)sinks, view_of(s), stream);
    }
#endif
    bool packed = packs(q, s->HDQK, s->ldq) && packs(k, s->HDQK, s->ldkv);
    auto kernel = packed ? VERSION(attention_fwd_kernel, PP_PACK, s->cap)
                         : VERSION(attention_fwd_kernel, 1, s->cap);
    return PP_LAUNCH(kernel, warp_grid(s, s->N, s->NH), THREADS, 0, stream,
                     (elem *)o, (float *)lse, (const elem *)q, (const elem *)k,
                     (const elem *)v, (const elem *)sinks, view_of(s));
}

PP_ATTENTION_BWD(PP_CUDA(attention_bwd))
{
    float *delta = (float *)(((uintptr_t)scratch + 15) / 16 * 16);
    if (!s->N || !s->n_sequences)
        return 0;
    if (is_refused(s))
        return (int)cudaErrorInvalidValue;
    bool in_packs = packs(dout, s->HDV, s->ldo) && packs(o, s->HDV, s->ldo);
    size_t team = in_packs ? PACK_TEAM : PP_WARP;
    int rc =
        PP_LAUNCH((in_packs ? attention_delta_kernel<PP_PACK, PACK_TEAM>
                            : attention_delta_kernel<1, PP_WARP>),
                  (unsigned)((s->N * s->NH * team + THREADS - 1) / THREADS),
                  THREADS, 0, stream, delta, (const elem *)dout,
                  (const elem *)o, s->N, s->NH, s->HDV, s->ldo);
    if (rc)
        return rc;
    struct bwd_inputs b = {
        (const elem *)dout, (const elem *)q, (const elem *)k, (const elem *)v,
        (const float *)lse, delta,           view_of(s)};
#ifdef PP_ELEMENT_BF16
    if (pp_attention_mma_fits(s) && packs(q, 8, s->ldq) &&
        packs(k, 8, s->ldkv) && packs(v, 8, s->ldkv) &&
        packs(dout, 8, s->ldo) && packs(dq, 8, s->ldq) &&
        packs(dk, 8, s->ldkv) && packs(dv, 8, s->ldkv)) {
        if (pp_attention_wgmma_fits(s))
            return pp_attention_wgmma_bwd((elem *)dq, (elem *)dk, (elem *)dv, b,
                                          stream);
        /* Otherwise a block of keys visits one sequence of queries. */
        if (!s->keys || s->share == 1)
            return pp_attention_mma_bwd((elem *)dq, (elem *)dk, (elem *)dv, b,
                                        stream);
    }
#endif
    bool packed = packs(q, s->HDQK, s->ldq) && packs(k, s->HDQK, s->ldkv) &&
                  packs(dout, s->HDV, s->ldo) && packs(v, s->HDV, s->ldkv);
    auto by_query = packed ? VERSION(attention_dq_kernel, PP_PACK, s->cap)
                           : VERSION(attention_dq_kernel, 1, s->cap);
    auto by_key = packed ? VERSION(attention_dkv_kernel, PP_PACK, s->cap)
                         : VERSION(attention_dkv_kernel, 1, s->cap);
    rc = PP_LAUNCH(by_query, warp_grid(s, s->N, s->NH), THREADS, 0, stream,
                   (elem *)dq, b);
    return rc ? rc
              : PP_LAUNCH(by_key,
                          warp_grid(s, pp_attention_key_rows(s), s->NKV),
                          THREADS, 0, stream, (elem *)dk, (elem *)dv, b);
}
