/* SPDX-License-Identifier: MIT */
/* attention on tensor cores: bfloat16, one width of 64 or 128 for all.
 *
 * Forward is FlashAttention-2 (Dao 2023): a block holds 64 queries, a warp 16
 * of them, and goes through the keys 64 at a time while the next tile is on
 * its way. Backward is two kernels, dq by queries and dk, dv by keys: the
 * probabilities are made twice, and no sum depends on an order of blocks.
 *
 * A GPU begins blocks in order, x first. Of causal attention the last queries
 * and the first keys have most to do: they go first, of all heads, so that the
 * GPU does not wait for a few long blocks in the end. */
#include "attention.cuh"
#include "mma.cuh"

#include <math.h>

#define WARPS 4
#define THREADS (WARPS * PP_WARP)
#define ROWS (WARPS * 16) /* queries, or keys, that a block holds */
#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

/* Begins to load rows [at, at + HEIGHT) of a sequence into a tile; rows from
 * end on become zeros. x is the sequence's first row. */
template <int D, int HEIGHT>
static __device__ inline void load_tile(elem *tile, const elem *x, size_t ld,
                                        int at, int end)
{
    for (int i = (int)threadIdx.x; i < HEIGHT * D / 8; i += THREADS) {
        int row = i / (D / 8), column = i % (D / 8) * 8;
        bool there = at + row < end;
        copy_begin(tile + tile_at<D>(row, column),
                   x + (there ? (size_t)(at + row) * ld + (size_t)column : 0),
                   there);
    }
}

/* c (16, 8 N) = rows `row` of the tile a times the first 8 N rows of b. */
template <int D, int N>
static __device__ inline void multiply(float c[N][4], const elem *a, int row,
                                       const elem *b)
{
    PP_UNROLL
    for (int n = 0; n < N; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
    PP_UNROLL
    for (int k = 0; k < D; k += 16) {
        uint32_t fa[4], fb[4];
        load_a<D>(fa, a, row, k);
        PP_UNROLL
        for (int n = 0; n < N; n += 2) {
            load_b<D>(fb, b, n * 8, k);
            mma(c[n], fa, fb);
            mma(c[n + 1], fa, fb + 2);
        }
    }
}

/* acc (16, D) += p (16, 8 N) times the 8 N rows of b. */
template <int D, int N>
static __device__ inline void accumulate(float acc[D / 8][4],
                                         const float p[N][4], const elem *b)
{
    PP_UNROLL
    for (int n = 0; n < N; n += 2) {
        uint32_t fa[4] = {pack_bf16(p[n][0], p[n][1]),
                          pack_bf16(p[n][2], p[n][3]),
                          pack_bf16(p[n + 1][0], p[n + 1][1]),
                          pack_bf16(p[n + 1][2], p[n + 1][3])};
        PP_UNROLL
        for (int d = 0; d < D / 8; d += 2) {
            uint32_t fb[4];
            load_b_rows<D>(fb, b, n * 8, d * 8);
            mma(acc[d], fa, fb);
            mma(acc[d + 1], fa, fb + 2);
        }
    }
}

/* Over the four lanes that share a row of a fragment. */
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

/* Writes this lane's part of 16 rows from row `t` of a sequence on, times by[]
 * of its two rows; rows from length on are padding and become 0. */
template <int D>
static __device__ inline void
put_rows(elem *x, size_t ld, int t, struct sequence sq,
         const float acc[D / 8][4], const float by[2])
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + lane / 4 + r * 8;
        float f = at < sq.length ? by[r] : 0;
        if (at >= sq.slots)
            continue;
        elem *row = x + (size_t)at * ld + lane % 4 * 2;
        PP_UNROLL
        for (int d = 0; d < D / 8; d++)
            *(uint32_t *)(row + d * 8) =
                f == 0 ? 0
                       : pack_bf16(acc[d][2 * r] * f, acc[d][2 * r + 1] * f);
    }
}

/* The running softmax of this lane's two rows, in powers of two. */
struct online {
    float max[2], sum[2];
};

/* Scores become exp2(score - running max), 0 where a query does not see the
 * key; what was made with an older maximum is scaled down. t is the place of
 * the warp's first query. */
