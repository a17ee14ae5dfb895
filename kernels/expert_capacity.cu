/* SPDX-License-Identifier: MIT */
/* expert_capacity on a GPU: the choices that experts keep. Each expert has a
 * block that goes through the choices in their order, so that no atomics are
 * needed. */
#include "token_warps.cuh"

/* Returns the number of token t among the tokens of all ranks, or -1 for
 * padding. */
static __device__ int32_t number_of(const struct pp_token_numbers *s, size_t t)
{
    int i = sequence_of(&s->tokens, t);
    size_t place = s->tokens.first + t;
    if (i < 0)
        return -1;
    return s->of ? s->whole_cu[s->of[i]] + s->position[place]
                 : s->tokens.cu[i] + (int32_t)place - s->tokens.cu_padded[i];
}

static __global__ void tell_kernel(float *chosen, float *table,
                                   struct pp_routing r, const float *weight,
                                   struct pp_token_numbers token, size_t N,
                                   size_t K)
{
    for (size_t i = grid_thread(); i < N * K; i += grid_threads()) {
        int32_t t = number_of(&token, i / K), row = r.row[i];
        if (t < 0)
            continue;
        size_t at = (size_t)t * K + i % K;
        chosen[at] = (float)(r.expert[row] + 1);
        if (table)
            table[at] = weight[row];
    }
}

static __global__ void mark_kernel(int32_t *row, const int32_t *kept,
                                   struct pp_token_numbers token, size_t N,
                                   size_t K)
{
    for (size_t i = grid_thread(); i < N * K; i += grid_threads()) {
        int32_t t = number_of(&token, i / K);
        row[i] = t < 0 ? -1 : kept[(size_t)t * K + i % K];
    }
}

static __global__ void add_kept_kernel(int32_t *counts, struct pp_routing r,
                                       size_t n)
{
    __shared__ int found[WARPS];
    int e = (int)blockIdx.x, sum = 0, before;
    for (size_t at = 0; at < n; at += THREADS) {
        size_t i = at + threadIdx.x;
        int32_t row = i < n ? r.row[i] : -1;
        bool here = row >= 0 && r.token[row] >= 0 && r.expert[row] == e;
        sum += count_threads(here, found, &before);
    }
    if (threadIdx.x == 0)
        counts[e] += sum;
}

static __global__ void keep_first_kernel(int32_t *kept, const int32_t *before,
                                         const float *chosen, size_t n,
                                         size_t capacity)
{
    __shared__ int found[WARPS];
    int e = (int)blockIdx.x, earlier;
    size_t keeps = (size_t)before[e];
    for (size_t at = 0; at < n; at += THREADS) {
        size_t i = at + threadIdx.x;
        bool here = i < n && chosen[i] == (float)(e + 1);
        int all = count_threads(here, found, &earlier);
        if (here)
            kept[i] = keeps + (size_t)earlier < capacity ? e : -2 - e;
        keeps += (size_t)all;
    }
}

/* --- the largest weights --- */

/* Returns the sum over the block to each of its threads. */
static __device__ int sum_counts(int x, int *sums)
{
    for (int step = PP_WARP / 2; step; step /= 2)
        x += __shfl_xor_sync(PP_ALL_LANES, x, step);
    __syncthreads(); /* threads may still read sums from an earlier call */
    if (lane_of() == 0)
        sums[threadIdx.x / PP_WARP] = x;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += sums[i];
    return sum;
}

/* Returns a number that ascends with x, which is not negative. */
static __device__ inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The choices of one expert. */
struct listed {
    const float *weight;
    const int32_t *order; /* (n) ascending */
    size_t n;
};

static __device__ inline uint32_t bits_at(const struct listed *l, size_t i)
{
    return bits_of(l->weight[l->order[i]]);
}

