/* SPDX-License-Identifier: MIT */
/* experts on a GPU: rows of tokens, activations, sinks, the order of rows of
 * other ranks, and products. A block works on one row of a copy, and a team of
 * threads, a warp or for wide rows a block, on one row of a sum. */
#include "columns.cuh"
#include "cublas.h"
#include "device.cuh"

#include <limits.h>

#define THREADS 256
#define WIDE 2048     /* width of the narrowest row that has a block */
#define PAD_BLOCKS 64 /* of each expert */

/* --- rows and tokens --- */

template <int V>
static __global__ void spread_kernel(elem *y, const elem *x,
                                     const float *weight, const int32_t *token,
                                     size_t C)
{
    size_t r = blockIdx.x;
    if (token && token[r] < 0)
        return;
    const elem *in = x + (token ? (size_t)token[r] : r) * C;
    float by = weight ? weight[r] : 1;
    for (size_t c = threadIdx.x * V; c < C; c += THREADS * V) {
        pack<V> a = *(const pack<V> *)(in + c);
        for (int j = 0; weight && j < V; j++)
            store(&a.at[j], by * to_float(a.at[j]));
        *(pack<V> *)(y + r * C + c) = a;
    }
}

/* The rows of a token are added in the order of its choice. */
template <int V>
static __global__ void combine_kernel(elem *y, const elem *x,
                                      const float *weight, const int32_t *row,
                                      size_t K, size_t C, bool add)
{
    size_t t = blockIdx.x;
    bool real = !row || row[t * K] >= 0;
    for (size_t c = threadIdx.x * V; c < C; c += THREADS * V) {
        float sum[V] = {0};
        pack<V> out;
        if (add)
            out = *(const pack<V> *)(y + t * C + c);
        for (int k = 0; add && k < V; k++)
            sum[k] = to_float(out.at[k]);
        for (size_t j = 0; real && j < K; j++) {
            size_t i = row ? (size_t)row[t * K + j] : t;
            pack<V> a = *(const pack<V> *)(x + i * C + c);
            float by = weight ? weight[i] : 1;
            for (int k = 0; k < V; k++)
                sum[k] += by * to_float(a.at[k]);
        }
        for (int k = 0; k < V; k++)
            store(&out.at[k], sum[k]);
        *(pack<V> *)(y + t * C + c) = out;
    }
}

PP_SPREAD(PP_CUDA(spread))
{
    if (!R || !C)
        return 0;
    auto kernel = packs(y, C, 0) && packs(x, C, 0) ? spread_kernel<PP_PACK>
                                                   : spread_kernel<1>;
    return PP_LAUNCH(kernel, (unsigned)R, THREADS, 0, stream, (elem *)y,
                     (const elem *)x, (const float *)weight, token, C);
}

PP_COMBINE(PP_CUDA(combine))
{
    if (!N || !C)
        return 0;
    auto kernel = packs(y, C, 0) && packs(x, C, 0) ? combine_kernel<PP_PACK>
                                                   : combine_kernel<1>;
    return PP_LAUNCH(kernel, (unsigned)N, THREADS, 0, stream, (elem *)y,
                     (const elem *)x, (const float *)weight, row, K, C, add);
}

static unsigned team_blocks(size_t R, size_t C)
{
    size_t teams = C < WIDE ? THREADS / PP_WARP : 1;
    return (unsigned)((R + teams - 1) / teams);
}

/* Returns the sum of a[i] b[i] to every thread of the team. */
template <int TEAM>
static __device__ inline float team_dot(const elem *a, const elem *b, size_t C,
                                        bool inside, float *shared)
{
    float sum = 0;
    for (size_t i = threadIdx.x % TEAM; inside && i < C; i += TEAM)
        sum += to_float(a[i]) * to_float(b[i]);
    return team_sum<TEAM>(sum, shared);
}

template <int TEAM>
static __global__ void weigh_bwd_kernel(float *dweight, elem *dy, const elem *y,
                                        const float *weight, size_t R, size_t C)
{
    __shared__ float shared[THREADS / PP_WARP];
    size_t r = team_row<THREADS, TEAM>(), lane = threadIdx.x % TEAM;
    elem *d = dy + r * C;
    float sum = team_dot<TEAM>(d, y + r * C, C, r < R, shared);
    if (r >= R)
        return;
    if (lane == 0)
        dweight[r] = sum;
    for (size_t i = lane; i < C; i += TEAM)
        store(&d[i], weight[r] * to_float(d[i]));
}