template <int D>
static __device__ inline void
softmax(struct online *w, const struct attention_view *view, int t, int key,
        float p[ROWS / 8][4], float acc[D / 8][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    float scale = view->scale * LOG2E;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int query = t + lane / 4 + r * 8, first = first_key(&view->s, query);
        float max = w->max[r];
        PP_UNROLL
        for (int n = 0; n < ROWS / 8; n++)
            PP_UNROLL
        for (int j = 2 * r; j < 2 * r + 2; j++) {
            int at = key + n * 8 + lane % 4 * 2 + j % 2;
            p[n][j] = at <= query && at >= first ? p[n][j] * scale : -INFINITY;
            max = fmaxf(max, p[n][j]);
        }
        max = quad_max(max);
        float shift = max == -INFINITY ? 0 : max;
        float by = exp2f(w->max[r] - shift);
        w->max[r] = max;
        w->sum[r] *= by;
        PP_UNROLL
        for (int d = 0; d < D / 8; d++) {
            acc[d][2 * r] *= by;
            acc[d][2 * r + 1] *= by;
        }
        PP_UNROLL
        for (int n = 0; n < ROWS / 8; n++)
            PP_UNROLL
        for (int j = 2 * r; j < 2 * r + 2; j++) {
            p[n][j] = exp2f(p[n][j] - shift);
            w->sum[r] += p[n][j];
        }
    }
}

/* The tiles of keys that the queries at places [t, t + ROWS) see: [*from, *to).
 */
static __device__ inline void key_tiles(const struct pp_attention_shape *s,
                                        struct sequence keys, int t, int height,
                                        int *from, int *to)
{
    int end = t + ROWS < keys.length ? t + ROWS : keys.length;
    *from = first_key(s, t) / height;
    *to = t < keys.length ? (end + height - 1) / height : *from;
}

/* What forward reads, at a sequence's first row and a head. */
struct inputs {
    const elem *q, *k, *v;
};

static __device__ inline struct inputs
inputs_at(const struct pp_attention_shape *s, struct sequence sq, size_t h,
          const elem *q, const elem *k, const elem *v, size_t width)
{
    size_t kv = h / (s->NH / s->NKV), key = (size_t)keys_of(s, sq).begin;
    struct inputs in = {q + (size_t)sq.begin * s->ldq + h * width,
                        k + key * s->ldkv + kv * width,
                        v + key * s->ldkv + kv * width};
    return in;
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    fwd_kernel(elem *o, float *lse, const elem *q, const elem *k, const elem *v,
               const elem *sinks, struct attention_view view)
{
    PP_DYNAMIC_SHARED(shared);
    elem *tiles = (elem *)shared; /* q, then k and v of two steps */
    const struct pp_attention_shape *s = &view.s;
    struct sequence sq = sequence_at(s, blockIdx.z), keys = keys_of(s, sq);
    size_t h = blockIdx.x;
    int t = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int warp = (int)threadIdx.x / PP_WARP * 16;
    int lane = (int)threadIdx.x % PP_WARP, from, to;
    if (t >= sq.slots)
        return;
    struct inputs in = inputs_at(s, sq, h, q, k, v, D);
    float acc[D / 8][4] = {}, p[ROWS / 8][4];
    float max = sinks ? to_float(sinks[h]) * LOG2E : -INFINITY;
    float sum = sinks && lane % 4 == 0 ? 1 : 0;
    struct online w = {{max, max}, {sum, sum}};
    key_tiles(s, keys, sq.context + t, ROWS, &from, &to);
    load_tile<D, ROWS>(tiles, in.q, s->ldq, t, sq.length);
    for (int i = from; i <= to; i++) {
        elem *next = tiles + (1 + (i - from) % 2 * 2) * ROWS * D;
        elem *now = tiles + (1 + (i - from + 1) % 2 * 2) * ROWS * D;
        if (i < to) {
            load_tile<D, ROWS>(next, in.k, s->ldkv, i * ROWS, keys.length);
            load_tile<D, ROWS>(next + ROWS * D, in.v, s->ldkv, i * ROWS,
                               keys.length);
        }
        copy_commit();
        if (i == from)
            continue;
        copy_wait<1>();
        __syncthreads();
        multiply<D, ROWS / 8>(p, tiles, warp, now);
        softmax<D>(&w, &view, sq.context + t + warp, (i - 1) * ROWS, p, acc);
        accumulate<D, ROWS / 8>(acc, p, now + ROWS * D);
        __syncthreads();
    }
    float by[2];
    size_t head = (size_t)sq.begin * s->NH + h;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + warp + lane / 4 + r * 8;
        sum = quad_sum(w.sum[r]);
        by[r] = 1 / sum;
        if (lane % 4 == 0 && at < sq.slots)
            lse[head + (size_t)at * s->NH] =
                at < sq.length ? (w.max[r] + log2f(sum)) * LN2 : 0;
    }
    put_rows<D>(o + (size_t)sq.begin * s->ldo + h * D, s->ldo, t + warp, sq,
                acc, by);
}

/* What backward reads beside. */
struct backward {
    const elem *dout, *q, *k, *v;
    const float *lse, *delta;
    struct attention_view view;
};

/* A pair's probability in p and the gradient of its score in ds, from the
 * score in p and dp in ds; query is its place. */
