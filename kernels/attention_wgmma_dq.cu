/* SPDX-License-Identifier: MIT */
/* attention_wgmma_dq - gradients of queries by products of warpgroups
 * (attention_wgmma_bwd.cuh). A block has queries of one head, and a step has
 * keys. */
#include "attention_wgmma_bwd.cuh"

#define GROUPS 3 /* warpgroups of a block that multiply */
#define QUERIES_OF_BLOCK (GROUPS * ROWS)

template <int D> struct ring_keys {
    alignas(1024) elem k[ROWS * D];
    elem v[ROWS * D];
};

/* Shared memory. */
template <int D> struct dq_tiles {
    alignas(1024) elem q[QUERIES_OF_BLOCK * D];
    elem dout[QUERIES_OF_BLOCK * D];
    struct ring_keys<D> steps[STEPS];
    struct ring ring;
};

#ifdef PP_HAS_WGMMA
/* The work of a block: queries from row `at` of a sequence on, and steps
 * [from, to) of keys. */
struct dq_block {
    struct packed_sequence sq, keys;
    size_t h;
    int at, from, to;
};

/* This lane's two queries. */
struct query_rows {
    int position[2];
    float lse[2], delta[2]; /* lse is a power of 2 */
    bool lone[2];
};

static __device__ inline void load_query_rows(struct query_rows *to,
                                              const struct bwd_inputs *b,
                                              const struct dq_block *of, int t)
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int at = t + lane / 4 + r * 8;
        size_t i = (size_t)(of->sq.begin + at) * b->view.s.NH + of->h;
        bool there = at < of->sq.length;
        to->position[r] = of->sq.context + at;
        to->lse[r] = there ? b->lse[i] * PP_LOG2E : 0;
        to->delta[r] = there ? b->delta[i] : 0;
        to->lone[r] = pp_attention_is_lone(&b->view.s, of->sq.base,
                                           of->keys.length, to->position[r]);
    }
}

/* Returns the keys of a step from `key` on to which this lane's queries
 * attend. */
static __device__ inline struct pair_range
keys_of_queries(const struct pp_attention_shape *s,
                const struct query_rows *rows, int n_keys, int key)
{
    struct pair_range in;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        in.first[r] = pp_attention_first(s, rows->position[r]) - key;
        in.last[r] = last_key(s, n_keys, rows->position[r]) - key;
    }
    return in;
}

/* Replaces the scores with probabilities. `query` is the position of the warp's
 * first query, `key` that of the first key of the step. */
static __device__ inline void
query_probabilities(float p[ROWS / 8][4], const struct attention_view *view,
                    const struct query_rows *rows, int n_keys, int query,
                    int key)
{
    const struct pp_attention_shape *s = &view->s;
    float scale = view->scale * PP_LOG2E;
    PP_UNROLL
    for (int i = 0; i < ROWS / 2; i++)
        p[i / 4][i % 4] =
            exp2_approx(p[i / 4][i % 4] * scale - rows->lse[i % 4 / 2]);
    if (all_attend(s, n_keys, query, WARP_ROWS, key, ROWS))
        return;
    struct pair_range in = keys_of_queries(s, rows, n_keys, key);
    mask_pairs(p, &in);
}

/* The same with a cap: p becomes what query_gradients multiplies. */
static __device__ inline void
capped_query_pairs(float p[ROWS / 8][4], const struct attention_view *view,
                   const struct query_rows *rows, int n_keys, int key)
{
    struct pair_range in = keys_of_queries(&view->s, rows, n_keys, key);
    int begin = (int)threadIdx.x % 4 * 2;
    PP_UNROLL
    for (int i = 0; i < ROWS / 2; i++) {
        int r = i % 4 / 2, column = i / 4 * 8 + begin + i % 2;
        capped_pair(view, rows->lse[r],
                    column >= in.first[r] && column <= in.last[r],
                    rows->lone[r], &p[i / 4][i % 4]);
    }
}

/* Replaces dp with the gradients of the scores without their factor scale.
 * lone: some queries may have one key. */
template <bool CAPPED>
static __device__ inline void
query_gradients(float dp[ROWS / 8][4], const float p[ROWS / 8][4],
                const struct query_rows *rows, bool lone)
{
    if (lone)
        PP_UNROLL
    for (int i = 0; i < ROWS / 2; i++) {
        int n = i / 4, j = i % 4;
        if (rows->lone[j / 2])
            dp[n][j] += rows->delta[j / 2] - (CAPPED ? 0 : p[n][j] * dp[n][j]);
    }
    PP_UNROLL
    for (int i = 0; i < ROWS / 2; i++)
        dp[i / 4][i % 4] =
            p[i / 4][i % 4] * (dp[i / 4][i % 4] - rows->delta[i % 4 / 2]);
}

/* Copies the queries of a block, and its steps. */
template <int D>
static __device__ inline void copy_keys(struct dq_tiles<D> *tiles,
                                        const struct bwd_inputs *b,
                                        const struct dq_block *of)
{
    const struct pp_attention_shape *s = &b->view.s;
    const int queries = QUERIES_OF_BLOCK, thread = (int)threadIdx.x % WARPGROUP;
    struct head_inputs in =
        head_inputs_at(s, of->sq, of->keys, of->h, b->q, b->k, b->v);
    const elem *dout = b->dout + (size_t)of->sq.begin * s->ldo + of->h * D;
    int n = of->to - of->from;
    if (n > 0) {
        load_panels<D, queries, WARPGROUP>(tiles->q, in.q, s->ldq, of->at,
                                           of->sq.length, thread);
        load_panels<D, queries, WARPGROUP>(tiles->dout, dout, s->ldo, of->at,
                                           of->sq.length, thread);
    }
    for (int i = 0; i < n; i++) {
        struct ring_keys<D> *to = &tiles->steps[i % STEPS];
        int key = (of->from + i) * ROWS;
        ring_take(&tiles->ring, i);
        load_panels<D, ROWS, WARPGROUP>(to->k, in.k, s->ldkv, key,
                                        of->keys.length, thread);
        load_panels<D, ROWS, WARPGROUP>(to->v, in.v, s->ldkv, key,
                                        of->keys.length, thread);
        ring_close(&tiles->ring, i);
    }
    ring_end(&tiles->ring, n);
}