template <int TEAM>
static __global__ void bias_dot_kernel(float *dweight, const elem *dy,
                                       const elem *b, const int32_t *expert,
                                       size_t R, size_t C, size_t stride)
{
    __shared__ float shared[THREADS / PP_WARP];
    size_t r = team_row<THREADS, TEAM>();
    const elem *bias = b + (r < R ? (size_t)expert[r] * stride : 0);
    float sum = team_dot<TEAM>(dy + r * C, bias, C, r < R, shared);
    if (r < R && threadIdx.x % TEAM == 0)
        dweight[r] += sum;
}

PP_WEIGH_BWD(PP_CUDA(weigh_bwd))
{
    auto kernel =
        C < WIDE ? weigh_bwd_kernel<PP_WARP> : weigh_bwd_kernel<THREADS>;
    return R ? PP_LAUNCH(kernel, team_blocks(R, C), THREADS, 0, stream,
                         (float *)dweight, (elem *)dy, (const elem *)y,
                         (const float *)weight, R, C)
             : 0;
}

PP_BIAS_DOT(PP_CUDA(bias_dot))
{
    auto kernel =
        C < WIDE ? bias_dot_kernel<PP_WARP> : bias_dot_kernel<THREADS>;
    return R ? PP_LAUNCH(kernel, team_blocks(R, C), THREADS, 0, stream,
                         (float *)dweight, (const elem *)dy, (const elem *)b,
                         expert, R, C, stride)
             : 0;
}

/* --- activations --- */

struct clamped {
    float gate, up, s; /* s = sigmoid(gain gate) */
    bool above, off;   /* whether gate and up are clamped */
};

static __device__ inline struct clamped clamped_at(const elem *gu, float limit,
                                                   float gain)
{
    float g = to_float(gu[0]), u = to_float(gu[1]);
    struct clamped c;
    c.above = g > limit;
    c.off = u > limit || u < -limit;
    c.gate = c.above ? limit : g;
    c.up = u > limit ? limit : u < -limit ? -limit : u;
    c.s = sigmoid(gain * c.gate);
    return c;
}

static __global__ void clamped_fwd_kernel(elem *y, const elem *gu, size_t n,
                                          float limit, float gain)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        struct clamped c = clamped_at(gu + 2 * i, limit, gain);
        store(&y[i], (c.up + 1) * (c.gate * c.s));
    }
}

static __global__ void clamped_bwd_kernel(elem *dgu, const elem *dy,
                                          const elem *gu, size_t n, float limit,
                                          float gain)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        struct clamped c = clamped_at(gu + 2 * i, limit, gain);
        float d = to_float(dy[i]);
        float slope = c.s * (1 + gain * c.gate * (1 - c.s));
        store(&dgu[2 * i], c.above ? 0 : d * (c.up + 1) * slope);
        store(&dgu[2 * i + 1], c.off ? 0 : d * (c.gate * c.s));
    }
}

PP_CLAMPED_SWIGLU_FWD(PP_CUDA(clamped_swiglu_fwd))
{
    return R && C ? PP_LAUNCH(clamped_fwd_kernel, blocks_for(R * C, THREADS),
                              THREADS, 0, stream, (elem *)y, (const elem *)gu,
                              R * C, (float)by->limit, (float)by->gain)
                  : 0;
}

PP_CLAMPED_SWIGLU_BWD(PP_CUDA(clamped_swiglu_bwd))
{
    return R && C ? PP_LAUNCH(clamped_bwd_kernel, blocks_for(R * C, THREADS),
                              THREADS, 0, stream, (elem *)dgu, (const elem *)dy,
                              (const elem *)gu, R * C, (float)by->limit,
                              (float)by->gain)
                  : 0;
}

static __global__ void gate_fwd_kernel(float *y, const elem *x, size_t n)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        y[i] = sigmoid(to_float(x[i]));
}

static __global__ void gate_bwd_kernel(elem *dx, const float *dy,
                                       const float *y, size_t n)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        store(&dx[i], dy[i] * y[i] * (1 - y[i]));
}

