/* SPDX-License-Identifier: MIT */
/* attention_pairs - code of backward of attention on tensor cores: the
 * probabilities and gradients of pairs of a query and a key. */
#ifndef PP_KERNELS_ATTENTION_PAIRS_CUH
#define PP_KERNELS_ATTENTION_PAIRS_CUH

#include "attention_tiles.cuh"

/* Backward of heads wider than the tiles of PP_ATTENTION_WIDTHS. */
int pp_attention_mma_bwd_wide(elem *dq, elem *dk, elem *dv, struct bwd_inputs b,
                              void *stream);

/* Replaces the score in p with the probability of the pair, and dp in ds with
 * the gradient of the product of query and key without its factor scale. lse is
 * a power of 2. EDGE: the query may not attend to the key, or may attend to it
 * alone. */
template <bool EDGE, bool CAPPED>
static __device__ inline void
pair_gradients(const struct attention_view *view, int n_keys, int query,
               int key, float lse, float delta, float *p, float *ds)
{
    float t = CAPPED ? score_tanh(view, *p) : 0;
    float scale = CAPPED ? view->cap : view->scale * PP_LOG2E;
    *p = exp2_approx((CAPPED ? t : *p) * scale - lse);
    if (EDGE) {
        *p = attends(&view->s, n_keys, query, key) ? *p : 0;
        delta = row_term(pp_attention_is_lone(&view->s, 0, n_keys, query), *p,
                         *ds, delta);
    }
    *ds = *p * (*ds - delta);
    if (CAPPED)
        *ds *= 1 - t * t;
}

/* Statistics of a lane's two rows in each tile of its warp, for dq. */
template <int M> struct query_stats {
    float lse[M][2], delta[M][2];
};

/* The pairs of a lane: the warp's queries from position `query` on, and the
 * keys of a step. */
template <bool EDGE, bool CAPPED, int M, int N>
static __device__ inline void query_pairs(const struct attention_view *view,
                                          const struct query_stats<M> *rows,
                                          int n_keys, int query, int key,
                                          float p[M][N][4], float ds[M][N][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int m = 0; m < M; m++)
        PP_UNROLL
    for (int n = 0; n < N; n++)
        PP_UNROLL
    for (int j = 0; j < 4; j++)
        pair_gradients<EDGE, CAPPED>(
            view, n_keys, query + m * 16 + lane / 4 + j / 2 * 8,
            key + n * 8 + lane % 4 * 2 + j % 2, rows->lse[m][j / 2],
            rows->delta[m][j / 2], &p[m][n][j], &ds[m][n][j]);
}

/* Loads the statistics of the warp's queries from row t on. */
template <int M>
static __device__ inline void
load_stats(struct query_stats<M> *rows, const struct bwd_inputs *b,
           struct packed_sequence sq, size_t h, int t)
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        int at = t + lane / 4 + r * 8;
        size_t i = (size_t)(sq.begin + at) * b->view.s.NH + h;
        rows->lse[r / 2][r % 2] = at < sq.length ? b->lse[i] * PP_LOG2E : 0;
        rows->delta[r / 2][r % 2] = at < sq.length ? b->delta[i] : 0;
    }
}

/* The pairs of a lane: the queries of a step from position `query` on, and the
 * warp's keys, which are the rows. */
template <bool EDGE, bool CAPPED, int M, int N>
static __device__ inline void key_pairs(const struct attention_view *view,
                                        const float *lse, const float *delta,
                                        int n_keys, int query, int key,
                                        float p[M][N][4], float ds[M][N][4])
{
    int lane = (int)threadIdx.x % PP_WARP;
    PP_UNROLL
    for (int n = 0; n < N; n++)
        PP_UNROLL
    for (int m = 0; m < M; m++)
        PP_UNROLL
    for (int j = 0; j < 4; j++) {
        int column = n * 8 + lane % 4 * 2 + j % 2;
        pair_gradients<EDGE, CAPPED>(
            view, n_keys, query + column, key + m * 16 + lane / 4 + j / 2 * 8,
            lse[column] * PP_LOG2E, delta[column], &p[m][n][j], &ds[m][n][j]);
    }
}

/* The queries that attend to a block of `rows` keys from key t on. */
struct query_range {
    int begin, end; /* rows of the queries */
};

static __device__ inline struct query_range
queries_of(const struct pp_attention_shape *s, struct packed_sequence sq,
           int n_keys, int t, int rows)
{
    int last = t + rows < n_keys ? t + rows - 1 : n_keys - 1;
    int begin = first_position(s, t) - sq.context;
    struct query_range r = {begin > 0 ? begin : 0, 0};
    if (t < n_keys)
        r.end = pp_attention_end(s, n_keys, last) - sq.context;
    return r;
}

#endif
