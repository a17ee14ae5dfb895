/* SPDX-License-Identifier: MIT */
/* attention backward on tensor cores, for the shapes of attention_mma.cu. One
 * kernel computes dq with blocks of queries, the other dk and dv with blocks of
 * keys. Both compute the probabilities, so that no sum depends on the order of
 * blocks. A block visits 32 keys, or queries, at a time, and copies the next
 * ones meanwhile. With wide heads a warp has fewer keys, because the sums for
 * dk and dv of all its keys have to fit into registers. */
#include "attention_tiles.cuh"

#define KEY_TILES(D) (D == 64 ? 2 : 1)      /* tiles of 16 keys of a warp */
#define KEYS(D) (WARPS * KEY_TILES(D) * 16) /* keys of a block */
#define STEP 32 /* keys, or queries, that a block visits at a time */

/* Inputs of backward. */
struct mma_bwd_inputs {
    const elem *dout, *q, *k, *v;
    const float *lse, *delta;
    struct attention_view view;
};

/* Replaces the score in p with the probability of the pair, and dp in ds with
 * the gradient of the score without its factor scale. lse is a power of 2.
 * EDGE: the query may not attend to the key, or may attend to it alone. */
template <bool EDGE>
static __device__ inline void
pair_gradients(const struct attention_view *view, int n_keys, int query,
               int key, float lse, float delta, float *p, float *ds)
{
    *p = exp2_approx(*p * (view->scale * PP_LOG2E) - lse);
    if (EDGE) {
        *p = attends(&view->s, n_keys, query, key) ? *p : 0;
        delta = row_term(pp_attention_is_lone(&view->s, 0, n_keys, query), *p,
                         *ds, delta);
    }
    *ds = *p * (*ds - delta);
}

/* Statistics of a lane's two rows in each tile of its warp, for dq. */
struct query_stats {
    float lse[TILES][2], delta[TILES][2];
};

/* The pairs of a lane: the warp's queries from position `query` on, and the
 * keys of a step. */
template <bool EDGE>
static __device__ inline void
query_pairs(const struct attention_view *view, const struct query_stats *rows,
            int n_keys, int query, int key, float p[TILES][STEP / 8][4],
            float ds[TILES][STEP / 8][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int m = 0; m < TILES; m++)
        PP_UNROLL
    for (int n = 0; n < STEP / 8; n++)
        PP_UNROLL
    for (int j = 0; j < 4; j++)
        pair_gradients<EDGE>(
            view, n_keys, query + m * 16 + lane / 4 + j / 2 * 8,
            key + n * 8 + lane % 4 * 2 + j % 2, rows->lse[m][j / 2],
            rows->delta[m][j / 2], &p[m][n][j], &ds[m][n][j]);
}

/* One step of dq: the warp's queries from position `query` on, keys from `key`
 * on. */
