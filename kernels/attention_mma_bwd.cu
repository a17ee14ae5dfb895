/* SPDX-License-Identifier: MIT */
/* attention backward on tensor cores, for the shapes of attention_mma.cu. One
 * kernel computes dq with blocks of queries, the other dk and dv with blocks of
 * keys. Both compute the probabilities, so that no sum depends on the order of
 * blocks. A block visits 32 keys, or queries, at a time, and copies the next
 * ones meanwhile. With wide heads a warp has fewer queries, or keys, because
 * the sums of all of them have to fit into registers. The widest heads have
 * kernels of their own (attention_mma_bwd_wide.cu). */
#include "attention_pairs.cuh"

/* Tiles of 16 queries of a warp, for dq, and of 16 keys, for dk and dv; rows of
 * a block. */
#define QUERY_TILES(QK) ((QK) > 128 ? 1 : 2)
#define KEY_TILES(QK) ((QK) > 64 ? 1 : 2)
#define QUERIES(QK) (WARPS * QUERY_TILES(QK) * 16)
#define KEYS(QK) (WARPS * KEY_TILES(QK) * 16)
/* Keys, or queries, that a block visits at a time. */
#define STEP 32

/* One step of dq: the warp's queries from position `query` on, keys from `key`
 * on. */
template <int QK, int V, bool CAPPED>
static __device__ inline void
add_keys(float acc[QUERY_TILES(QK)][QK / 8][4],
         const struct attention_view *view,
         const struct query_stats<QUERY_TILES(QK)> *rows, const elem *tq,
         const elem *tdo, const elem *tk, const elem *tv, int n_keys, int query,
         int key)
{
    const struct pp_attention_shape *s = &view->s;
    const int M = QUERY_TILES(QK), N = STEP / 8;
    float p[M][N][4], ds[M][N][4];
    int warp = (int)threadIdx.x / PP_WARP * 16 * M;
    if (!any_attends(s, n_keys, query, 16 * M, key, 8 * N))
        return;
    multiply<QK, M, N>(p, tq, warp, tk);
    multiply<V, M, N>(ds, tdo, warp, tv);
    if (all_attend(s, n_keys, query, 16 * M, key, 8 * N))
        query_pairs<false, CAPPED, M, N>(view, rows, n_keys, query, key, p, ds);
    else
        query_pairs<true, CAPPED, M, N>(view, rows, n_keys, query, key, p, ds);
    accumulate<QK, M, N>(acc, ds, tk);
}

template <int QK, int V, bool CAPPED>
static __global__ void __launch_bounds__(THREADS)
    mma_dq_kernel(elem *dq, struct bwd_inputs b)
{
    PP_DYNAMIC_SHARED(shared);
    const int M = QUERY_TILES(QK), ROWS = QUERIES(QK), N = STEP;
    elem *tq = (elem *)shared, *tdo = tq + ROWS * QK;
    elem *tkv = tdo + ROWS * V;
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile =
        tile_of(s, gridDim.y - 1 - blockIdx.y, ROWS, false);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           keys = keys_at(s, tile.sequence);
    size_t h = blockIdx.x;
    int t = tile.at + (int)threadIdx.x / PP_WARP * 16 * M, from, to;
    if (tile.at >= sq.padded)
        return;
    struct head_inputs in = head_inputs_at(s, sq, keys, h, b.q, b.k, b.v);
    float acc[M][QK / 8][4] = {};
    struct query_stats<M> rows;
    load_stats(&rows, &b, sq, h, t);
    key_tiles(s, keys, sq.context + tile.at, ROWS, N, &from, &to);
    if (from < to) {
        load_tile<QK, ROWS>(tq, in.q, s->ldq, tile.at, sq.length, s->HDQK);
        load_tile<V, ROWS>(tdo, b.dout + (size_t)sq.begin * s->ldo + h * s->HDV,
                           s->ldo, tile.at, sq.length, s->HDV);
    }
    for (int i = from; i <= to; i++) {
        elem *next = tkv + (i - from) % 2 * N * (QK + V);
        const elem *now = tkv + (i - from + 1) % 2 * N * (QK + V);
        copy_wait<0>();
        __syncthreads(); /* `now` has arrived; no warp reads the old contents of
                            `next` any more */
        if (i < to) {
            load_tile<QK, N>(next, in.k, s->ldkv, i * N, keys.length, s->HDQK);
            load_tile<V, N>(next + N * QK, in.v, s->ldkv, i * N, keys.length,
                            s->HDV);
            copy_commit();
        }
        if (i > from && t < sq.length)
            add_keys<QK, V, CAPPED>(acc, &b.view, &rows, tq, tdo, now,
                                    now + N * QK, keys.length, sq.context + t,
                                    (i - 1) * N);
    }
    const float by[2] = {b.view.scale, b.view.scale};
    PP_UNROLL
    for (int m = 0; m < M; m++)
        store_rows<QK>(dq + (size_t)sq.begin * s->ldq + h * s->HDQK, s->ldq,
                       s->HDQK, t + m * 16, sq, acc[m], by);
}

