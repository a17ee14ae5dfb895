/* SPDX-License-Identifier: MIT */
/* rmsnorm on a GPU. A warp, or for wide groups a block, holds one group. */
#include "columns.cuh"
#include "cuda.cuh"
#include "device.cuh"

#define THREADS 256
#define WIDE 1024 /* elements from which a group gets a block */

/* The group of this thread's team, its place in the team, and where the
 * group's row and statistics are. */
struct place {
    size_t group, row, column, lane;
    bool inside;
};

template <int TEAM>
static __device__ inline struct place place(size_t N, size_t G, size_t C)
{
    struct place p;
    p.group = (size_t)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    p.inside = p.group < N * G;
    p.row = p.group / G;
    p.column = p.group % G * C;
    p.lane = threadIdx.x % TEAM;
    return p;
}

template <int TEAM>
static __global__ void fwd_kernel(elem *y, float *rstd, const elem *x,
                                  const elem *w, size_t N, size_t G, size_t C,
                                  size_t ldy, size_t ldr, size_t ldx, float eps)
{
    __shared__ float shared[THREADS / PP_WARP];
    struct place p = place<TEAM>(N, G, C);
    const elem *in = x + p.row * ldx + p.column;
    elem *out = y + p.row * ldy + p.column;
    float sum = 0;
    for (size_t i = p.lane; p.inside && i < C; i += TEAM)
        sum += to_float(in[i]) * to_float(in[i]);
    sum = team_sum<TEAM>(sum, shared);
    if (!p.inside)
        return;
    float r = 1 / sqrtf(sum / (float)C + eps);
    if (p.lane == 0)
        rstd[p.row * ldr + p.group % G] = r;
    for (size_t i = p.lane; i < C; i += TEAM)
        store(&out[i], to_float(in[i]) * r * to_float(w[i]));
}

template <int TEAM>
static __global__ void
bwd_input_kernel(elem *dx, const elem *dy, const elem *x, const float *rstd,
                 const elem *w, size_t N, size_t G, size_t C, size_t lddx,
                 size_t lddy, size_t ldx, size_t ldr)
{
    __shared__ float shared[THREADS / PP_WARP];
    struct place p = place<TEAM>(N, G, C);
    const elem *in = x + p.row * ldx + p.column;
    const elem *d = dy + p.row * lddy + p.column;
    elem *out = dx + p.row * lddx + p.column;
    float sum = 0;
    for (size_t i = p.lane; p.inside && i < C; i += TEAM)
        sum += to_float(d[i]) * to_float(w[i]) * to_float(in[i]);
    sum = team_sum<TEAM>(sum, shared);
    if (!p.inside)
        return;
    float r = rstd[p.row * ldr + p.group % G], mean = sum * r * r / (float)C;
    for (size_t i = p.lane; i < C; i += TEAM)
        store(&out[i],
              r * (to_float(d[i]) * to_float(w[i]) - to_float(in[i]) * mean));
}

/* What row i, a group, adds to the gradient of the weight. */
struct weight_term {
    const elem *dy, *x;
    const float *rstd;
    size_t G, C, lddy, ldx, ldr;

    __device__ float at(size_t i, size_t c) const
    {
        size_t t = i / G, g = i % G;
        return to_float(dy[t * lddy + g * C + c]) *
               (to_float(x[t * ldx + g * C + c]) * rstd[t * ldr + g]);
    }
};

PP_RMSNORM_FWD(PP_CUDA(rmsnorm_fwd))
{
    size_t groups = N * G;
    if (!groups)
        return 0;
    if (C < WIDE)
        return PP_LAUNCH((fwd_kernel<PP_WARP>), (unsigned)((groups + 7) / 8),
                         THREADS, 0, stream, (elem *)y, (float *)rstd,
                         (const elem *)x, (const elem *)w, N, G, C, ldy, ldr,
                         ldx, (float)eps);
    return PP_LAUNCH((fwd_kernel<THREADS>), (unsigned)groups, THREADS, 0,
                     stream, (elem *)y, (float *)rstd, (const elem *)x,
                     (const elem *)w, N, G, C, ldy, ldr, ldx, (float)eps);
}

PP_RMSNORM_BWD_INPUT(PP_CUDA(rmsnorm_bwd_input))
{
    size_t groups = N * G;
    if (!groups)
        return 0;
    if (C < WIDE)
        return PP_LAUNCH((bwd_input_kernel<PP_WARP>),
                         (unsigned)((groups + 7) / 8), THREADS, 0, stream,
                         (elem *)dx, (const elem *)dy, (const elem *)x,
                         (const float *)rstd, (const elem *)w, N, G, C, lddx,
                         lddy, ldx, ldr);
    return PP_LAUNCH((bwd_input_kernel<THREADS>), (unsigned)groups, THREADS, 0,
                     stream, (elem *)dx, (const elem *)dy, (const elem *)x,
                     (const float *)rstd, (const elem *)w, N, G, C, lddx, lddy,
                     ldx, ldr);
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