PP_GATE_FWD(PP_CUDA(gate_fwd))
{
    return n ? PP_LAUNCH(gate_fwd_kernel, blocks_for(n, THREADS), THREADS, 0,
                         stream, (float *)y, (const elem *)x, n)
             : 0;
}

PP_GATE_BWD(PP_CUDA(gate_bwd))
{
    return n ? PP_LAUNCH(gate_bwd_kernel, blocks_for(n, THREADS), THREADS, 0,
                         stream, (elem *)dx, (const float *)dy,
                         (const float *)y, n)
             : 0;
}

/* --- sinks --- */

/* A warp has one head of one row. */
static __global__ void sinks_kernel(float *dsinks, const elem *dout,
                                    const elem *o, const float *lse,
                                    const elem *sinks, size_t n, size_t NH,
                                    size_t HD, size_t ldo)
{
    size_t i = team_row<THREADS, PP_WARP>();
    size_t at = i / NH * ldo + i % NH * HD;
    float sum = team_dot<PP_WARP>(dout + at, o + at, HD, i < n, NULL);
    if (i < n && threadIdx.x % PP_WARP == 0)
        dsinks[i] = -expf(to_float(sinks[i % NH]) - lse[i]) * sum;
}

struct row_term {
    const float *x;
    size_t NH;

    __device__ float at(size_t t, size_t h) const
    {
        return x[t * NH + h];
    }
};

PP_SINKS_BWD_INPUT(PP_CUDA(sinks_bwd_input))
{
    return N && NH ? PP_LAUNCH(sinks_kernel, team_blocks(N * NH, 1), THREADS, 0,
                               stream, (float *)dsinks, (const elem *)dout,
                               (const elem *)o, (const float *)lse,
                               (const elem *)sinks, N * NH, NH, HD, ldo)
                   : 0;
}

PP_ADD_ROWS(PP_CUDA(add_rows))
{
    struct row_term term = {(const float *)x, NH};
    return add_columns((float *)dw, term, N, NH, stream);
}

/* --- rows of ranks --- */

/* Returns the rows of experts before e. Dropped rows come last. */
static __device__ int32_t rows_before(const struct pp_routing *r, size_t R,
                                      size_t e)
{
    size_t low = 0, high = R;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->token[middle] >= 0 && (size_t)r->expert[middle] < e)
            low = middle + 1;
        else
            high = middle;
    }
    return (int32_t)low;
}

static __global__ void count_kernel(int32_t *counts, struct pp_routing r,
                                    size_t R, size_t E)
{
    for (size_t e = grid_thread(); e < E; e += grid_threads())
        counts[e] = rows_before(&r, R, e + 1) - rows_before(&r, R, e);
}

PP_COUNT(PP_CUDA(count))
{
    return E ? PP_LAUNCH(count_kernel, blocks_for(E, THREADS), THREADS, 0,
                         stream, counts, *r, R, E)
             : 0;
}

/* Returns the sum over the block to each of its threads. */
static __device__ int32_t block_total(int32_t x, int32_t *sums)
{
    __syncthreads(); /* threads may still read sums from an earlier call */
    sums[threadIdx.x] = x;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    return sums[0];
}

/* A block writes the rows of one expert, x, from one rank, y. */
static __global__ void arrivals_kernel(int32_t *arrival, int32_t *expert,
                                       const int32_t *counts, size_t P,
                                       size_t E, size_t first, size_t n)
{
    __shared__ int32_t sums[THREADS];
    size_t mine = blockIdx.x, from = blockIdx.y;
    int32_t came = 0, place = 0; /* before these rows */
    for (size_t i = threadIdx.x; i < P * n; i += THREADS) {
        size_t rank = i / n, e = i % n;
        int32_t rows = counts[rank * E + first + e];
        came += rank < from || (rank == from && e < mine) ? rows : 0;
        place += e < mine || (e == mine && rank < from) ? rows : 0;
    }
    came = block_total(came, sums);
    place = block_total(place, sums);
    int32_t rows = counts[from * E + first + mine];
    for (int32_t i = (int32_t)threadIdx.x; i < rows; i += THREADS) {
        arrival[place + i] = came + i;
        expert[place + i] = (int32_t)mine;
    }
}

