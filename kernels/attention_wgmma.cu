/* SPDX-License-Identifier: MIT */
/* attention forward by products of warpgroups, for the shapes of
 * attention_mma.cu on GPUs of compute capability 9.0. As in FlashAttention-3
 * (Shah et al. 2024), one warpgroup of a block copies keys and values to shared
 * memory, and each other one has 64 queries. It multiplies them by the next
 * keys, and the last probabilities by their values, while it computes other
 * exponentials. Warpgroups take turns to begin products, so that one computes
 * exponentials during the products of another. */
#include "attention_barriers.cuh"
#include "attention_softmax.cuh"

/* Warpgroups with queries, and keys that a block visits at a time. The sums of
 * wide heads leave no registers for a third warpgroup. */
#define GROUPS(D) (D == 64 ? 3 : 2)
#define BLOCK(D) ((GROUPS(D) + 1) * WARPGROUP)
#define KEYS 128
#define ROWS 64 /* queries of a warpgroup */
#define WARP_ROWS 16
#define STAGES 2 /* tiles of keys, and of values */
/* Registers of a thread that copies, and of one that computes. */
#define COPY_REGISTERS(D) (GROUPS(D) == 2 ? 40 : 32)
#define REGISTERS(D) (GROUPS(D) == 2 ? 232 : 160)

#ifdef PP_HAS_WGMMA
/* Barriers of a block: a tile has arrived, or is free for the next one. */
struct fwd_barriers {
    uint64_t keys[STAGES], free_keys[STAGES];
    uint64_t values[STAGES], free_values[STAGES];
};

/* The work of a block. */
struct fwd_block {
    const struct attention_view *view;
    const struct pp_attention_shape *s;
    struct packed_sequence sq, keys;
    size_t h;
    int at; /* first row of the block */
    struct head_inputs in;
    elem *tq, *tk, *tv;
    struct fwd_barriers *barriers;
    int from, to; /* tiles of keys of the block */
};

/* Tile n of the keys, or of the values, of a block is in stage n % STAGES, for
 * the (n / STAGES)-th time. */
static __device__ inline unsigned phase(int n)
{
    return (unsigned)(n / STAGES) & 1;
}

/* Says that the copies of this thread are complete, but for the last KEEP
 * groups. */
template <int KEEP> static __device__ inline void deliver(uint64_t *barrier)
{
    copy_wait<KEEP>();
    proxy_fence();
    phase_arrive(barrier);
}

/* The warpgroup that copies: keys n and values n - 1 in each step. */
template <int D>
static __device__ inline void copy_tiles(const struct fwd_block *b)
{
    const int queries = GROUPS(D) * ROWS;
    int thread = (int)threadIdx.x % WARPGROUP, end = b->to - b->from;
    struct fwd_barriers *w = b->barriers;
    load_panels<D, queries, WARPGROUP>(b->tq, b->in.q, b->s->ldq, b->at,
                                       b->sq.length, thread);
    for (int n = 0; n <= end; n++) {
        int stage = n % STAGES, last = (n + STAGES - 1) % STAGES;
        if (n < end) {
            phase_wait(&w->free_keys[stage], phase(n) ^ 1);
            load_panels<D, KEYS, WARPGROUP>(b->tk + stage * KEYS * D, b->in.k,
                                            b->s->ldkv, (b->from + n) * KEYS,
                                            b->keys.length, thread);
        }
        copy_commit();
        if (n > 1)
            deliver<1>(&w->values[stage]);
        if (n > 0) {
            phase_wait(&w->free_values[last], phase(n - 1) ^ 1);
            load_panels<D, KEYS, WARPGROUP>(
                b->tv + last * KEYS * D, b->in.v, b->s->ldkv,
                (b->from + n - 1) * KEYS, b->keys.length, thread);
        }
        copy_commit();
        if (n < end)
            deliver<1>(&w->keys[stage]);
    }
    deliver<0>(&w->values[(end - 1) % STAGES]);
}

/* The state of a warpgroup with queries. */
template <int D> struct fwd_group {
    int index;
    uint64_t q;   /* descriptor of its queries */
    int row;      /* of the sequence, this warp's first one */
    int from, to; /* tiles of keys to which any of its queries attends */
    float scale;
    struct row_softmax w;
    float acc[D / 8][4];
    uint32_t p[KEYS / 16][4]; /* probabilities of the last tile */
};

/* Begins the product of the queries and keys n, which have arrived. */
template <int D>
static __device__ inline void begin_scores(const struct fwd_block *b,
                                           struct fwd_group<D> *g, int n,
                                           float scores[KEYS / 8][4])
{
    wgmma_fence();
    multiply_tiles<D, KEYS, GROUPS(D) * ROWS, KEYS>(
        scores, g->q, tile_descriptor<KEYS>(b->tk + n % STAGES * KEYS * D));
    wgmma_commit();
}

/* Begins the product of the last probabilities and values n. */
template <int D>
static __device__ inline void begin_values(const struct fwd_block *b,
                                           struct fwd_group<D> *g, int n)
{
    phase_wait(&b->barriers->values[n % STAGES], phase(n));
    wgmma_fence();
    accumulate_tile<D, KEYS>(
        g->acc, g->p, tile_descriptor<KEYS>(b->tv + n % STAGES * KEYS * D));
    wgmma_commit();
}