/* Step i of a block but for its last product. `query` is the position of the
 * warp's first query. */
template <int D, bool CAPPED>
static __device__ inline void
add_key_step(float acc[D / 8][4], struct dq_tiles<D> *tiles,
             const struct attention_view *view, const struct dq_block *of,
             const struct query_rows *rows, int group, int query, int i)
{
    const struct ring_keys<D> *step = &tiles->steps[i % STEPS];
    float p[ROWS / 8][4], ds[ROWS / 8][4];
    uint32_t packed[ROWS / 16][4];
    /* Only the first query of a warp may be the first of a sequence. */
    bool lone =
        pp_attention_is_lone(&view->s, of->sq.base, of->keys.length, query);
    begin_products<D, QUERIES_OF_BLOCK>(
        p, ds, tiles->q + group * ROWS * PANEL, step->k,
        tiles->dout + group * ROWS * PANEL, step->v);
    wgmma_wait<1>();
    pin<ROWS / 8>(p);
    pin<D / 8>(acc);
    if (CAPPED)
        capped_query_pairs(p, view, rows, of->keys.length,
                           (of->from + i) * ROWS);
    else
        query_probabilities(p, view, rows, of->keys.length, query,
                            (of->from + i) * ROWS);
    ring_release(&tiles->ring, i);
    wgmma_wait<0>();
    pin<ROWS / 8>(ds);
    query_gradients<CAPPED>(ds, p, rows, lone);
    pack_sums<ROWS>(packed, ds);
    pin<ROWS / 16>(packed);
    pin<D / 8>(acc);
    wgmma_fence();
    accumulate_tile<D, ROWS>(acc, packed, tile_descriptor<ROWS>(step->k));
    wgmma_commit();
}

template <int D, bool CAPPED>
static __device__ inline void
multiply_keys(elem *dq, struct dq_tiles<D> *tiles, const struct bwd_inputs *b,
              const struct dq_block *of, int group)
{
    const struct pp_attention_shape *s = &b->view.s;
    int warp = of->at + (int)threadIdx.x / PP_WARP * WARP_ROWS;
    float acc[D / 8][4] = {};
    struct query_rows rows;
    load_query_rows(&rows, b, of, warp);
    pin<D / 8>(acc);
    for (int i = 0; i < of->to - of->from; i++) {
        ring_wait(&tiles->ring, i);
        add_key_step<D, CAPPED>(acc, tiles, &b->view, of, &rows, group,
                                of->sq.context + warp, i);
    }
    wgmma_wait<0>();
    pin<D / 8>(acc);
    store_gradients<D>(dq + (size_t)of->sq.begin * s->ldq + of->h * D, s->ldq,
                       warp, of->sq, acc, b->view.scale, s->merge);
}
#endif

template <int D, bool CAPPED>
static __global__ void __launch_bounds__(BLOCK(GROUPS), 1)
    wgmma_dq_kernel(elem *dq, struct bwd_inputs b)
{
#ifdef PP_HAS_WGMMA
    PP_TILES_IN_SHARED(shared);
    struct dq_tiles<D> *tiles = (struct dq_tiles<D> *)shared;
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile =
        tile_of(s, gridDim.y - 1 - blockIdx.y, QUERIES_OF_BLOCK, false);
    struct dq_block of = {sequence_at(s, tile.sequence),
                          keys_at(s, tile.sequence),
                          blockIdx.x,
                          tile.at,
                          0,
                          0};
    int group = uniform((int)threadIdx.x / WARPGROUP);
    if (of.at >= of.sq.padded)
        return;
    key_tiles(s, of.keys, of.sq.context + of.at, QUERIES_OF_BLOCK, ROWS,
              &of.from, &of.to);
    ring_init<GROUPS>(&tiles->ring);
    if (group == GROUPS) {
        leave_registers<GROUPS>();
        copy_keys<D>(tiles, &b, &of);
    } else {
        take_registers<GROUPS>();
        multiply_keys<D, CAPPED>(dq, tiles, &b, &of, group);
    }
#endif
}

template <int D, bool CAPPED>
static int launch_wgmma_dq(elem *dq, struct bwd_inputs b, void *stream)
{
    const struct pp_attention_shape *s = &b.view.s;
    const size_t shared = sizeof(struct dq_tiles<D>);
    int rc = allow_shared(wgmma_dq_kernel<D, CAPPED>, shared);
    return rc ? rc
              : PP_LAUNCH((wgmma_dq_kernel<D, CAPPED>),
                          tile_grid(s, s->N, QUERIES_OF_BLOCK, s->NH),
                          BLOCK(GROUPS), shared, stream, dq, b);
}

int pp_attention_wgmma_dq(elem *dq, struct bwd_inputs b, void *stream)
{
    bool capped = b.view.s.cap > 0;
    auto narrow =
        capped ? launch_wgmma_dq<64, true> : launch_wgmma_dq<64, false>;
    auto wide =
        capped ? launch_wgmma_dq<128, true> : launch_wgmma_dq<128, false>;
    return (b.view.s.HDV == 64 ? narrow : wide)(dq, b, stream);
}