PP_ARRIVALS(PP_CUDA(arrivals))
{
    dim3 grid((unsigned)n, (unsigned)P);
    return n && P ? PP_LAUNCH(arrivals_kernel, grid, THREADS, 0, stream,
                              arrival, expert, counts, P, E, first, n)
                  : 0;
}

/* Writes a row of a block: x, or zeros if there is none. */
template <int V>
static __device__ inline void copy_row(elem *y, const elem *x, size_t C)
{
    for (size_t c = threadIdx.x * V; c < C; c += THREADS * V) {
        pack<V> a;
        for (int j = 0; !x && j < V; j++)
            store(&a.at[j], 0);
        if (x)
            a = *(const pack<V> *)(x + c);
        *(pack<V> *)(y + c) = a;
    }
}

/* The blocks of one x have the rows of an expert. */
template <int V>
static __global__ void pad_kernel(elem *y, const elem *x, struct pp_routing r,
                                  size_t R, size_t P, size_t C)
{
    size_t e = blockIdx.x, first = (size_t)rows_before(&r, R, e);
    size_t n = (size_t)rows_before(&r, R, e + 1) - first;
    for (size_t i = blockIdx.y; i < P; i += gridDim.y)
        copy_row<V>(y + (e * P + i) * C, i < n ? x + (first + i) * C : NULL, C);
}

/* The same; blocks of the last x have the dropped rows. */
template <int V>
static __global__ void close_up_kernel(elem *y, const elem *x,
                                       struct pp_routing r, size_t R, size_t P,
                                       size_t C)
{
    size_t e = blockIdx.x, first = (size_t)rows_before(&r, R, e);
    bool keeps = e + 1 < gridDim.x;
    size_t end = keeps ? (size_t)rows_before(&r, R, e + 1) : R;
    for (size_t i = blockIdx.y; i < end - first; i += gridDim.y)
        copy_row<V>(y + (first + i) * C, keeps ? x + (e * P + i) * C : NULL, C);
}

PP_PAD(PP_CUDA(pad))
{
    dim3 grid((unsigned)E, PAD_BLOCKS);
    if (!E || !P || !C)
        return 0;
    auto kernel =
        packs(y, C, 0) && packs(x, C, 0) ? pad_kernel<PP_PACK> : pad_kernel<1>;
    return PP_LAUNCH(kernel, grid, THREADS, 0, stream, (elem *)y,
                     (const elem *)x, *r, R, P, C);
}

PP_PAD(PP_CUDA(close_up))
{
    dim3 grid((unsigned)E + 1, PAD_BLOCKS);
    if (!R || !C)
        return 0;
    auto kernel = packs(y, C, 0) && packs(x, C, 0) ? close_up_kernel<PP_PACK>
                                                   : close_up_kernel<1>;
    return PP_LAUNCH(kernel, grid, THREADS, 0, stream, (elem *)y,
                     (const elem *)x, *r, R, P, C);
}

/* --- products --- */

/* Rows and experts of a loop over the experts that have rows. */
struct each_expert {
    const struct pp_expert_rows *rows;
    size_t e, first, n; /* the expert, its first row, and its rows */
};

static bool next_expert(struct each_expert *i)
{
    for (; i->e < i->rows->n_experts; i->e++) {
        i->first += i->n;
        i->n = (size_t)i->rows->counts[i->e];
        if (i->n)
            return true;
    }
    return false;
}

/* Matrices of experts: a matrix begins of_expert bytes behind the matrix of the
 * expert before, and of_row bytes behind it for each earlier row. */
struct grouped_matrix {
    char *at;
    size_t of_expert, of_row;
    int op, ld, type;
};

/* For every expert c (m, n), column-major, = op(a) op(b) + beta c. n or k is 0
 * in place of the rows of the expert. */
struct grouped_product {
    struct grouped_matrix a, b, c;
    size_t m, n, k;
    float beta;
};

/* One call has the products of so many experts. */
#define MOST_GROUPS 256

struct group_places {
    int32_t expert[MOST_GROUPS], first[MOST_GROUPS];
};

