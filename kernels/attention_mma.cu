/* SPDX-License-Identifier: MIT */
/* attention forward on tensor cores, for bfloat16. As in FlashAttention-2 (Dao
 * 2023), a block holds 128 queries, 32 for each warp, and visits 64 keys at a
 * time. With the widest values a warp has 16 queries, because their sums have
 * to fit into registers. The values are copied while the scores are computed,
 * and the next keys while the values are added up. */
#include "attention_softmax.cuh"

#define KEYS PP_ATTENTION_TILE /* keys that a block visits at a time */

/* Tiles of 16 queries of a warp, which share the fragments of the keys, and
 * queries of a block. */
#define QUERY_TILES(V) ((V) > 128 ? 1 : 2)
#define QUERIES(V) (WARPS * QUERY_TILES(V) * 16)

template <int QK, int V, bool CAPPED>
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
    float scale = CAPPED ? 1 : view.scale * PP_LOG2E;
    struct row_softmax w[M];
    PP_UNROLL
    for (int m = 0; m < M; m++)
        w[m] = first_softmax(sinks, h);
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
        PP_UNROLL
        for (int m = 0; CAPPED && m < M; m++)
            cap_scores<KEYS / 8>(&view, p[m]);
        if (!all_attend(s, keys.length, position, 16 * M, key, KEYS))
            PP_UNROLL
        for (int m = 0; m < M; m++)
            mask_keys<KEYS / 8>(s, keys.length, position + m * 16, key, p[m]);
        PP_UNROLL
        for (int m = 0; m < M; m++) {
            float by[2];
            softmax<KEYS / 8>(&w[m], scale, p[m], by);
            scale_rows<V / 8>(acc[m], by);
        }
        accumulate<V, M, KEYS / 8>(acc, p, tv);
    }
    PP_UNROLL
    for (int m = 0; m < M; m++)
        store_queries<V>(o, lse, s, sq, h, tile.at + warp + m * 16, &w[m],
                         acc[m]);
}

/* The most of a cap: scores have errors of 2^-22 of it (score_tanh). */
#define MOST_CAP 4096

bool pp_attention_mma_fits(const struct pp_attention_shape *s)
{
    return s->cap <= MOST_CAP && s->HDQK % 8 == 0 && s->HDV % 8 == 0 &&
           s->HDQK <= 256 && s->HDV <= 256 &&
           n_tiles(s, s->N, PP_ATTENTION_TILE) <= UINT16_MAX &&
           n_tiles(s, pp_attention_key_rows(s), PP_ATTENTION_TILE) <=
               UINT16_MAX;
}

template <int QK, int V, bool CAPPED>
static int launch_fwd(elem *o, float *lse, const elem *q, const elem *k,
                      const elem *v, const elem *sinks,
                      struct attention_view view, void *stream)
{
    const size_t shared = ((QUERIES(V) + KEYS) * QK + KEYS * V) * sizeof(elem);
    int rc = allow_shared(mma_fwd_kernel<QK, V, CAPPED>, shared);
    return rc ? rc
              : PP_LAUNCH((mma_fwd_kernel<QK, V, CAPPED>),
                          tile_grid(&view.s, view.s.N, QUERIES(V), view.s.NH),
                          THREADS, shared, stream, o, lse, q, k, v, sinks,
                          view);
}

int pp_attention_mma_fwd(elem *o, float *lse, const elem *q, const elem *k,
                         const elem *v, const elem *sinks,
                         struct attention_view view, void *stream)
{
    bool capped = view.s.cap > 0;
#define LAUNCH_IF(CAPPED, QK, V)                                  \
    if (capped == CAPPED && view.s.HDQK <= QK && view.s.HDV <= V) \
        return launch_fwd<QK, V, CAPPED>(o, lse, q, k, v, sinks, view, stream);
#define LAUNCH(QK, V) LAUNCH_IF(false, QK, V)
#define LAUNCH_CAPPED(QK, V) LAUNCH_IF(true, QK, V)
    PP_ATTENTION_WIDTHS(LAUNCH)
    LAUNCH(256, 256)
    PP_ATTENTION_CAPPED_WIDTHS(LAUNCH_CAPPED)
    return launch_fwd<256, 256, true>(o, lse, q, k, v, sinks, view, stream);
}
