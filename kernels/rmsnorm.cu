/* SPDX-License-Identifier: MIT */
/* rmsnorm on a GPU. A team of threads, a warp or for wide groups a block, works
 * on one group. */
#include "columns.cuh"
#include "device.cuh"

#define THREADS 256
#define WIDE 2048 /* width of the narrowest group that has a block */

/* The group of this thread's team, the row and column where the group begins,
 * and the thread's index in the team. */
struct norm_position {
    size_t group, row, column, lane;
    bool inside;
};

template <int TEAM>
static __device__ inline struct norm_position
norm_position_of(size_t N, size_t G, size_t C)
{
    struct norm_position p;
    p.group = (size_t)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    p.inside = p.group < N * G;
    p.row = p.group / G;
    p.column = p.group % G * C;
    p.lane = threadIdx.x % TEAM;
    return p;
}

/* A thread adds the sums of all ranks, and each of its team gets the same. */
static __device__ inline float sum_of_ranks(struct pp_norm_sums s, size_t group)
{
    float sum = 0;
    for (size_t i = 0; i < s.n; i++)
        sum += ((const float *)s.at)[i * s.stride + group];
    return sum;
}

/* Sums of a kernel that computes its own. */
static struct pp_norm_sums sums_of(const struct pp_norm_sums *s, size_t C)
{
    struct pp_norm_sums none = {NULL, 0, 0, C};
    return s ? *s : none;
}

/* Sums a b, or with w a b (shift + w). */
template <int TEAM>
static __global__ void rmsnorm_sums_kernel(float *sums, const elem *a,
                                           const elem *b, const elem *w,
                                           size_t N, size_t G, size_t C,
                                           size_t lda, size_t ldb, float shift)
{
    __shared__ float shared[THREADS / PP_WARP];
    struct norm_position p = norm_position_of<TEAM>(N, G, C);
    const elem *one = a + p.row * lda + p.column;
    const elem *two = b + p.row * ldb + p.column;
    float sum = 0;
    for (size_t i = p.lane; p.inside && i < C; i += TEAM)
        sum += to_float(one[i]) * (w ? shift + to_float(w[i]) : 1) *
               to_float(two[i]);
    sum = team_sum<TEAM>(sum, shared);
    if (p.inside && p.lane == 0)
        sums[p.group] = sum;
}

template <int TEAM, int V>
static __global__ void
rmsnorm_fwd_kernel(elem *y, float *rstd, const elem *x, const elem *w,
                   const elem *more, size_t N, size_t G, size_t C, size_t ldy,
                   size_t ldr, size_t ldx, float shift, float eps,
                   struct pp_norm_sums sums)
{
    __shared__ float shared[THREADS / PP_WARP];
    struct norm_position p = norm_position_of<TEAM>(N, G, C);
    const pack<V> *in = (const pack<V> *)(x + p.row * ldx + p.column);
    size_t at = p.row * ldy + p.column;
    pack<V> *out = (pack<V> *)(y + at);
    float sum = 0;
    for (size_t i = p.lane; !sums.n && p.inside && i < C / V; i += TEAM) {
        pack<V> a = in[i];
        for (int j = 0; j < V; j++)
            sum += to_float(a.at[j]) * to_float(a.at[j]);
    }
    sum = team_sum<TEAM>(sum, shared);
    if (!p.inside)
        return;
    sum = sums.n ? sum_of_ranks(sums, p.group) : sum;
    float r = 1 / sqrtf(sum / (float)sums.C + eps);
    if (p.lane == 0)
        rstd[p.row * ldr + p.group % G] = r;
    for (size_t i = p.lane; i < C / V; i += TEAM) {
        pack<V> a = in[i], by = rest_of<V>(w, 0, i);
        pack<V> e = rest_of<V>(more, at, i);
        for (int j = 0; j < V; j++)
            store(&a.at[j],
                  to_float(a.at[j]) * r * (shift + to_float(by.at[j])) +
                      to_float(e.at[j]));
        out[i] = a;
    }
}