template <int D>
static __device__ inline void
add_keys(float acc[TILES][D / 8][4], const struct attention_view *view,
         const struct query_stats *rows, const elem *tq, const elem *tdo,
         const elem *tk, const elem *tv, int n_keys, int query, int key)
{
    const struct pp_attention_shape *s = &view->s;
    float p[TILES][STEP / 8][4], ds[TILES][STEP / 8][4];
    int warp = (int)threadIdx.x / PP_WARP * 16 * TILES;
    if (!any_attends(s, n_keys, query, 16 * TILES, key, STEP))
        return;
    multiply<D, TILES, STEP / 8>(p, tq, warp, tk);
    multiply<D, TILES, STEP / 8>(ds, tdo, warp, tv);
    if (all_attend(s, n_keys, query, 16 * TILES, key, STEP))
        query_pairs<false>(view, rows, n_keys, query, key, p, ds);
    else
        query_pairs<true>(view, rows, n_keys, query, key, p, ds);
    accumulate<D, TILES, STEP / 8>(acc, ds, tk);
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    mma_dq_kernel(elem *dq, struct mma_bwd_inputs b)
{
    PP_DYNAMIC_SHARED(shared);
    elem *tq = (elem *)shared, *tdo = tq + QUERIES * D;
    elem *tkv = tdo + QUERIES * D;
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile =
        tile_of(s, gridDim.y - 1 - blockIdx.y, QUERIES, false);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           keys = keys_at(s, tile.sequence);
    size_t h = blockIdx.x;
    int t = tile.at + (int)threadIdx.x / PP_WARP * 16 * TILES, from, to;
    int lane = (int)threadIdx.x % PP_WARP;
    if (tile.at >= sq.padded)
        return;
    struct head_inputs in = head_inputs_at(s, sq, keys, h, b.q, b.k, b.v, D);
    float acc[TILES][D / 8][4] = {};
    struct query_stats rows = {};
    PP_UNROLL
    for (int r = 0; r < 2 * TILES; r++) {
        int at = t + lane / 4 + r * 8;
        size_t i = (size_t)(sq.begin + at) * s->NH + h;
        if (at < sq.length) {
            rows.lse[r / 2][r % 2] = b.lse[i] * PP_LOG2E;
            rows.delta[r / 2][r % 2] = b.delta[i];
        }
    }
    key_tiles(s, keys, sq.context + tile.at, QUERIES, STEP, &from, &to);
    if (from < to) {
        load_tile<D, QUERIES>(tq, in.q, s->ldq, tile.at, sq.length);
        load_tile<D, QUERIES>(tdo, b.dout + (size_t)sq.begin * s->ldo + h * D,
                              s->ldo, tile.at, sq.length);
    }
    for (int i = from; i <= to; i++) {
        elem *next = tkv + (i - from) % 2 * 2 * STEP * D;
        const elem *now = tkv + (i - from + 1) % 2 * 2 * STEP * D;
        copy_wait<0>();
        __syncthreads(); /* `now` has arrived; no warp reads the old contents of
                            `next` any more */
        if (i < to) {
            load_tile<D, STEP>(next, in.k, s->ldkv, i * STEP, keys.length);
            load_tile<D, STEP>(next + STEP * D, in.v, s->ldkv, i * STEP,
                               keys.length);
            copy_commit();
        }
        if (i > from && t < sq.length)
            add_keys<D>(acc, &b.view, &rows, tq, tdo, now, now + STEP * D,
                        keys.length, sq.context + t, (i - 1) * STEP);
    }
    const float by[2] = {b.view.scale, b.view.scale};
    PP_UNROLL
    for (int m = 0; m < TILES; m++)
        store_rows<D>(dq + (size_t)sq.begin * s->ldq + h * D, s->ldq,
                      t + m * 16, sq, acc[m], by);
}

/* Queries of one head for one step of dk and dv. */
template <int D> struct query_step {
    alignas(16) elem q[STEP * D];
    elem dout[STEP * D];
    float lse[STEP], delta[STEP];
};

/* Starts to load queries from row `at` of a sequence on. Queries after its end
 * become zeros, which add nothing. */
template <int D>
static __device__ inline void
load_queries(struct query_step<D> *to, const struct mma_bwd_inputs *b,
             struct packed_sequence sq, size_t h, int at)
{
    const struct pp_attention_shape *s = &b->view.s;
    size_t row = (size_t)sq.begin;
    int mine = at + (int)threadIdx.x % STEP;
    size_t i = (row + (size_t)mine) * s->NH + h;
    load_tile<D, STEP>(to->q, b->q + row * s->ldq + h * D, s->ldq, at,
                       sq.length);
    load_tile<D, STEP>(to->dout, b->dout + row * s->ldo + h * D, s->ldo, at,
                       sq.length);
    if (threadIdx.x < STEP)
        copy_word_begin(&to->lse[threadIdx.x], b->lse + i, mine < sq.length);
    else if (threadIdx.x < 2 * STEP)
        copy_word_begin(&to->delta[threadIdx.x % STEP], b->delta + i,
                        mine < sq.length);
    copy_commit();
}

/* The pairs of a lane: the queries of a step from position `query` on, and the
 * warp's keys, which are the rows. */
template <bool EDGE, int D>
static __device__ inline void
key_pairs(const struct attention_view *view, const struct query_step<D> *of,
          int n_keys, int query, int key, float p[KEY_TILES(D)][STEP / 8][4],
          float ds[KEY_TILES(D)][STEP / 8][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int n = 0; n < STEP / 8; n++)
        PP_UNROLL
    for (int m = 0; m < KEY_TILES(D); m++)
        PP_UNROLL
    for (int j = 0; j < 4; j++) {
        int column = n * 8 + lane % 4 * 2 + j % 2;
        pair_gradients<EDGE>(view, n_keys, query + column,
                             key + m * 16 + lane / 4 + j / 2 * 8,
                             of->lse[column] * PP_LOG2E, of->delta[column],
                             &p[m][n][j], &ds[m][n][j]);
    }
}

/* One step of dk and dv: queries from position `query` on, the warp's keys from
 * `key` on. */
template <int D>
static __device__ inline void
add_queries(float dk[KEY_TILES(D)][D / 8][4], float dv[KEY_TILES(D)][D / 8][4],
            const struct attention_view *view, const elem *tk, const elem *tv,
            const struct query_step<D> *of, int n_keys, int query, int key)
{
    const struct pp_attention_shape *s = &view->s;
    const int M = KEY_TILES(D);
    float p[M][STEP / 8][4], ds[M][STEP / 8][4];
    int warp = (int)threadIdx.x / PP_WARP * 16 * M;
    if (!any_attends(s, n_keys, query, STEP, key, 16 * M))
        return;
    multiply<D, M, STEP / 8>(p, tk, warp, of->q);
    multiply<D, M, STEP / 8>(ds, tv, warp, of->dout);
    if (all_attend(s, n_keys, query, STEP, key, 16 * M))
        key_pairs<false>(view, of, n_keys, query, key, p, ds);
    else
        key_pairs<true>(view, of, n_keys, query, key, p, ds);
    accumulate<D, M, STEP / 8>(dv, p, of->dout);
    accumulate<D, M, STEP / 8>(dk, ds, of->q);
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    mma_dkv_kernel(elem *dk, elem *dv, struct mma_bwd_inputs b)
{
    PP_DYNAMIC_SHARED(shared);
    elem *tk = (elem *)shared, *tv = tk + KEYS(D) * D;
    struct query_step<D> *buffers = (struct query_step<D> *)(tv + KEYS(D) * D);
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile = tile_of(s, blockIdx.y, KEYS(D), true);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           keys = keys_at(s, tile.sequence);
    size_t kv = blockIdx.x, group = s->NH / s->NKV;
    int t = tile.at, warp = (int)threadIdx.x / PP_WARP * 16 * KEY_TILES(D);
    if (t >= keys.padded)
        return;
    float k_acc[KEY_TILES(D)][D / 8][4] = {},
                                  v_acc[KEY_TILES(D)][D / 8][4] = {};
    int last = t + KEYS(D) < keys.length ? t + KEYS(D) - 1 : keys.length - 1;
    int begin = first_position(s, t) - sq.context;
    begin = begin > 0 ? begin : 0;
    int end =
        t < keys.length ? end_position(s, keys.length, last) - sq.context : 0;
    int steps = end > begin ? (end - begin + STEP - 1) / STEP : 0;
    int n = steps * (int)group;
    struct head_inputs in =
        head_inputs_at(s, sq, keys, kv * group, b.q, b.k, b.v, D);
    if (n) {
        load_tile<D, KEYS(D)>(tk, in.k, s->ldkv, t, keys.length);
        load_tile<D, KEYS(D)>(tv, in.v, s->ldkv, t, keys.length);
    }
    for (int i = 0, at = begin, h = 0, before = 0; i <= n; i++) {
        copy_wait<0>();
        __syncthreads(); /* the last buffer has arrived; no warp reads the next
                            one any more */
        if (i < n)
            load_queries<D>(&buffers[i % 2], &b, sq, kv * group + (size_t)h,
                            at);
        if (i > 0 && t + warp < keys.length)
            add_queries<D>(k_acc, v_acc, &b.view, tk, tv, &buffers[(i + 1) % 2],
                           keys.length, sq.context + before, t + warp);
        before = at;
        at += STEP;
        if (at >= end) {
            at = begin;
            h++;
        }
    }
    const float by[2] = {b.view.scale, b.view.scale}, one[2] = {1, 1};
    size_t key = (size_t)keys.begin;
    PP_UNROLL
    for (int m = 0; m < KEY_TILES(D); m++) {
        int row = t + warp + m * 16;
        store_rows<D>(dk + key * s->ldkv + kv * D, s->ldkv, row, keys, k_acc[m],
                      by);
        store_rows<D>(dv + key * s->ldkv + kv * D, s->ldkv, row, keys, v_acc[m],
                      one);
    }
}

template <int D>
static int launch_bwd(elem *dq, elem *dk, elem *dv, struct mma_bwd_inputs b,
                      void *stream)
{
    const struct pp_attention_shape *s = &b.view.s;
    const size_t for_dq = (2 * QUERIES + 4 * STEP) * D * sizeof(elem);
    const size_t for_dkv =
        2 * KEYS(D) * D * sizeof(elem) + 2 * sizeof(struct query_step<D>);
    int rc = allow_shared(mma_dq_kernel<D>, for_dq);
    if (!rc)
        rc = allow_shared(mma_dkv_kernel<D>, for_dkv);
    if (!rc)
        rc = PP_LAUNCH((mma_dq_kernel<D>), tile_grid(s, s->N, QUERIES, s->NH),
                       THREADS, for_dq, stream, dq, b);
    return rc ? rc
              : PP_LAUNCH(
                    (mma_dkv_kernel<D>),
                    tile_grid(s, pp_attention_key_rows(s), KEYS(D), s->NKV),
                    THREADS, for_dkv, stream, dk, dv, b);
}

int pp_attention_mma_bwd(elem *dq, elem *dk, elem *dv, const elem *dout,
                         const elem *q, const elem *k, const elem *v,
                         const float *lse, const float *delta,
                         struct attention_view view, void *stream)
{
    struct mma_bwd_inputs b = {dout, q, k, v, lse, delta, view};
    return view.s.HDV == 64 ? launch_bwd<64>(dq, dk, dv, b, stream)
                            : launch_bwd<128>(dq, dk, dv, b, stream);
}