/* Returns the number of choices whose bits are at least `least`. */
static __device__ size_t count_from(const struct listed *l, uint32_t least,
                                    int *sums)
{
    int found = 0;
    for (size_t i = threadIdx.x; i < l->n; i += THREADS)
        found += bits_at(l, i) >= least;
    return (size_t)sum_counts(found, sums);
}

/* Returns the bits of the k-th largest weight, from the highest bit on. */
static __device__ uint32_t find_largest(const struct listed *l, size_t k,
                                        int *sums)
{
    uint32_t least = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1)
        if (count_from(l, least | bit, sums) >= k)
            least |= bit;
    return least;
}

/* Lists the choices of the expert of this block behind the choices of the
 * experts before it. */
static __device__ struct listed list_choices(int32_t *order,
                                             const float *chosen,
                                             const float *weight, size_t n,
                                             int *sums)
{
    float mine = (float)(blockIdx.x + 1);
    int before, below = 0;
    for (size_t i = threadIdx.x; i < n; i += THREADS)
        below += chosen[i] > 0 && chosen[i] < mine;
    int32_t *list = order + sum_counts(below, sums);
    size_t found = 0;
    for (size_t at = 0; at < n; at += THREADS) {
        size_t i = at + threadIdx.x;
        bool here = i < n && chosen[i] == mine;
        int all = count_threads(here, sums, &before);
        if (here)
            list[found + (size_t)before] = (int32_t)i;
        found += (size_t)all;
    }
    __syncthreads(); /* the list is whole */
    return (struct listed){weight, list, found};
}

static __global__ void keep_largest_kernel(int32_t *kept, int32_t *order,
                                           const float *chosen,
                                           const float *weight, size_t n,
                                           size_t capacity)
{
    __shared__ int sums[WARPS];
    int e = (int)blockIdx.x, earlier;
    const struct listed l = list_choices(order, chosen, weight, n, sums);
    bool drops = l.n > capacity;
    uint32_t least = drops ? find_largest(&l, capacity, sums) : 0;
    /* There may be more with this weight than have room. */
    size_t above =
        drops && least != UINT32_MAX ? count_from(&l, least + 1, sums) : 0;
    size_t equal = 0;
    for (size_t at = 0; at < l.n; at += THREADS) {
        size_t i = at + threadIdx.x;
        uint32_t bits = i < l.n ? bits_at(&l, i) : 0;
        bool ties = i < l.n && bits == least;
        int all = count_threads(ties, sums, &earlier);
        bool keeps = !drops || bits > least ||
                     (ties && above + equal + (size_t)earlier < capacity);
        if (i < l.n)
            kept[l.order[i]] = keeps ? e : -2 - e;
        equal += (size_t)all;
    }
}

/* --- the kernels --- */

PP_TELL_CHOICES(PP_CUDA(tell_choices))
{
    return N && K ? PP_LAUNCH(tell_kernel, blocks_for(N * K, THREADS), THREADS,
                              0, stream, (float *)chosen, (float *)table, *r,
                              (const float *)weight, *token, N, K)
                  : 0;
}

PP_KEEP(PP_CUDA(keep))
{
    if (!E || !n)
        return 0;
    return table ? PP_LAUNCH(keep_largest_kernel, (unsigned)E, THREADS, 0,
                             stream, kept, order, (const float *)chosen,
                             (const float *)table, n, capacity)
                 : PP_LAUNCH(keep_first_kernel, (unsigned)E, THREADS, 0, stream,
                             kept, (const int32_t *)before,
                             (const float *)chosen, n, capacity);
}

PP_MARK_KEPT(PP_CUDA(mark_kept))
{
    return N && K ? PP_LAUNCH(mark_kernel, blocks_for(N * K, THREADS), THREADS,
                              0, stream, row, kept, *token, N, K)
                  : 0;
}

PP_ADD_KEPT(PP_CUDA(add_kept))
{
    return E ? PP_LAUNCH(add_kept_kernel, (unsigned)E, THREADS, 0, stream,
                         counts, *r, N * K)
             : 0;
}
