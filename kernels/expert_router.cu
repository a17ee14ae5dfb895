/* SPDX-License-Identifier: MIT */
/* expert_router on a GPU: the choice of experts and its gradient. A warp works
 * on one token. Each expert has a block that finds its rows in order, so that
 * no atomics are needed. */
#include "token_warps.cuh"

#define LANE_GROUPS (PP_MOST_EXPERT_GROUPS / PP_WARP)

/* --- the choice --- */

struct best_score {
    float value;
    int at; /* -1: none */
};

/* Returns whether a comes before b: the lowest number first among equals. */
static __device__ inline bool precedes(struct best_score a, struct best_score b)
{
    return a.at >= 0 && (b.at < 0 || a.value > b.value ||
                         (a.value == b.value && a.at < b.at));
}

static __device__ struct best_score warp_first(struct best_score c)
{
    for (int step = PP_WARP / 2; step; step /= 2) {
        struct best_score other = {__shfl_xor_sync(PP_ALL_LANES, c.value, step),
                                   __shfl_xor_sync(PP_ALL_LANES, c.at, step)};
        c = precedes(other, c) ? other : c;
    }
    return c;
}

/* The scores that choose. */
struct expert_scores {
    const float *x;
    const elem *bias; /* or NULL */
};

static __device__ inline float score_at(const struct expert_scores *c, size_t e)
{
    return c->bias ? c->x[e] + to_float(c->bias[e]) : c->x[e];
}

/* Returns the score of n candidates: the largest, or the sum of the two
 * largest. */
static __device__ float best_of_group(const struct expert_scores *c,
                                      size_t first, size_t n, bool two)
{
    float one = score_at(c, first), next = -INFINITY;
    for (size_t e = first + 1; e < first + n; e++) {
        float v = score_at(c, e);
        next = v > one ? one : v > next ? v : next;
        one = v > one ? v : one;
    }
    return two && n > 1 ? one + next : one;
}

/* Returns the best groups as bits. */
static __device__ uint64_t choose_groups(const struct expert_scores *c,
                                         size_t E, const struct pp_router *rule)
{
    size_t G = rule->n_groups, each = E / G;
    float score[LANE_GROUPS];
    struct best_score last = {0, -1};
    uint64_t kept = 0;
    for (int i = 0; i < LANE_GROUPS; i++) {
        size_t g = (size_t)(lane_of() + i * PP_WARP);
        score[i] = g < G ? best_of_group(c, g * each, each, rule->two_best) : 0;
    }
    for (size_t n = 0; n < rule->kept_groups; n++) {
        struct best_score best = {0, -1};
        for (int i = 0; i < LANE_GROUPS; i++) {
            struct best_score g = {score[i], lane_of() + i * PP_WARP};
            if ((size_t)g.at < G && (n == 0 || precedes(last, g)) &&
                precedes(g, best))
                best = g;
        }
        last = warp_first(best);
        kept |= last.at < 0 ? 0 : (uint64_t)1 << last.at;
    }
    return kept;
}

/* Writes the experts with the K largest values, the largest first. Each comes
 * behind the last one in their order. A NaN has no place in it; then any expert
 * is written. */
static __device__ void choose_experts(int32_t *best,
                                      const struct expert_scores *c, size_t E,
                                      size_t K, const struct pp_router *rule)
{
    size_t G = rule->n_groups > 1 ? rule->n_groups : 1, each = E / G;
    uint64_t kept = G > 1 ? choose_groups(c, E, rule) : 1;
    struct best_score last = {0, -1};
    for (size_t j = 0; j < K; j++) {
        struct best_score first = {0, -1};
        for (size_t e = (size_t)lane_of(); e < E; e += PP_WARP) {
            struct best_score x = {score_at(c, e), (int)e};
            if ((kept >> (G > 1 ? e / each : 0) & 1) &&
                (j == 0 || precedes(last, x)) && precedes(x, first))
                first = x;
        }
        last = warp_first(first);
        if (last.at < 0)
            last.at = (int)j;
        if (lane_of() == 0)
            best[j] = last.at;
    }
}

