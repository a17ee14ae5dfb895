/* SPDX-License-Identifier: MIT */
/* layernorm on a GPU. A team of threads, a warp or for wide rows a block, works
 * on one row. */
#include "columns.cuh"
#include "device.cuh"

#define THREADS 256
#define WIDE 2048 /* width of the narrowest row that has a block */

/* Returns entries of a weight or a bias, or a constant without one. */
template <int V>
static __device__ inline pack<V> entries(const elem *w, size_t i, float without)
{
    pack<V> p;
    if (w)
        return ((const pack<V> *)w)[i];
    for (int j = 0; j < V; j++)
        store(&p.at[j], without);
    return p;
}

/* All threads take part in the sums, also threads beyond the last row. */
template <int TEAM, int V>
static __global__ void layernorm_fwd_kernel(elem *y, float *mean, float *rstd,
                                            const elem *x, const elem *w,
                                            const elem *b, const elem *rest,
                                            size_t N, size_t C, float eps)
{
    __shared__ float shared[THREADS / PP_WARP];
    size_t row = team_row<THREADS, TEAM>(), lane = threadIdx.x % TEAM;
    bool inside = row < N;
    const pack<V> *in = (const pack<V> *)(x + row * C);
    float sum = 0, squares = 0;
    for (size_t i = lane; inside && i < C / V; i += TEAM) {
        pack<V> a = in[i];
        for (int j = 0; j < V; j++)
            sum += to_float(a.at[j]);
    }
    float m = team_sum<TEAM>(sum, shared) / (float)C;
    for (size_t i = lane; inside && i < C / V; i += TEAM) {
        pack<V> a = in[i];
        for (int j = 0; j < V; j++)
            squares += (to_float(a.at[j]) - m) * (to_float(a.at[j]) - m);
    }
    squares = team_sum<TEAM>(squares, shared);
    if (!inside)
        return;
    float r = 1 / sqrtf(squares / (float)C + eps);
    if (lane == 0) {
        mean[row] = m;
        rstd[row] = r;
    }
    for (size_t i = lane; i < C / V; i += TEAM) {
        pack<V> a = in[i], by = entries<V>(w, i, 1), more = entries<V>(b, i, 0);
        pack<V> e = rest_of<V>(rest, row * C, i);
        for (int j = 0; j < V; j++)
            store(&a.at[j], (to_float(a.at[j]) - m) * r * to_float(by.at[j]) +
                                to_float(more.at[j]) + to_float(e.at[j]));
        ((pack<V> *)(y + row * C))[i] = a;
    }
}

template <int TEAM, int V>
static __global__ void
layernorm_bwd_input_kernel(elem *dx, const elem *dy, const elem *x,
                           const float *mean, const float *rstd, const elem *w,
                           const elem *more, size_t N, size_t C)
{
    __shared__ float shared[THREADS / PP_WARP];
    size_t row = team_row<THREADS, TEAM>(), lane = threadIdx.x % TEAM;
    bool inside = row < N;
    const pack<V> *in = (const pack<V> *)(x + row * C);
    const pack<V> *d = (const pack<V> *)(dy + row * C);
    float m = inside ? mean[row] : 0, r = inside ? rstd[row] : 0;
    float sum = 0, normed = 0;
    for (size_t i = lane; inside && i < C / V; i += TEAM) {
        pack<V> a = in[i], e = entries<V>(w, i, 1), g = d[i];
        for (int j = 0; j < V; j++) {
            float product = to_float(g.at[j]) * to_float(e.at[j]);
            sum += product;
            normed += product * (to_float(a.at[j]) - m) * r;
        }
    }
    sum = team_sum<TEAM>(sum, shared) / (float)C;
    normed = team_sum<TEAM>(normed, shared) / (float)C;
    if (!inside)
        return;
    for (size_t i = lane; i < C / V; i += TEAM) {
        pack<V> a = in[i], e = entries<V>(w, i, 1), g = d[i];
        pack<V> z = rest_of<V>(more, row * C, i);
        for (int j = 0; j < V; j++)
            store(&a.at[j], r * (to_float(g.at[j]) * to_float(e.at[j]) - sum -
                                 (to_float(a.at[j]) - m) * r * normed) +
                                to_float(z.at[j]));
        ((pack<V> *)(dx + row * C))[i] = a;
    }
}

/* Terms of row t in the gradients of the weight and the bias. */
struct layernorm_weight_term {
    const elem *dy, *x;
    const float *mean, *rstd;
    size_t C;

    __device__ float at(size_t t, size_t c) const
    {
        return to_float(dy[t * C + c]) *
               ((to_float(x[t * C + c]) - mean[t]) * rstd[t]);
    }
};

struct layernorm_bias_term {
    const elem *dy;
    size_t C;

    __device__ float at(size_t t, size_t c) const
    {
        return to_float(dy[t * C + c]);
    }
};

static unsigned layernorm_blocks(size_t N, size_t C)
{
    size_t teams = C < WIDE ? THREADS / PP_WARP : 1;
    return (unsigned)((N + teams - 1) / teams);
}

PP_LAYERNORM_FWD(PP_CUDA(layernorm_fwd))
{
    if (!N)
        return 0;
    bool packed = packs(y, C, 0) && packs(x, C, 0) && packs(w, C, 0) &&
                  packs(b, C, 0) && packs(r, C, 0);
    auto narrow = packed ? layernorm_fwd_kernel<PP_WARP, PP_PACK>
                         : layernorm_fwd_kernel<PP_WARP, 1>;
    auto wide = packed ? layernorm_fwd_kernel<THREADS, PP_PACK>
                       : layernorm_fwd_kernel<THREADS, 1>;
    return PP_LAUNCH((C < WIDE ? narrow : wide), layernorm_blocks(N, C),
                     THREADS, 0, stream, (elem *)y, (float *)mean,
                     (float *)rstd, (const elem *)x, (const elem *)w,
                     (const elem *)b, (const elem *)r, N, C, (float)eps);
}

PP_LAYERNORM_BWD_INPUT(PP_CUDA(layernorm_bwd_input))
{
    if (!N)
        return 0;
    bool packed = packs(dx, C, 0) && packs(dy, C, 0) && packs(x, C, 0) &&
                  packs(w, C, 0) && packs(r, C, 0);
    auto narrow = packed ? layernorm_bwd_input_kernel<PP_WARP, PP_PACK>
                         : layernorm_bwd_input_kernel<PP_WARP, 1>;
    auto wide = packed ? layernorm_bwd_input_kernel<THREADS, PP_PACK>
                       : layernorm_bwd_input_kernel<THREADS, 1>;
    return PP_LAUNCH((C < WIDE ? narrow : wide), layernorm_blocks(N, C),
                     THREADS, 0, stream, (elem *)dx, (const elem *)dy,
                     (const elem *)x, (const float *)mean, (const float *)rstd,
                     (const elem *)w, (const elem *)r, N, C);
}

PP_LAYERNORM_BWD_WEIGHT(PP_CUDA(layernorm_bwd_weight))
{
    struct layernorm_weight_term weight = {(const elem *)dy, (const elem *)x,
                                           (const float *)mean,
                                           (const float *)rstd, C};
    struct layernorm_bias_term bias = {(const elem *)dy, C};
    int rc = dw ? add_columns((float *)dw, weight, N, C, stream) : 0;
    return rc || !db ? rc : add_columns((float *)db, bias, N, C, stream);
}
