/* SPDX-License-Identifier: MIT */
/* attention backward on tensor cores, for heads of up to 256. The sums of 16
 * rows of one gradient fill the registers of a warp, so that dq, dk and dv are
 * launches of their own. A block has 64 rows and visits 32 of the other side at
 * a time. Two blocks share a processor, because each has one buffer for either
 * operand of a step: while a block multiplies by one it copies the other. */
#include "attention_pairs.cuh"

#define WIDTH 256
#define ROWS (WARPS * 16)
#define STEP 32
#define TILES (STEP / 8) /* of 8 columns */

/* dq: the products by the values come first, then the products by the keys. */
template <bool CAPPED>
static __global__ void __launch_bounds__(THREADS)
    wide_dq_kernel(elem *dq, struct bwd_inputs b)
{
    PP_DYNAMIC_SHARED(shared);
    elem *tq = (elem *)shared, *tdo = tq + ROWS * WIDTH;
    elem *tk = tdo + ROWS * WIDTH, *tv = tk + STEP * WIDTH;
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile =
        tile_of(s, gridDim.y - 1 - blockIdx.y, ROWS, false);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           keys = keys_at(s, tile.sequence);
    size_t h = blockIdx.x;
    int warp = (int)threadIdx.x / PP_WARP * 16, from, to;
    int t = tile.at + warp, query = sq.context + t;
    if (tile.at >= sq.padded)
        return;
    struct head_inputs in = head_inputs_at(s, sq, keys, h, b.q, b.k, b.v);
    float acc[1][WIDTH / 8][4] = {}, p[1][TILES][4], ds[1][TILES][4];
    struct query_stats<1> rows;
    load_stats(&rows, &b, sq, h, t);
    key_tiles(s, keys, sq.context + tile.at, ROWS, STEP, &from, &to);
    if (from < to) {
        load_tile<WIDTH, ROWS>(tq, in.q, s->ldq, tile.at, sq.length, s->HDQK);
        load_tile<WIDTH, ROWS>(tdo,
                               b.dout + (size_t)sq.begin * s->ldo + h * s->HDV,
                               s->ldo, tile.at, sq.length, s->HDV);
        load_tile<WIDTH, STEP>(tv, in.v, s->ldkv, from * STEP, keys.length,
                               s->HDV);
        copy_commit();
    }
    for (int i = from; i < to; i++) {
        int key = i * STEP;
        bool any =
            t < sq.length && any_attends(s, keys.length, query, 16, key, STEP);
        copy_wait<0>();
        __syncthreads(); /* the values have arrived; no warp reads the last keys
                            any more */
        load_tile<WIDTH, STEP>(tk, in.k, s->ldkv, key, keys.length, s->HDQK);
        copy_commit();
        if (any)
            multiply<WIDTH, 1, TILES>(ds, tdo, warp, tv);
        copy_wait<0>();
        __syncthreads(); /* the keys have arrived; no warp reads the values any
                            more */
        if (i + 1 < to) {
            load_tile<WIDTH, STEP>(tv, in.v, s->ldkv, key + STEP, keys.length,
                                   s->HDV);
            copy_commit();
        }
        if (!any)
            continue;
        multiply<WIDTH, 1, TILES>(p, tq, warp, tk);
        if (all_attend(s, keys.length, query, 16, key, STEP))
            query_pairs<false, CAPPED, 1, TILES>(&b.view, &rows, keys.length,
                                                 query, key, p, ds);
        else
            query_pairs<true, CAPPED, 1, TILES>(&b.view, &rows, keys.length,
                                                query, key, p, ds);
        accumulate<WIDTH, 1, TILES>(acc, ds, tk);
    }
    const float by[2] = {b.view.scale, b.view.scale};
    store_rows<WIDTH>(dq + (size_t)sq.begin * s->ldq + h * s->HDQK, s->ldq,
                      s->HDQK, t, sq, acc[0], by);
}

/* Buffers of a step of dk or dv. The products by `first` come first, then the
 * products by `second`. */
struct step_buffers {
    alignas(16) elem first[STEP * WIDTH];
    elem second[STEP * WIDTH];
    float lse[STEP], delta[STEP];
};

/* Starts to load queries, or their gradients of the output, from row `at` of a
 * sequence on. Rows after its end become zeros, which add nothing. */
static __device__ inline void load_side(elem *to, bool of_dout,
                                        const struct bwd_inputs *b,
                                        struct packed_sequence sq, size_t h,
                                        int at)
{
    const struct pp_attention_shape *s = &b->view.s;
    size_t row = (size_t)sq.begin;
    if (of_dout)
        load_tile<WIDTH, STEP>(to, b->dout + row * s->ldo + h * s->HDV, s->ldo,
                               at, sq.length, s->HDV);
    else
        load_tile<WIDTH, STEP>(to, b->q + row * s->ldq + h * s->HDQK, s->ldq,
                               at, sq.length, s->HDQK);
}

static __device__ inline void load_step_stats(struct step_buffers *to,
                                              const struct bwd_inputs *b,
                                              struct packed_sequence sq,
                                              size_t h, int at)
{
    int mine = at + (int)threadIdx.x % STEP;
    size_t i = (size_t)(sq.begin + mine) * b->view.s.NH + h;
    if (threadIdx.x < STEP)
        copy_word_begin(&to->lse[threadIdx.x], b->lse + i, mine < sq.length);
    else if (threadIdx.x < 2 * STEP)
        copy_word_begin(&to->delta[threadIdx.x % STEP], b->delta + i,
                        mine < sq.length);
}

/* The second part of a step: the pairs, and what they add. For dk the scores
 * are a product by `second`, for dv ds is not needed. */