static __device__ inline char *matrix_of(struct grouped_matrix x, size_t expert,
                                         size_t first)
{
    return x.at + expert * x.of_expert + first * x.of_row;
}

/* Writes where the matrices of n groups begin: of a, of b, of c. */
static __global__ void matrices_kernel(char **at, struct group_places of,
                                       size_t n, struct grouped_matrix a,
                                       struct grouped_matrix b,
                                       struct grouped_matrix c)
{
    size_t i = threadIdx.x;
    if (i >= n)
        return;
    size_t expert = (size_t)of.expert[i], first = (size_t)of.first[i];
    at[i] = matrix_of(a, expert, first);
    at[n + i] = matrix_of(b, expert, first);
    at[2 * n + i] = matrix_of(c, expert, first);
}

/* The arguments of a call that cuBLAS reads on the host. */
struct groups {
    size_t count;
    int op_a[MOST_GROUPS], op_b[MOST_GROUPS], size[MOST_GROUPS];
    int m[MOST_GROUPS], n[MOST_GROUPS], k[MOST_GROUPS];
    int lda[MOST_GROUPS], ldb[MOST_GROUPS], ldc[MOST_GROUPS];
    float alpha[MOST_GROUPS], beta[MOST_GROUPS];
};

static void add_group(struct groups *g, const struct grouped_product *p,
                      size_t rows)
{
    size_t i = g->count++;
    g->op_a[i] = p->a.op, g->op_b[i] = p->b.op, g->size[i] = 1;
    g->m[i] = (int)p->m;
    g->n[i] = (int)(p->n ? p->n : rows);
    g->k[i] = (int)(p->k ? p->k : rows);
    g->lda[i] = p->a.ld, g->ldb[i] = p->b.ld, g->ldc[i] = p->c.ld;
    g->alpha[i] = 1, g->beta[i] = p->beta;
}

/* Computes the products of some experts. The partials hold the addresses. */
static int call_grouped(const struct grouped_product *p, const struct groups *g,
                        const struct group_places *of, void *stream)
{
    const struct pp_cuda_stream *s = (const struct pp_cuda_stream *)stream;
    char **at = (char **)s->partials;
    int n = (int)g->count;
    int rc = PP_LAUNCH(matrices_kernel, 1, MOST_GROUPS, 0, stream, at, *of,
                       g->count, p->a, p->b, p->c);
    if (rc)
        return rc;
    rc = s->cublas->gemm_grouped(s->blas, g->op_a, g->op_b, g->m, g->n, g->k,
                                 g->alpha, (const void *const *)at, p->a.type,
                                 g->lda, (const void *const *)(at + n),
                                 p->b.type, g->ldb, g->beta,
                                 (void *const *)(at + 2 * n), p->c.type, g->ldc,
                                 n, g->size, PP_CUBLAS_COMPUTE_32F);
    return rc ? PP_CUBLAS_ERROR + rc : 0;
}

/* Reports whether cuBLAS computes such products in one call: the types are the
 * same, and all matrices begin at 16 bytes. */
static bool is_grouped(const struct grouped_product *p, void *stream)
{
    const struct grouped_matrix all[] = {p->a, p->b, p->c};
    const struct pp_cuda_stream *s = (const struct pp_cuda_stream *)stream;
    for (const struct grouped_matrix &x : all)
        if (x.type != PP_ELEMENT_TYPE || (uintptr_t)x.at % 16 ||
            x.of_expert % 16 || x.of_row % 16)
            return false;
    return s->cublas->gemm_grouped && p->m <= INT_MAX && p->n <= INT_MAX &&
           p->k <= INT_MAX;
}

static int grouped(const struct grouped_product *p,
                   const struct pp_expert_rows *rows, void *stream)
{
    struct each_expert i = {rows, 0, 0, 0};
    bool more = next_expert(&i);
    int rc = 0;
    while (!rc && more) {
        struct group_places of;
        struct groups g;
        for (g.count = 0; more && g.count < MOST_GROUPS;
             i.e++, more = next_expert(&i)) {
            of.expert[g.count] = (int32_t)i.e;
            of.first[g.count] = (int32_t)i.first;
            add_group(&g, p, i.n);
        }
        rc = call_grouped(p, &g, &of, stream);
    }
    return rc;
}

