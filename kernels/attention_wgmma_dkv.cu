/* SPDX-License-Identifier: MIT */
/* attention_wgmma_dkv - gradients of keys and values by products of warpgroups
 * (attention_wgmma_bwd.cuh). A block has keys of one head, and a step has
 * queries. The gradients are sums over the query heads of a group, and over the
 * sequences of queries that share the keys. */
#include "attention_wgmma_bwd.cuh"

#define GROUPS 2 /* warpgroups of a block that multiply */
#define KEYS (GROUPS * ROWS)

template <int D> struct ring_queries {
    alignas(1024) elem q[ROWS * D];
    elem dout[ROWS * D];
    float lse[ROWS], delta[ROWS];
};

/* Shared memory. */
template <int D> struct dkv_tiles {
    alignas(1024) elem k[KEYS * D];
    elem v[KEYS * D];
    struct ring_queries<D> steps[STEPS];
    struct ring ring;
};

#ifdef PP_HAS_WGMMA
/* The work of a block: keys from row `at` of a sequence on, for all sequences
 * of queries from `first` on that share them. */
struct dkv_block {
    struct packed_sequence keys;
    size_t kv;
    unsigned first;
    int at;
};

/* The queries that attend to the keys of a block, of one sequence. */
struct query_range {
    struct packed_sequence sq;
    int n_keys, begin, end; /* rows of the sequence */
    int n;                  /* steps, for all heads of a group */
};

static __device__ inline struct query_range
queries_at(const struct pp_attention_shape *s, const struct dkv_block *b,
           unsigned i)
{
    struct query_range of;
    of.sq = sequence_at(s, b->first + i);
    of.n_keys = keys_at(s, b->first + i).length;
    int last = b->at + KEYS < of.n_keys ? b->at + KEYS - 1 : of.n_keys - 1;
    of.begin = first_position(s, b->at) - of.sq.context;
    of.begin = of.begin > 0 ? of.begin : 0;
    of.end = b->at < of.n_keys
                 ? pp_attention_end(s, of.sq.context + of.sq.length, last) -
                       of.sq.context
                 : 0;
    int rows = of.end > of.begin ? of.end - of.begin : 0;
    of.n = (rows + ROWS - 1) / ROWS * (int)(s->NH / s->NKV);
    return of;
}

/* Moves on to the queries of the next step, which may be of the next head. */
static __device__ inline void next_queries(const struct query_range *of,
                                           int *at, size_t *h)
{
    *at += ROWS;
    if (*at >= of->end) {
        *at = of->begin;
        (*h)++;
    }
}

/* Starts to load queries from row `at` of a sequence on. Queries after its end
 * become zeros, which add nothing. */
template <int D>
static __device__ inline void
load_query_step(struct ring_queries<D> *to, const struct bwd_inputs *b,
                struct packed_sequence sq, size_t h, int at)
{
    static_assert(2 * ROWS == WARPGROUP, "a number a thread");
    const struct pp_attention_shape *s = &b->view.s;
    const int thread = (int)threadIdx.x % WARPGROUP;
    size_t row = (size_t)sq.begin;
    int mine = at + thread % ROWS;
    size_t i = (row + (size_t)mine) * s->NH + h;
    load_panels<D, ROWS, WARPGROUP>(to->q, b->q + row * s->ldq + h * D, s->ldq,
                                    at, sq.length, thread);
    load_panels<D, ROWS, WARPGROUP>(to->dout, b->dout + row * s->ldo + h * D,
                                    s->ldo, at, sq.length, thread);
    copy_word_begin(thread < ROWS ? &to->lse[thread]
                                  : &to->delta[thread - ROWS],
                    (thread < ROWS ? b->lse : b->delta) + i, mine < sq.length);
}

/* Copies the keys of a block, and its steps. */
template <int D>
static __device__ inline void copy_queries(struct dkv_tiles<D> *tiles,
                                           const struct bwd_inputs *b,
                                           const struct dkv_block *block)
{
    const struct pp_attention_shape *s = &b->view.s;
    const int thread = (int)threadIdx.x % WARPGROUP;
    size_t key = (size_t)block->keys.begin * s->ldkv + block->kv * D;
    int step = 0;
    load_panels<D, KEYS, WARPGROUP>(tiles->k, b->k + key, s->ldkv, block->at,
                                    block->keys.length, thread);
    load_panels<D, KEYS, WARPGROUP>(tiles->v, b->v + key, s->ldkv, block->at,
                                    block->keys.length, thread);
    for (unsigned j = 0; j < sharers(s); j++) {
        struct query_range of = queries_at(s, block, j);
        size_t h = block->kv * (s->NH / s->NKV);
        int at = of.begin;
        for (int i = 0; i < of.n; i++, step++) {
            ring_take(&tiles->ring, step);
            load_query_step<D>(&tiles->steps[step % STEPS], b, of.sq, h, at);
            ring_close(&tiles->ring, step);
            next_queries(&of, &at, &h);
        }
    }
    copy_commit();
    ring_end(&tiles->ring, step);
}

