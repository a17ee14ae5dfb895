/* SPDX-License-Identifier: MIT */
/* swiglu on a GPU. */
#include "device.cuh"

#define THREADS 256

static __device__ inline float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

template <int V>
static __global__ void swiglu_fwd_kernel(elem *y, const elem *gu, size_t N,
                                         size_t C)
{
    size_t width = C / V;
    for (size_t i = grid_thread(); i < N * width; i += grid_threads()) {
        size_t t = i / width, c = i % width * V;
        const elem *row = gu + t * 2 * C + c;
        pack<V> g = *(const pack<V> *)row, u = *(const pack<V> *)(row + C);
        for (int j = 0; j < V; j++) {
            float x = to_float(g.at[j]);
            store(&u.at[j], x * sigmoid(x) * to_float(u.at[j]));
        }
        *(pack<V> *)(y + t * C + c) = u;
    }
}

template <int V>
static __global__ void swiglu_bwd_kernel(elem *dgu, const elem *dy,
                                         const elem *gu, size_t N, size_t C)
{
    size_t width = C / V;
    for (size_t i = grid_thread(); i < N * width; i += grid_threads()) {
        size_t t = i / width, c = i % width * V;
        const elem *row = gu + t * 2 * C + c;
        elem *out = dgu + t * 2 * C + c;
        pack<V> g = *(const pack<V> *)row, u = *(const pack<V> *)(row + C);
        pack<V> d = *(const pack<V> *)(dy + t * C + c);
        for (int j = 0; j < V; j++) {
            float x = to_float(g.at[j]), s = sigmoid(x);
            float by = to_float(d.at[j]), up = to_float(u.at[j]);
            store(&u.at[j], by * x * s);
            store(&g.at[j], by * up * s * (1 + x * (1 - s)));
        }
        *(pack<V> *)out = g;
        *(pack<V> *)(out + C) = u;
    }
}

PP_SWIGLU_FWD(PP_CUDA(swiglu_fwd))
{
    if (!N || !C)
        return 0;
    if (packs(y, C, 0) && packs(gu, C, 0))
        return PP_LAUNCH((swiglu_fwd_kernel<PP_PACK>),
                         blocks_for(N * C / PP_PACK, THREADS), THREADS, 0,
                         stream, (elem *)y, (const elem *)gu, N, C);
    return PP_LAUNCH((swiglu_fwd_kernel<1>), blocks_for(N * C, THREADS),
                     THREADS, 0, stream, (elem *)y, (const elem *)gu, N, C);
}

PP_SWIGLU_BWD(PP_CUDA(swiglu_bwd))
{
    if (!N || !C)
        return 0;
    if (packs(dgu, C, 0) && packs(dy, C, 0) && packs(gu, C, 0))
        return PP_LAUNCH((swiglu_bwd_kernel<PP_PACK>),
                         blocks_for(N * C / PP_PACK, THREADS), THREADS, 0,
                         stream, (elem *)dgu, (const elem *)dy,
                         (const elem *)gu, N, C);
    return PP_LAUNCH((swiglu_bwd_kernel<1>), blocks_for(N * C, THREADS),
                     THREADS, 0, stream, (elem *)dgu, (const elem *)dy,
                     (const elem *)gu, N, C);
}