static __global__ void choose_kernel(float *probs, int32_t *row,
                                     const float *logits, const elem *bias,
                                     struct pp_real_tokens tokens, size_t N,
                                     size_t E, size_t K, struct pp_router rule,
                                     bool given)
{
    size_t t = warp_token();
    if (t >= N)
        return;
    const float *x = logits + t * E;
    float *p = probs + t * E;
    float most = rule.sigmoid ? 0 : warp_largest(x, E);
    float sum = rule.sigmoid ? 1 : warp_exp_sum(x, E, most);
    for (size_t e = (size_t)lane_of(); e < E; e += PP_WARP)
        p[e] = rule.sigmoid ? sigmoid(x[e]) : expf(x[e] - most) / sum;
    __syncwarp();
    if (given)
        return;
    /* A softmax keeps the order of the logits. */
    struct expert_scores c = {rule.sigmoid || bias ? p : x, bias};
    if (sequence_of(&tokens, t) >= 0)
        choose_experts(row + t * K, &c, E, K, &rule);
    else
        for (size_t j = (size_t)lane_of(); j < K; j += PP_WARP)
            row[t * K + j] = -1;
}

/* Returns the expert of a choice, which may drop it. */
static __device__ inline int32_t expert_of(int32_t row)
{
    return row < -1 ? -2 - row : row;
}

/* Returns the block that places a choice: that of its expert, or the last one
 * if it is dropped. */
static __device__ inline int place_of(int32_t row)
{
    return row >= 0 ? row : row == -1 ? INT32_MAX : (int)gridDim.x - 1;
}

/* Writes the rows of the expert of this block, and where they start. row (n)
 * has experts. The last block has the dropped choices. */
static __global__ void sort_kernel(int32_t *token, int32_t *expert,
                                   int32_t *starts, const int32_t *row,
                                   size_t n, size_t K)
{
    __shared__ int counts[WARPS];
    int e = (int)blockIdx.x, before, to = 0;
    for (size_t at = 0; at < n; at += THREADS) {
        size_t i = at + threadIdx.x;
        to += count_threads(i < n && place_of(row[i]) < e, counts, &before);
    }
    if (threadIdx.x == 0)
        starts[e] = to;
    for (size_t at = 0; at < n; at += THREADS) {
        size_t i = at + threadIdx.x;
        bool here = i < n && place_of(row[i]) == e;
        int found = count_threads(here, counts, &before);
        if (here) {
            int32_t t = (int32_t)(i / K);
            token[to + before] = row[i] < 0 ? -1 - t : t;
            expert[to + before] = expert_of(row[i]);
        }
        to += found;
    }
    if (threadIdx.x == 0 && blockIdx.x + 1 == gridDim.x)
        starts[e + 1] = to;
}

/* Returns what the scores of a token's experts, whose sum is given, are divided
 * by. */
static __device__ inline float weight_divisor(float sum,
                                              const struct pp_router *rule)
{
    float scale = rule->scale > 0 ? (float)rule->scale : 1;
    return (rule->norm ? sum : 1) / scale;
}

/* Sigmoids may all be 0. */
static __device__ inline float first_sum(const struct pp_router *rule)
{
    return rule->sigmoid ? 1e-20f : 0;
}

/* Returns the first row of token t from `low` to `high`, where tokens ascend.
 * If they are dropped, it is the first one. */