template <bool DK, bool CAPPED>
static __device__ inline void
add_step(float acc[1][WIDTH / 8][4], const struct attention_view *view,
         const elem *tk, const struct step_buffers *of, int n_keys, int query,
         int key, float p[1][TILES][4], float ds[1][TILES][4])
{
    if (DK)
        multiply<WIDTH, 1, TILES>(p, tk, (int)threadIdx.x / PP_WARP * 16,
                                  of->second);
    if (all_attend(&view->s, n_keys, query, STEP, key, 16))
        key_pairs<false, CAPPED, 1, TILES>(view, of->lse, of->delta, n_keys,
                                           query, key, p, ds);
    else
        key_pairs<true, CAPPED, 1, TILES>(view, of->lse, of->delta, n_keys,
                                          query, key, p, ds);
    accumulate<WIDTH, 1, TILES>(acc, DK ? ds : p, of->second);
}

/* dk if DK, else dv. The first products of dk are of dout and the values, the
 * first products of dv of the queries and the keys. */
template <bool DK, bool CAPPED>
static __global__ void __launch_bounds__(THREADS)
    wide_dkv_kernel(elem *dkv, struct bwd_inputs b)
{
    PP_DYNAMIC_SHARED(shared);
    struct step_buffers *step = (struct step_buffers *)shared;
    elem *tk = (elem *)(step + 1), *tv = tk + ROWS * WIDTH;
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile = tile_of(s, blockIdx.y, ROWS, true);
    struct packed_sequence sq = sequence_at(s, tile.sequence),
                           keys = keys_at(s, tile.sequence);
    size_t kv = blockIdx.x, group = s->NH / s->NKV, h = kv * group;
    int t = tile.at, warp = (int)threadIdx.x / PP_WARP * 16;
    if (t >= keys.padded)
        return;
    float acc[1][WIDTH / 8][4] = {}, p[1][TILES][4], ds[1][TILES][4] = {};
    struct query_range of = queries_of(s, sq, keys.length, t, ROWS);
    int left = of.end > of.begin
                   ? (of.end - of.begin + STEP - 1) / STEP * (int)group
                   : 0;
    struct head_inputs in = head_inputs_at(s, sq, keys, h, b.q, b.k, b.v);
    if (left) {
        load_tile<WIDTH, ROWS>(tk, in.k, s->ldkv, t, keys.length, s->HDQK);
        if (DK)
            load_tile<WIDTH, ROWS>(tv, in.v, s->ldkv, t, keys.length, s->HDV);
        load_side(step->first, DK, &b, sq, h, of.begin);
        copy_commit();
    }
    for (int at = of.begin; left > 0; left--) {
        int query = sq.context + at;
        bool any = t + warp < keys.length &&
                   any_attends(s, keys.length, query, STEP, t + warp, 16);
        copy_wait<0>();
        __syncthreads(); /* `first` has arrived; no warp reads the last `second`
                            any more */
        load_side(step->second, !DK, &b, sq, h, at);
        load_step_stats(step, &b, sq, h, at);
        copy_commit();
        if (any)
            multiply<WIDTH, 1, TILES>(DK ? ds : p, DK ? tv : tk, warp,
                                      step->first);
        at += STEP;
        if (at >= of.end) {
            at = of.begin;
            h++;
        }
        copy_wait<0>();
        __syncthreads(); /* `second` has arrived; no warp reads `first` any more
                          */
        if (left > 1) {
            load_side(step->first, DK, &b, sq, h, at);
            copy_commit();
        }
        if (any)
            add_step<DK, CAPPED>(acc, &b.view, tk, step, keys.length, query,
                                 t + warp, p, ds);
    }
    const float scale = DK ? b.view.scale : 1, by[2] = {scale, scale};
    size_t width = DK ? s->HDQK : s->HDV;
    store_rows<WIDTH>(dkv + (size_t)keys.begin * s->ldkv + kv * width, s->ldkv,
                      width, t + warp, keys, acc[0], by);
}

template <bool DK, bool CAPPED>
static int launch_wide_dkv(elem *dkv, struct bwd_inputs b, void *stream)
{
    const struct pp_attention_shape *s = &b.view.s;
    const size_t shared = sizeof(struct step_buffers) +
                          (DK ? 2 : 1) * ROWS * WIDTH * sizeof(elem);
    int rc = allow_shared(wide_dkv_kernel<DK, CAPPED>, shared);
    return rc ? rc
              : PP_LAUNCH((wide_dkv_kernel<DK, CAPPED>),
                          tile_grid(s, pp_attention_key_rows(s), ROWS, s->NKV),
                          THREADS, shared, stream, dkv, b);
}

template <bool CAPPED>
static int launch_wide(elem *dq, elem *dk, elem *dv, struct bwd_inputs b,
                       void *stream)
{
    const struct pp_attention_shape *s = &b.view.s;
    const size_t shared = 2 * (ROWS + STEP) * WIDTH * sizeof(elem);
    int rc = allow_shared(wide_dq_kernel<CAPPED>, shared);
    if (!rc)
        rc =
            PP_LAUNCH((wide_dq_kernel<CAPPED>), tile_grid(s, s->N, ROWS, s->NH),
                      THREADS, shared, stream, dq, b);
    if (!rc)
        rc = launch_wide_dkv<true, CAPPED>(dk, b, stream);
    return rc ? rc : launch_wide_dkv<false, CAPPED>(dv, b, stream);
}

int pp_attention_mma_bwd_wide(elem *dq, elem *dk, elem *dv, struct bwd_inputs b,
                              void *stream)
{
    return b.view.s.cap > 0 ? launch_wide<true>(dq, dk, dv, b, stream)
                            : launch_wide<false>(dq, dk, dv, b, stream);
}