/* Turns the scores of keys n into probabilities. */
template <int D, bool CAPPED>
static __device__ inline void
exponentiate(const struct fwd_block *b, struct fwd_group<D> *g, int n,
             float scores[KEYS / 8][4], float by[2])
{
    int position = b->sq.context + g->row, key = (b->from + n) * KEYS;
    if (CAPPED)
        cap_scores<KEYS / 8>(b->view, scores);
    if (!all_attend(b->s, b->keys.length, position, WARP_ROWS, key, KEYS))
        mask_keys<KEYS / 8>(b->s, b->keys.length, position, key, scores);
    softmax<KEYS / 8>(&g->w, g->scale, scores, by);
}

/* Waits for the turn of this warpgroup, or passes it on. */
template <int D>
static __device__ inline void take_turn(const struct fwd_group<D> *g)
{
    turn_wait(1 + g->index, 2 * WARPGROUP);
}

template <int D>
static __device__ inline void pass_turn(const struct fwd_group<D> *g, bool last)
{
    if (g->index + 1 < GROUPS(D))
        turn_pass(2 + g->index, 2 * WARPGROUP);
    else if (!last)
        turn_pass(1, 2 * WARPGROUP);
}

/* The first tile of a warpgroup, whose probabilities it keeps. */
template <int D, bool CAPPED>
static __device__ inline void first_tile(const struct fwd_block *b,
                                         struct fwd_group<D> *g, int n)
{
    float scores[KEYS / 8][4], by[2];
    phase_wait(&b->barriers->keys[n % STAGES], phase(n));
    take_turn<D>(g);
    begin_scores<D>(b, g, n, scores);
    pass_turn<D>(g, false);
    wgmma_wait<0>();
    pin<KEYS / 8>(scores);
    warp_arrive(&b->barriers->free_keys[n % STAGES]);
    exponentiate<D, CAPPED>(b, g, n, scores, by);
    scale_rows<D / 8>(g->acc, by);
    pack_sums<KEYS>(g->p, scores);
}

/* Keys n, and the values before them. */
template <int D, bool CAPPED>
static __device__ inline void next_tile(const struct fwd_block *b,
                                        struct fwd_group<D> *g, int n)
{
    float scores[KEYS / 8][4], by[2];
    phase_wait(&b->barriers->keys[n % STAGES], phase(n));
    take_turn<D>(g);
    pin<D / 8>(g->acc);
    pin<KEYS / 16>(g->p);
    begin_scores<D>(b, g, n, scores);
    begin_values<D>(b, g, n - 1);
    pass_turn<D>(g, false);
    wgmma_wait<1>();
    pin<KEYS / 8>(scores);
    warp_arrive(&b->barriers->free_keys[n % STAGES]);
    exponentiate<D, CAPPED>(b, g, n, scores, by);
    wgmma_wait<0>();
    pin<D / 8>(g->acc);
    pin<KEYS / 16>(g->p);
    warp_arrive(&b->barriers->free_values[(n - 1) % STAGES]);
    scale_rows<D / 8>(g->acc, by);
    pack_sums<KEYS>(g->p, scores);
}

/* Values n, the last ones of a warpgroup. */
template <int D>
static __device__ inline void
last_values(const struct fwd_block *b, struct fwd_group<D> *g, int n, bool last)
{
    take_turn<D>(g);
    pin<D / 8>(g->acc);
    pin<KEYS / 16>(g->p);
    begin_values<D>(b, g, n);
    pass_turn<D>(g, last);
    wgmma_wait<0>();
    pin<D / 8>(g->acc);
    warp_arrive(&b->barriers->free_values[n % STAGES]);
}

/* Visits keys n and values n - 1 of the block in each step. Some are not for
 * this warpgroup, which only releases them. */
template <int D, bool CAPPED>
static __device__ inline void visit_tiles(const struct fwd_block *b,
                                          struct fwd_group<D> *g)
{
    struct fwd_barriers *w = b->barriers;
    int end = b->to - b->from;
    if (g->index == GROUPS(D) - 1)
        turn_pass(1, 2 * WARPGROUP);
    for (int n = 0; n <= end; n++) {
        int i = b->from + n;
        bool scores = i >= g->from && i < g->to;
        bool values = i > g->from && i <= g->to;
        if (n < end && !scores) {
            phase_wait(&w->keys[n % STAGES], phase(n));
            warp_arrive(&w->free_keys[n % STAGES]);
        }
        if (n > 0 && !values) {
            phase_wait(&w->values[(n - 1) % STAGES], phase(n - 1));
            warp_arrive(&w->free_values[(n - 1) % STAGES]);
        }
        if (scores && values) {
            next_tile<D, CAPPED>(b, g, n);
        } else if (scores) {
            first_tile<D, CAPPED>(b, g, n);
        } else if (values) {
            last_values<D>(b, g, n - 1, n == end);
        } else {
            take_turn<D>(g);
            pass_turn<D>(g, n == end);
        }
    }
}