static __device__ inline void pair(const struct attention_view *view, int query,
                                   int key, float lse, float delta, float *p,
                                   float *ds)
{
    bool seen = key <= query && key >= first_key(&view->s, query);
    *p = seen ? exp2f((*p * view->scale - lse) * LOG2E) : 0;
    *ds = *p * (*ds - row_term(&view->s, query, *p, *ds, delta)) * view->scale;
}

/* Keys that a step of dq takes, and queries that a step of dk and dv takes. */
#define STEP 32

template <int D>
static __global__ void __launch_bounds__(THREADS)
    dq_kernel(elem *dq, struct backward b)
{
    PP_DYNAMIC_SHARED(shared);
    elem *tq = (elem *)shared, *tdo = tq + ROWS * D, *tk = tdo + ROWS * D;
    elem *tv = tk + STEP * D;
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence sq = sequence_at(s, blockIdx.z), keys = keys_of(s, sq);
    size_t h = blockIdx.x, head = (size_t)sq.begin * s->NH + h;
    int t = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int warp = (int)threadIdx.x / PP_WARP * 16;
    int lane = (int)threadIdx.x % PP_WARP, from, to;
    if (t >= sq.slots)
        return;
    struct inputs in = inputs_at(s, sq, h, b.q, b.k, b.v, D);
    float acc[D / 8][4] = {}, p[STEP / 8][4], ds[STEP / 8][4];
    float lse[2], delta[2];
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + warp + lane / 4 + r * 8;
        bool counts = at < sq.length;
        lse[r] = counts ? b.lse[head + (size_t)at * s->NH] : INFINITY;
        delta[r] = counts ? b.delta[head + (size_t)at * s->NH] : 0;
    }
    key_tiles(s, keys, sq.context + t, STEP, &from, &to);
    load_tile<D, ROWS>(tq, in.q, s->ldq, t, sq.length);
    load_tile<D, ROWS>(tdo, b.dout + (size_t)sq.begin * s->ldo + h * D, s->ldo,
                       t, sq.length);
    for (int i = from; i < to; i++) {
        __syncthreads();
        load_tile<D, STEP>(tk, in.k, s->ldkv, i * STEP, keys.length);
        load_tile<D, STEP>(tv, in.v, s->ldkv, i * STEP, keys.length);
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        multiply<D, STEP / 8>(p, tq, warp, tk);
        multiply<D, STEP / 8>(ds, tdo, warp, tv);
        PP_UNROLL
        for (int n = 0; n < STEP / 8; n++)
            PP_UNROLL
        for (int j = 0; j < 4; j++)
            pair(&b.view, sq.context + t + warp + lane / 4 + j / 2 * 8,
                 i * STEP + n * 8 + lane % 4 * 2 + j % 2, lse[j / 2],
                 delta[j / 2], &p[n][j], &ds[n][j]);
        accumulate<D, STEP / 8>(acc, ds, tk);
    }
    const float one[2] = {1, 1};
    put_rows<D>(dq + (size_t)sq.begin * s->ldq + h * D, s->ldq, t + warp, sq,
                acc, one);
}

/* One head's queries at places [at, at + STEP) against this warp's 16 keys from
 * key on: transposed, keys are the rows. */