/* Returns the queries of a step from position `query` on that attend to this
 * lane's keys. `key` is the warp's first key. */
static __device__ inline struct pair_range
queries_of_keys(const struct pp_attention_shape *s, int n_keys, int query,
                int key)
{
    struct pair_range in;
    PP_UNROLL
    for (int r = 0; r < 2; r++) {
        int t = key + (int)threadIdx.x % PP_WARP / 4 + r * 8;
        in.first[r] = t < n_keys ? first_position(s, t) - query : ROWS;
        in.last[r] = pp_attention_end(s, query + ROWS, t) - query - 1;
    }
    return in;
}

/* Replaces the scores with probabilities. */
static __device__ inline void
key_probabilities(float p[ROWS / 8][4], const struct attention_view *view,
                  const float *lse, int n_keys, int query, int key)
{
    const struct pp_attention_shape *s = &view->s;
    float scale = view->scale * PP_LOG2E;
    int begin = (int)threadIdx.x % 4 * 2;
    PP_UNROLL
    for (int i = 0; i < ROWS / 2; i++)
        p[i / 4][i % 4] =
            exp2_approx(p[i / 4][i % 4] * scale -
                        lse[i / 4 * 8 + begin + i % 2] * PP_LOG2E);
    if (all_attend(s, n_keys, query, ROWS, key, WARP_ROWS))
        return;
    struct pair_range in = queries_of_keys(s, n_keys, query, key);
    mask_pairs(p, &in);
}

/* The same with a cap: the probabilities go to `packed`, and p becomes what
 * key_gradients multiplies. lone: columns that have one key. */
static __device__ inline void
capped_key_pairs(uint32_t packed[ROWS / 16][4], float p[ROWS / 8][4],
                 const struct attention_view *view, const float *lse,
                 int n_keys, int query, int key, int lone)
{
    struct pair_range in = queries_of_keys(&view->s, n_keys, query, key);
    int begin = (int)threadIdx.x % 4 * 2;
    PP_UNROLL
    for (int i = 0; i < ROWS / 4; i++) {
        int n = i / 2, r = i % 2, at = n * 8 + begin;
        float pair[2];
        PP_UNROLL
        for (int j = 0; j < 2; j++)
            pair[j] = capped_pair(view, lse[at + j] * PP_LOG2E,
                                  at + j >= in.first[r] && at + j <= in.last[r],
                                  at + j < lone, &p[n][2 * r + j]);
        packed[n / 2][n % 2 * 2 + r] = pack_bf16(pair[0], pair[1]);
    }
}

/* Replaces dp with the gradients of the scores without their factor scale.
 * lone: columns that have one key. */
template <bool CAPPED>
static __device__ inline void key_gradients(float dp[ROWS / 8][4],
                                            const float p[ROWS / 8][4],
                                            const float *delta, int lone)
{
    int begin = (int)threadIdx.x % 4 * 2;
    if (lone)
        PP_UNROLL
    for (int i = 0; i < ROWS / 2; i++) {
        int n = i / 4, j = i % 4, column = n * 8 + begin + j % 2;
        if (column < lone)
            dp[n][j] += delta[column] - (CAPPED ? 0 : p[n][j] * dp[n][j]);
    }
    PP_UNROLL
    for (int i = 0; i < ROWS / 2; i++)
        dp[i / 4][i % 4] = p[i / 4][i % 4] * (dp[i / 4][i % 4] -
                                              delta[i / 4 * 8 + begin + i % 2]);
}

/* The number of lone queries of a step from a position on: all, or the first
 * one, or none. */
static __device__ inline int n_lone(const struct pp_attention_shape *s,
                                    const struct query_range *of, int query)
{
    if (!pp_attention_is_lone(s, of->sq.base, of->n_keys, query))
        return 0;
    return pp_attention_is_lone(s, of->sq.base, of->n_keys, query + 1) ? ROWS
                                                                       : 1;
}

/* A step but for its last products. `query` is the position of its first query,
 * `key` the warp's first key. */