/* Queries of one head for one step of dk and dv. */
template <int QK, int V> struct query_step {
    alignas(16) elem q[STEP * QK];
    elem dout[STEP * V];
    float lse[STEP], delta[STEP];
};

/* Starts to load queries from row `at` of a sequence on. Queries after its end
 * become zeros, which add nothing. */
template <int QK, int V>
static __device__ inline void
load_queries(struct query_step<QK, V> *to, const struct bwd_inputs *b,
             struct packed_sequence sq, size_t h, int at)
{
    const struct pp_attention_shape *s = &b->view.s;
    const int N = STEP;
    size_t row = (size_t)sq.begin;
    int mine = at + (int)threadIdx.x % N;
    size_t i = (row + (size_t)mine) * s->NH + h;
    load_tile<QK, N>(to->q, b->q + row * s->ldq + h * s->HDQK, s->ldq, at,
                     sq.length, s->HDQK);
    load_tile<V, N>(to->dout, b->dout + row * s->ldo + h * s->HDV, s->ldo, at,
                    sq.length, s->HDV);
    if (threadIdx.x < N)
        copy_word_begin(&to->lse[threadIdx.x], b->lse + i, mine < sq.length);
    else if (threadIdx.x < 2 * N)
        copy_word_begin(&to->delta[threadIdx.x % N], b->delta + i,
                        mine < sq.length);
    copy_commit();
}

/* Sums of a warp's keys. */
template <int QK, int V> struct key_sums {
    float dk[KEY_TILES(QK)][QK / 8][4], dv[KEY_TILES(QK)][V / 8][4];
};

/* One step of dk and dv: queries from position `query` on, the warp's keys from
 * `key` on. */
template <int QK, int V, bool CAPPED>
static __device__ inline void
add_queries(struct key_sums<QK, V> *sums, const struct attention_view *view,
            const elem *tk, const elem *tv, const struct query_step<QK, V> *of,
            int n_keys, int query, int key)
{
    const struct pp_attention_shape *s = &view->s;
    const int M = KEY_TILES(QK), N = STEP / 8;
    float p[M][N][4], ds[M][N][4];
    int warp = (int)threadIdx.x / PP_WARP * 16 * M;
    if (!any_attends(s, n_keys, query, 8 * N, key, 16 * M))
        return;
    multiply<QK, M, N>(p, tk, warp, of->q);
    multiply<V, M, N>(ds, tv, warp, of->dout);
    if (all_attend(s, n_keys, query, 8 * N, key, 16 * M))
        key_pairs<false, CAPPED, M, N>(view, of->lse, of->delta, n_keys, query,
                                       key, p, ds);
    else
        key_pairs<true, CAPPED, M, N>(view, of->lse, of->delta, n_keys, query,
                                      key, p, ds);
    accumulate<V, M, N>(sums->dv, p, of->dout);
    accumulate<QK, M, N>(sums->dk, ds, of->q);
}