template <int TEAM, int V>
static __global__ void rmsnorm_bwd_input_kernel(
    elem *dx, const elem *dy, const elem *x, const float *rstd, const elem *w,
    const elem *more, size_t N, size_t G, size_t C, size_t lddx, size_t lddy,
    size_t ldx, size_t ldr, float shift, struct pp_norm_sums sums)
{
    __shared__ float shared[THREADS / PP_WARP];
    struct norm_position p = norm_position_of<TEAM>(N, G, C);
    const pack<V> *in = (const pack<V> *)(x + p.row * ldx + p.column);
    const pack<V> *d = (const pack<V> *)(dy + p.row * lddy + p.column);
    size_t at = p.row * lddx + p.column;
    pack<V> *out = (pack<V> *)(dx + at);
    float sum = 0;
    for (size_t i = p.lane; !sums.n && p.inside && i < C / V; i += TEAM) {
        pack<V> a = in[i], b = rest_of<V>(w, 0, i), c = d[i];
        for (int j = 0; j < V; j++)
            sum += to_float(c.at[j]) * (shift + to_float(b.at[j])) *
                   to_float(a.at[j]);
    }
    sum = team_sum<TEAM>(sum, shared);
    if (!p.inside)
        return;
    sum = sums.n ? sum_of_ranks(sums, p.group) : sum;
    float r = rstd[p.row * ldr + p.group % G];
    float mean = sum * r * r / (float)sums.C;
    for (size_t i = p.lane; i < C / V; i += TEAM) {
        pack<V> a = in[i], b = rest_of<V>(w, 0, i), c = d[i];
        pack<V> e = rest_of<V>(more, at, i);
        for (int j = 0; j < V; j++)
            store(&a.at[j],
                  r * (to_float(c.at[j]) * (shift + to_float(b.at[j])) -
                       to_float(a.at[j]) * mean) +
                      to_float(e.at[j]));
        out[i] = a;
    }
}

/* Term of group i in the gradient of the weight. */
struct weight_term {
    const elem *dy, *x;
    const float *rstd;
    size_t G, C, lddy, ldx, ldr;

    __device__ float at(size_t i, size_t c) const
    {
        size_t t = G == 1 ? i : i / G, g = i - t * G;
        return to_float(dy[t * lddy + g * C + c]) *
               (to_float(x[t * ldx + g * C + c]) * rstd[t * ldr + g]);
    }
};

/* Number of blocks for groups of C elements. */
static unsigned norm_blocks(size_t groups, size_t C)
{
    size_t teams = C < WIDE ? THREADS / PP_WARP : 1;
    return (unsigned)((groups + teams - 1) / teams);
}

PP_RMSNORM_SUMS(PP_CUDA(rmsnorm_sums))
{
    if (!N || !G)
        return 0;
    auto kernel =
        C < WIDE ? rmsnorm_sums_kernel<PP_WARP> : rmsnorm_sums_kernel<THREADS>;
    return PP_LAUNCH(kernel, norm_blocks(N * G, C), THREADS, 0, stream,
                     (float *)sums, (const elem *)a, (const elem *)b,
                     (const elem *)w, N, G, C, lda, ldb, (float)shift);
}

PP_RMSNORM_FWD(PP_CUDA(rmsnorm_fwd))
{
    if (!N || !G)
        return 0;
    bool packed = packs(y, C, ldy) && packs(x, C, ldx) && packs(w, C, 0) &&
                  packs(r, C, ldy);
    auto narrow = packed ? rmsnorm_fwd_kernel<PP_WARP, PP_PACK>
                         : rmsnorm_fwd_kernel<PP_WARP, 1>;
    auto wide = packed ? rmsnorm_fwd_kernel<THREADS, PP_PACK>
                       : rmsnorm_fwd_kernel<THREADS, 1>;
    return PP_LAUNCH((C < WIDE ? narrow : wide), norm_blocks(N * G, C), THREADS,
                     0, stream, (elem *)y, (float *)rstd, (const elem *)x,
                     (const elem *)w, (const elem *)r, N, G, C, ldy, ldr, ldx,
                     (float)shift, (float)eps, sums_of(sums, C));
}

PP_RMSNORM_BWD_INPUT(PP_CUDA(rmsnorm_bwd_input))
{
    if (!N || !G)
        return 0;
    bool packed = packs(dx, C, lddx) && packs(dy, C, lddy) &&
                  packs(x, C, ldx) && packs(w, C, 0) && packs(r, C, lddx);
    auto narrow = packed ? rmsnorm_bwd_input_kernel<PP_WARP, PP_PACK>
                         : rmsnorm_bwd_input_kernel<PP_WARP, 1>;
    auto wide = packed ? rmsnorm_bwd_input_kernel<THREADS, PP_PACK>
                       : rmsnorm_bwd_input_kernel<THREADS, 1>;
    return PP_LAUNCH((C < WIDE ? narrow : wide), norm_blocks(N * G, C), THREADS,
                     0, stream, (elem *)dx, (const elem *)dy, (const elem *)x,
                     (const float *)rstd, (const elem *)w, (const elem *)r, N,
                     G, C, lddx, lddy, ldx, ldr, (float)shift,
                     sums_of(sums, C));
}

PP_RMSNORM_BWD_WEIGHT(PP_CUDA(rmsnorm_bwd_weight))
{
    struct weight_term term = {(const elem *)dy,
                               (const elem *)x,
                               (const float *)rstd,
                               G,
                               C,
                               lddy,
                               ldx,
                               ldr};
    return add_columns((float *)dw, term, N * G, C, stream);
}