template <int D, bool CAPPED>
static __device__ inline void
add_query_step(float dk[D / 8][4], float dv[D / 8][4],
               struct dkv_tiles<D> *tiles, const struct attention_view *view,
               const struct query_range *of, int group, int query, int key,
               int i)
{
    const struct ring_queries<D> *step = &tiles->steps[i % STEPS];
    float p[ROWS / 8][4], ds[ROWS / 8][4];
    uint32_t packed_p[ROWS / 16][4], packed_ds[ROWS / 16][4];
    begin_products<D, KEYS>(p, ds, tiles->k + group * ROWS * PANEL, step->q,
                            tiles->v + group * ROWS * PANEL, step->dout);
    wgmma_wait<1>();
    pin<ROWS / 8>(p);
    pin<D / 8>(dk);
    pin<D / 8>(dv);
    if (CAPPED)
        capped_key_pairs(packed_p, p, view, step->lse, of->n_keys, query, key,
                         n_lone(&view->s, of, query));
    else
        key_probabilities(p, view, step->lse, of->n_keys, query, key);
    ring_release(&tiles->ring, i);
    wgmma_wait<0>();
    pin<ROWS / 8>(ds);
    key_gradients<CAPPED>(ds, p, step->delta, n_lone(&view->s, of, query));
    if (!CAPPED)
        pack_sums<ROWS>(packed_p, p);
    pack_sums<ROWS>(packed_ds, ds);
    pin<ROWS / 16>(packed_p);
    pin<ROWS / 16>(packed_ds);
    pin<D / 8>(dk);
    pin<D / 8>(dv);
    wgmma_fence();
    accumulate_tile<D, ROWS>(dv, packed_p, tile_descriptor<ROWS>(step->dout));
    accumulate_tile<D, ROWS>(dk, packed_ds, tile_descriptor<ROWS>(step->q));
    wgmma_commit();
}

template <int D, bool CAPPED>
static __device__ inline void
multiply_queries(elem *dk, elem *dv, struct dkv_tiles<D> *tiles,
                 const struct bwd_inputs *b, const struct dkv_block *block,
                 int group)
{
    const struct pp_attention_shape *s = &b->view.s;
    size_t key = (size_t)block->keys.begin * s->ldkv + block->kv * D;
    int warp = block->at + (int)threadIdx.x / PP_WARP * WARP_ROWS, step = 0;
    float k_acc[D / 8][4] = {}, v_acc[D / 8][4] = {};
    for (unsigned j = 0; j < sharers(s); j++) {
        struct query_range of = queries_at(s, block, j);
        size_t h = 0;
        int at = of.begin;
        for (int i = 0; i < of.n; i++, step++) {
            ring_wait(&tiles->ring, step);
            add_query_step<D, CAPPED>(k_acc, v_acc, tiles, &b->view, &of, group,
                                      of.sq.context + at, warp, step);
            next_queries(&of, &at, &h);
        }
        wgmma_wait<0>();
        pin<D / 8>(k_acc);
        pin<D / 8>(v_acc);
    }
    store_gradients<D>(dk + key, s->ldkv, warp, block->keys, k_acc,
                       b->view.scale, s->merge);
    store_gradients<D>(dv + key, s->ldkv, warp, block->keys, v_acc, 1,
                       s->merge);
}
#endif

template <int D, bool CAPPED>
static __global__ void __launch_bounds__(BLOCK(GROUPS), 1)
    wgmma_dkv_kernel(elem *dk, elem *dv, struct bwd_inputs b)
{
#ifdef PP_HAS_WGMMA
    PP_TILES_IN_SHARED(shared);
    struct dkv_tiles<D> *tiles = (struct dkv_tiles<D> *)shared;
    const struct pp_attention_shape *s = &b.view.s;
    struct sequence_tile tile = tile_of(s, blockIdx.y, KEYS, true);
    struct dkv_block block = {keys_at(s, tile.sequence), blockIdx.x,
                              tile.sequence, tile.at};
    int group = uniform((int)threadIdx.x / WARPGROUP);
    if (block.at >= block.keys.padded)
        return;
    for (unsigned i = 1; i < sharers(s); i++) {
        int length = keys_at(s, tile.sequence + i).length;
        if (block.keys.length < length)
            block.keys.length = length;
    }
    ring_init<GROUPS>(&tiles->ring);
    if (group == GROUPS) {
        leave_registers<GROUPS>();
        copy_queries<D>(tiles, &b, &block);
    } else {
        take_registers<GROUPS>();
        multiply_queries<D, CAPPED>(dk, dv, tiles, &b, &block, group);
    }
#endif
}

template <int D, bool CAPPED>
static int launch_wgmma_dkv(elem *dk, elem *dv, struct bwd_inputs b,
                            void *stream)
{
    const struct pp_attention_shape *s = &b.view.s;
    const size_t shared = sizeof(struct dkv_tiles<D>);
    int rc = allow_shared(wgmma_dkv_kernel<D, CAPPED>, shared);
    return rc ? rc
              : PP_LAUNCH((wgmma_dkv_kernel<D, CAPPED>),
                          tile_grid(s, pp_attention_key_rows(s), KEYS, s->NKV),
                          BLOCK(GROUPS), shared, stream, dk, dv, b);
}

int pp_attention_wgmma_bwd(elem *dq, elem *dk, elem *dv, struct bwd_inputs b,
                           void *stream)
{
    int rc = pp_attention_wgmma_dq(dq, b, stream);
    if (rc)
        return rc;
    bool capped = b.view.s.cap > 0;
    auto narrow =
        capped ? launch_wgmma_dkv<64, true> : launch_wgmma_dkv<64, false>;
    auto wide =
        capped ? launch_wgmma_dkv<128, true> : launch_wgmma_dkv<128, false>;
    return (b.view.s.HDV == 64 ? narrow : wide)(dk, dv, b, stream);
}