static __device__ int32_t find_token(const int32_t *token, int32_t low,
                                     int32_t high, int32_t t)
{
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int32_t at = token[middle];
        if ((at < 0 ? -1 - at : at) < t)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Replaces the experts of each token by their rows. */
static __global__ void place_kernel(int32_t *row, float *weight,
                                    const float *probs, const int32_t *token,
                                    const int32_t *starts, size_t N, size_t E,
                                    size_t K, struct pp_router rule)
{
    for (size_t t = grid_thread(); t < N; t += grid_threads()) {
        const float *p = probs + t * E;
        int32_t *mine = row + t * K;
        float sum = first_sum(&rule);
        for (size_t j = 0; j < K && mine[0] != -1; j++)
            sum += p[expert_of(mine[j])];
        float by = weight_divisor(sum, &rule);
        int32_t dropped = 0; /* choices of this token */
        for (size_t j = 0; j < K; j++) {
            if (mine[j] == -1)
                continue;
            int32_t e = expert_of(mine[j]);
            size_t at = mine[j] < 0 ? E : (size_t)e;
            int32_t row =
                find_token(token, starts[at], starts[at + 1], (int32_t)t);
            row += mine[j] < 0 ? dropped++ : 0;
            mine[j] = row;
            weight[row] = p[e] / by;
        }
    }
}

PP_ROUTE_FWD(PP_CUDA(route_fwd))
{
    int32_t *starts = (int32_t *)((struct pp_cuda_stream *)stream)->partials;
    if (!N || !K)
        return 0;
    if (E + 1 >= PP_CUDA_PARTIAL_BYTES / sizeof *starts)
        return (int)cudaErrorInvalidValue;
    int rc = PP_LAUNCH(choose_kernel, token_blocks(N), THREADS, 0, stream,
                       (float *)probs, r->row, (const float *)logits,
                       (const elem *)bias, *tokens, N, E, K, *rule, given);
    if (!rc)
        rc = PP_LAUNCH(sort_kernel, (unsigned)E + 1, THREADS, 0, stream,
                       r->token, r->expert, starts, (const int32_t *)r->row,
                       N * K, K);
    return rc ? rc
              : PP_LAUNCH(place_kernel, blocks_for(N, THREADS), THREADS, 0,
                          stream, r->row, (float *)weight, (const float *)probs,
                          (const int32_t *)r->token, (const int32_t *)starts, N,
                          E, K, *rule);
}

/* --- its gradient --- */

/* Each lane computes the sums over the experts of the token, and the gradients
 * of its own experts. */
static __global__ void route_bwd_kernel(elem *dlogits, const float *dweight,
                                        const float *probs, struct pp_routing r,
                                        size_t N, size_t E, size_t K,
                                        struct pp_router rule)
{
    size_t t = warp_token();
    if (t >= N)
        return;
    const float *p = probs + t * E;
    const int32_t *row = r.row + t * K;
    bool real = row[0] >= 0;
    float sum = first_sum(&rule), s = 0, mean = 0;
    for (size_t j = 0; real && j < K; j++)
        sum += p[r.expert[row[j]]];
    float by = weight_divisor(sum, &rule);
    for (size_t j = 0; real && rule.norm && j < K; j++)
        s += dweight[row[j]] * p[r.expert[row[j]]] / sum;
    for (size_t j = 0; real && !rule.sigmoid && j < K; j++)
        mean += (dweight[row[j]] - s) / by * p[r.expert[row[j]]];
    for (size_t e = (size_t)lane_of(); e < E; e += PP_WARP) {
        float d = real ? -mean * p[e] : 0;
        for (size_t j = 0; real && j < K; j++) {
            float dp = (dweight[row[j]] - s) / by;
            float slope = (rule.weighs_input ? 1 : p[e]) * (1 - p[e]);
            if ((size_t)r.expert[row[j]] == e)
                d = rule.sigmoid ? dp * slope : (dp - mean) * p[e];
        }
        store(&dlogits[t * E + e], d);
    }
}

PP_ROUTE_BWD(PP_CUDA(route_bwd))
{
    return N ? PP_LAUNCH(route_bwd_kernel, token_blocks(N), THREADS, 0, stream,
                         (elem *)dlogits, (const float *)dweight,
                         (const float *)probs, *r, N, E, K, *rule)
             : 0;
}