/* Matrices of the weights of experts, or of their gradients; and of rows. */
static struct grouped_matrix of_experts(const void *at, size_t stride, int op,
                                        size_t ld, int type)
{
    size_t bytes = type == PP_CUBLAS_R_32F ? sizeof(float) : sizeof(elem);
    return {(char *)at, stride * bytes, 0, op, (int)ld, type};
}

static struct grouped_matrix of_rows(const void *at, size_t width, int op)
{
    return {(char *)at, 0,          width * sizeof(elem),
            op,         (int)width, PP_ELEMENT_TYPE};
}

/* y[r] = the bias of the row's expert */
static __global__ void place_biases_kernel(elem *y, const elem *b,
                                           const int32_t *expert, size_t n,
                                           size_t C, size_t stride)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        y[i] = b[(size_t)expert[i / C] * stride + i % C];
}

/* A grouped product has no epilogue, so it adds to biases. */
PP_GROUPED_FWD(PP_CUDA(grouped_fwd))
{
    const struct grouped_product p = {
        of_experts(w, stride, PP_CUBLAS_OP_T, C, PP_ELEMENT_TYPE),
        of_rows(x, C, PP_CUBLAS_OP_N),
        of_rows(y, OC, PP_CUBLAS_OP_N),
        OC,
        0,
        C,
        b ? 1.0f : 0.0f};
    struct each_expert i = {rows, 0, 0, 0};
    int rc = 0;
    if (!rows->n)
        return 0;
    if (is_grouped(&p, stream)) {
        if (b)
            rc = PP_LAUNCH(place_biases_kernel,
                           blocks_for(rows->n * OC, THREADS), THREADS, 0,
                           stream, (elem *)y, (const elem *)b, rows->expert,
                           rows->n * OC, OC, stride);
        return rc ? rc : grouped(&p, rows, stream);
    }
    for (; !rc && next_expert(&i); i.e++) {
        size_t at = i.e * stride;
        rc = PP_CUDA(linear_fwd)(
            (elem *)y + i.first * OC, (const elem *)x + i.first * C,
            (const elem *)w + at, b ? (const elem *)b + at : NULL, NULL, i.n, C,
            OC, OC, C, stream);
    }
    return rc;
}

PP_GROUPED_BWD_INPUT(PP_CUDA(grouped_bwd_input))
{
    const struct grouped_product p = {
        of_experts(w, stride, PP_CUBLAS_OP_N, C, PP_ELEMENT_TYPE),
        of_rows(dy, OC, PP_CUBLAS_OP_N),
        of_rows(dx, C, PP_CUBLAS_OP_N),
        C,
        0,
        OC,
        0};
    struct each_expert i = {rows, 0, 0, 0};
    int rc = 0;
    if (rows->n && is_grouped(&p, stream))
        return grouped(&p, rows, stream);
    for (; !rc && rows->n && next_expert(&i); i.e++)
        rc = PP_CUDA(linear_bwd_input)(
            (elem *)dx + i.first * C, (const elem *)dy + i.first * OC,
            (const elem *)w + i.e * stride, NULL, i.n, C, OC, C, OC, stream);
    return rc;
}

/* cuBLAS has no grouped product of bf16 whose sums are fp32. */
PP_GROUPED_BWD_WEIGHT(PP_CUDA(grouped_bwd_weight))
{
    const struct grouped_product p = {
        of_rows(x, C, PP_CUBLAS_OP_N),
        of_rows(dy, OC, PP_CUBLAS_OP_T),
        of_experts(dw, stride, PP_CUBLAS_OP_N, C, PP_CUBLAS_R_32F),
        C,
        OC,
        0,
        writes ? 0.0f : 1.0f};
    struct each_expert i = {rows, 0, 0, 0};
    int rc = 0;
    if (rows->n && !db && is_grouped(&p, stream))
        return grouped(&p, rows, stream);
    for (; !rc && rows->n && next_expert(&i); i.e++) {
        size_t at = i.e * stride;
        rc = PP_CUDA(linear_bwd_weight)(
            (float *)dw + at, db ? (float *)db + at : NULL,
            (const elem *)dy + i.first * OC, (const elem *)x + i.first * C, i.n,
            C, OC, OC, C, writes, stream);
    }
    return rc;
}