template <int D>
static __device__ inline void
add_queries(float dk[D / 8][4], float dv[D / 8][4], const struct backward *b,
            const elem *tk, const elem *tv, const elem *tq, const elem *tdo,
            const float *lse, const float *delta, int at, int key)
{
    float p[STEP / 8][4], ds[STEP / 8][4];
    int lane = (int)threadIdx.x % PP_WARP;
    int warp = (int)threadIdx.x / PP_WARP * 16;
    multiply<D, STEP / 8>(p, tk, warp, tq);
    multiply<D, STEP / 8>(ds, tv, warp, tdo);
    PP_UNROLL
    for (int n = 0; n < STEP / 8; n++)
        PP_UNROLL
    for (int j = 0; j < 4; j++) {
        int query = n * 8 + lane % 4 * 2 + j % 2;
        pair(&b->view, at + query, key + lane / 4 + j / 2 * 8, lse[query],
             delta[query], &p[n][j], &ds[n][j]);
    }
    accumulate<D, STEP / 8>(dv, p, tdo);
    accumulate<D, STEP / 8>(dk, ds, tq);
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    dkv_kernel(elem *dk, elem *dv, struct backward b)
{
    PP_DYNAMIC_SHARED(shared);
    __shared__ float lse[STEP], delta[STEP];
    elem *tk = (elem *)shared, *tv = tk + ROWS * D, *tq = tv + ROWS * D;
    elem *tdo = tq + STEP * D;
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence sq = sequence_at(s, blockIdx.z), keys = keys_of(s, sq);
    size_t kv = blockIdx.x, group = s->NH / s->NKV, row = (size_t)sq.begin;
    int t = (int)blockIdx.y * ROWS, warp = (int)threadIdx.x / PP_WARP * 16;
    if (t >= keys.slots)
        return;
    float k_acc[D / 8][4] = {}, v_acc[D / 8][4] = {};
    int last = t + ROWS < keys.length ? t + ROWS - 1 : keys.length - 1;
    int begin = t > sq.context ? t - sq.context : 0;
    int end = t < keys.length ? end_place(s, keys, last) - sq.context : 0;
    struct inputs in = inputs_at(s, sq, kv * group, b.q, b.k, b.v, D);
    load_tile<D, ROWS>(tk, in.k, s->ldkv, t, keys.length);
    load_tile<D, ROWS>(tv, in.v, s->ldkv, t, keys.length);
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
        for (int at = begin; at < end; at += STEP) {
            int mine = at + (int)threadIdx.x;
            size_t i = (row + (size_t)mine) * s->NH + h;
            __syncthreads();
            load_tile<D, STEP>(tq, b.q + row * s->ldq + h * D, s->ldq, at,
                               sq.length);
            load_tile<D, STEP>(tdo, b.dout + row * s->ldo + h * D, s->ldo, at,
                               sq.length);
            copy_commit();
            if (threadIdx.x < STEP) {
                lse[threadIdx.x] = mine < sq.length ? b.lse[i] : INFINITY;
                delta[threadIdx.x] = mine < sq.length ? b.delta[i] : 0;
            }
            copy_wait<0>();
            __syncthreads();
            add_queries<D>(k_acc, v_acc, &b, tk, tv, tq, tdo, lse, delta,
                           sq.context + at, t + warp);
        }
    const float one[2] = {1, 1};
    size_t key = (size_t)keys.begin;
    put_rows<D>(dk + key * s->ldkv + kv * D, s->ldkv, t + warp, keys, k_acc,
                one);
    put_rows<D>(dv + key * s->ldkv + kv * D, s->ldkv, t + warp, keys, v_acc,
                one);
}

static dim3 grid_of(const struct pp_attention_shape *s, size_t rows,
                    size_t heads)
{
    return dim3((unsigned)heads, (unsigned)((rows + ROWS - 1) / ROWS),
                (unsigned)s->n_sequences);
}

bool pp_attention_mma_fits(const struct pp_attention_shape *s)
{
    return s->HDQK == s->HDV && (s->HDQK == 64 || s->HDQK == 128) &&
           s->max_seqlen + s->context <= (size_t)ROWS * UINT16_MAX;
}

/* Lets a kernel have more shared memory than it may by default. */
template <class KERNEL> static int allow_shared(KERNEL kernel, size_t bytes)
{
    return (int)cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

template <int D>
static int fwd(elem *o, float *lse, const elem *q, const elem *k, const elem *v,
               const elem *sinks, struct attention_view view, void *stream)
{
    const size_t shared = 5 * ROWS * D * sizeof(elem);
    int rc = allow_shared(fwd_kernel<D>, shared);
    return rc ? rc
              : PP_LAUNCH((fwd_kernel<D>),
                          grid_of(&view.s, view.s.max_seqlen, view.s.NH),
                          THREADS, shared, stream, o, lse, q, k, v, sinks,
                          view);
}

template <int D>
static int bwd(elem *dq, elem *dk, elem *dv, struct backward b, void *stream)
{
    const size_t shared = 2 * (ROWS + STEP) * D * sizeof(elem);
    const struct pp_attention_shape *s = &b.view.s;
    int rc = allow_shared(dq_kernel<D>, shared);
    if (!rc)
        rc = allow_shared(dkv_kernel<D>, shared);
    if (!rc)
        rc = PP_LAUNCH((dq_kernel<D>), grid_of(s, s->max_seqlen, s->NH),
                       THREADS, shared, stream, dq, b);
    return rc ? rc
              : PP_LAUNCH((dkv_kernel<D>),
                          grid_of(s, s->max_seqlen + s->context, s->NKV),
                          THREADS, shared, stream, dk, dv, b);
}

int pp_attention_mma_fwd(elem *o, float *lse, const elem *q, const elem *k,
                         const elem *v, const elem *sinks,
                         struct attention_view view, void *stream)
{
    return view.s.HDV == 64 ? fwd<64>(o, lse, q, k, v, sinks, view, stream)
                            : fwd<128>(o, lse, q, k, v, sinks, view, stream);
}

int pp_attention_mma_bwd(elem *dq, elem *dk, elem *dv, const elem *dout,
                         const elem *q, const elem *k, const elem *v,
                         const float *lse, const float *delta,
                         struct attention_view view, void *stream)
{
    struct backward b = {dout, q, k, v, lse, delta, view};
    return view.s.HDV == 64 ? bwd<64>(dq, dk, dv, b, stream)
                            : bwd<128>(dq, dk, dv, b, stream);
}