template <int D, bool CAPPED>
static __device__ inline void compute_rows(const struct fwd_block *b, elem *o,
                                           float *lse, const elem *sinks)
{
    struct fwd_group<D> g = {
    };
    g.index = uniform((int)threadIdx.x / WARPGROUP);
    int first = b->at + g.index * ROWS;
    g.row = b->at + (int)threadIdx.x / PP_WARP * WARP_ROWS;
    g.scale = CAPPED ? 1 : b->view->scale * PP_LOG2E;
    g.w = first_softmax(sinks, b->h);
    if (first < b->sq.length)
        key_tiles(b->s, b->keys, b->sq.context + first, ROWS, KEYS, &g.from,
                  &g.to);
    g.q = tile_descriptor<GROUPS(D) * ROWS>(b->tq + g.index * ROWS * PANEL);
    if (b->s->merge)
        load_results<D>(o, lse, b->s, b->sq, b->h, g.row, &g.w, g.acc);
    if (b->from < b->to)
        visit_tiles<D, CAPPED>(b, &g);
    store_queries<D>(o, lse, b->s, b->sq, b->h, g.row, &g.w, g.acc);
}

static __device__ inline void init_barriers(struct fwd_barriers *w, int groups)
{
    for (int i = 0; i < STAGES && threadIdx.x == 0; i++) {
        phase_init(&w->keys[i], WARPGROUP);
        phase_init(&w->values[i], WARPGROUP);
        phase_init(&w->free_keys[i], (unsigned)groups * 4);
        phase_init(&w->free_values[i], (unsigned)groups * 4);
    }
    __syncthreads();
}
#define BARRIER_BYTES sizeof(struct fwd_barriers)
#else
#define BARRIER_BYTES ((size_t)8 * 4 * STAGES)
#endif

template <int D, bool CAPPED>
static __global__ void __launch_bounds__(BLOCK(D))
    wgmma_fwd_kernel(elem *o, float *lse, const elem *q, const elem *k,
                     const elem *v, const elem *sinks,
                     struct attention_view view)
{
#ifdef PP_HAS_WGMMA
    PP_TILES_IN_SHARED(shared);
    const int queries = GROUPS(D) * ROWS;
    struct fwd_block b;
    b.view = &view;
    b.s = &view.s;
    struct sequence_tile tile =
        tile_of(b.s, gridDim.y - 1 - blockIdx.y, queries, false);
    b.sq = sequence_at(b.s, tile.sequence);
    b.keys = keys_at(b.s, tile.sequence);
    b.h = blockIdx.x;
    b.at = tile.at;
    if (b.at >= b.sq.padded)
        return;
    b.tq = (elem *)shared;
    b.tk = b.tq + queries * D;
    b.tv = b.tk + STAGES * KEYS * D;
    b.barriers = (struct fwd_barriers *)(b.tv + STAGES * KEYS * D);
    b.in = head_inputs_at(b.s, b.sq, b.keys, b.h, q, k, v);
    key_tiles(b.s, b.keys, b.sq.context + b.at, queries, KEYS, &b.from, &b.to);
    init_barriers(b.barriers, GROUPS(D));
    if (uniform((int)threadIdx.x / WARPGROUP) == GROUPS(D)) {
        shrink_registers<COPY_REGISTERS(D)>();
        if (b.from < b.to)
            copy_tiles<D>(&b);
    } else {
        grow_registers<REGISTERS(D)>();
        compute_rows<D, CAPPED>(&b, o, lse, sinks);
    }
#else
    __trap();
#endif
}

template <int D, bool CAPPED>
static int launch_wgmma_fwd(elem *o, float *lse, const elem *q, const elem *k,
                            const elem *v, const elem *sinks,
                            struct attention_view view, void *stream)
{
    const int queries = GROUPS(D) * ROWS;
    const size_t shared =
        (queries + 2 * STAGES * KEYS) * D * sizeof(elem) + BARRIER_BYTES;
    int rc = allow_shared(wgmma_fwd_kernel<D, CAPPED>, shared);
    return rc ? rc
              : PP_LAUNCH((wgmma_fwd_kernel<D, CAPPED>),
                          tile_grid(&view.s, view.s.N, queries, view.s.NH),
                          BLOCK(D), shared, stream, o, lse, q, k, v, sinks,
                          view);
}

bool pp_attention_wgmma_fits(const struct pp_attention_shape *s)
{
    return s->HDQK == s->HDV && (s->HDQK == 64 || s->HDQK == 128) &&
           gpu_has_wgmma();
}

int pp_attention_wgmma_fwd(elem *o, float *lse, const elem *q, const elem *k,
                           const elem *v, const elem *sinks,
                           struct attention_view view, void *stream)
{
    bool capped = view.s.cap > 0;
    auto narrow =
        capped ? launch_wgmma_fwd<64, true> : launch_wgmma_fwd<64, false>;
    auto wide =
        capped ? launch_wgmma_fwd<128, true> : launch_wgmma_fwd<128, false>;
    return (view.s.HDV == 64 ? narrow : wide)(o, lse, q, k, v, sinks, view,
                                              stream);
}