template <int QK, int V, bool CAPPED>
static __global__ void __launch_bounds__(THREADS)
    mma_dkv_kernel(elem *dk, elem *dv, struct bwd_inputs b)
{
    PP_DYNAMIC_SHARED(shared);
    const int M = KEY_TILES(QK), ROWS = KEYS(QK), N = STEP;
    elem *tk = (elem *)shared, *tv = tk + ROWS * QK;
    struct query_step<QK, V> *buffers =
        (struct query_step<QK, V> *)(tv + ROWS * V);
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile = tile_of(s, blockIdx.y, ROWS, true);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           keys = keys_at(s, tile.sequence);
    size_t kv = blockIdx.x, group = s->NH / s->NKV;
    int t = tile.at, warp = (int)threadIdx.x / PP_WARP * 16 * M;
    if (t >= keys.padded)
        return;
    struct key_sums<QK, V> sums = {
    };
    struct query_range of = queries_of(s, sq, keys.length, t, ROWS);
    int begin = of.begin, end = of.end;
    int steps = end > begin ? (end - begin + N - 1) / N : 0;
    int n = steps * (int)group;
    struct head_inputs in =
        head_inputs_at(s, sq, keys, kv * group, b.q, b.k, b.v);
    if (n) {
        load_tile<QK, ROWS>(tk, in.k, s->ldkv, t, keys.length, s->HDQK);
        load_tile<V, ROWS>(tv, in.v, s->ldkv, t, keys.length, s->HDV);
    }
    for (int i = 0, at = begin, h = 0, before = 0; i <= n; i++) {
        copy_wait<0>();
        __syncthreads(); /* the last buffer has arrived; no warp reads the next
                            one any more */
        if (i < n)
            load_queries<QK, V>(&buffers[i % 2], &b, sq, kv * group + (size_t)h,
                                at);
        if (i > 0 && t + warp < keys.length)
            add_queries<QK, V, CAPPED>(&sums, &b.view, tk, tv,
                                       &buffers[(i + 1) % 2], keys.length,
                                       sq.context + before, t + warp);
        before = at;
        at += N;
        if (at >= end) {
            at = begin;
            h++;
        }
    }
    const float by[2] = {b.view.scale, b.view.scale}, one[2] = {1, 1};
    size_t key = (size_t)keys.begin * s->ldkv;
    PP_UNROLL
    for (int m = 0; m < M; m++) {
        int row = t + warp + m * 16;
        store_rows<QK>(dk + key + kv * s->HDQK, s->ldkv, s->HDQK, row, keys,
                       sums.dk[m], by);
        store_rows<V>(dv + key + kv * s->HDV, s->ldkv, s->HDV, row, keys,
                      sums.dv[m], one);
    }
}

template <int QK, int V, bool CAPPED>
static int launch_dq(elem *dq, struct bwd_inputs b, void *stream)
{
    const struct pp_attention_shape *s = &b.view.s;
    const size_t shared = (QUERIES(QK) + 2 * STEP) * (QK + V) * sizeof(elem);
    int rc = allow_shared(mma_dq_kernel<QK, V, CAPPED>, shared);
    return rc ? rc
              : PP_LAUNCH((mma_dq_kernel<QK, V, CAPPED>),
                          tile_grid(s, s->N, QUERIES(QK), s->NH), THREADS,
                          shared, stream, dq, b);
}

template <int QK, int V, bool CAPPED>
static int launch_dkv(elem *dk, elem *dv, struct bwd_inputs b, void *stream)
{
    const struct pp_attention_shape *s = &b.view.s;
    const size_t shared = KEYS(QK) * (QK + V) * sizeof(elem) +
                          2 * sizeof(struct query_step<QK, V>);
    int rc = allow_shared(mma_dkv_kernel<QK, V, CAPPED>, shared);
    return rc ? rc
              : PP_LAUNCH(
                    (mma_dkv_kernel<QK, V, CAPPED>),
                    tile_grid(s, pp_attention_key_rows(s), KEYS(QK), s->NKV),
                    THREADS, shared, stream, dk, dv, b);
}

template <int QK, int V, bool CAPPED>
static int launch_bwd(elem *dq, elem *dk, elem *dv, struct bwd_inputs b,
                      void *stream)
{
    int rc = launch_dq<QK, V, CAPPED>(dq, b, stream);
    return rc ? rc : launch_dkv<QK, V, CAPPED>(dk, dv, b, stream);
}

int pp_attention_mma_bwd(elem *dq, elem *dk, elem *dv, struct bwd_inputs b,
                         void *stream)
{
    const struct pp_attention_shape *s = &b.view.s;
    bool capped = s->cap > 0;
#define LAUNCH_IF(CAPPED, QK, V)                          \
    if (capped == CAPPED && s->HDQK <= QK && s->HDV <= V) \
        return launch_bwd<QK, V, CAPPED>(dq, dk, dv, b, stream);
#define LAUNCH(QK, V) LAUNCH_IF(false, QK, V)
#define LAUNCH_CAPPED(QK, V) LAUNCH_IF(true, QK, V)
    PP_ATTENTION_WIDTHS(LAUNCH)
    PP_ATTENTION_CAPPED_WIDTHS(LAUNCH_CAPPED)
    return pp_attention_mma_bwd_wide(dq, dk, dv, b, stream);
}
