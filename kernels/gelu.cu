/* SPDX-License-Identifier: MIT */
/* gelu on a GPU; gelu.c has the formulas. */
#include "device.cuh"

#define THREADS 256
#define ROOT 0.7978845608028654f
#define CUBE 0.044715f
#define ROOT_HALF 0.7071067811865476f
#define DENSITY 0.3989422804014327f

/* Returns the sigmoid of 2 u. */
static __device__ inline float tanh_part(float x)
{
    return 1 / (1 + expf(-2 * ROOT * (x + CUBE * x * x * x)));
}

static __device__ inline float erf_part(float x)
{
    return 0.5f * (1 + erff(x * ROOT_HALF));
}

template <int V, bool EXACT>
static __global__ void gelu_fwd_kernel(elem *y, const elem *x, size_t n)
{
    for (size_t i = grid_thread(); i < n / V; i += grid_threads()) {
        pack<V> a = ((const pack<V> *)x)[i];
        for (int j = 0; j < V; j++) {
            float v = to_float(a.at[j]);
            store(&a.at[j], v * (EXACT ? erf_part(v) : tanh_part(v)));
        }
        ((pack<V> *)y)[i] = a;
    }
}

template <int V, bool EXACT>
static __global__ void gelu_bwd_kernel(elem *dx, const elem *dy, const elem *x,
                                       size_t n)
{
    for (size_t i = grid_thread(); i < n / V; i += grid_threads()) {
        pack<V> a = ((const pack<V> *)x)[i], d = ((const pack<V> *)dy)[i];
        for (int j = 0; j < V; j++) {
            float v = to_float(a.at[j]), s = tanh_part(v);
            float slope = 2 * ROOT * (1 + 3 * CUBE * v * v);
            float by = EXACT ? erf_part(v) + v * DENSITY * expf(-0.5f * v * v)
                             : s + v * s * (1 - s) * slope;
            store(&a.at[j], to_float(d.at[j]) * by);
        }
        ((pack<V> *)dx)[i] = a;
    }
}

PP_GELU_FWD(PP_CUDA(gelu_fwd))
{
    if (!n)
        return 0;
    bool packed = packs(y, n, 0) && packs(x, n, 0);
    auto wide = exact ? gelu_fwd_kernel<PP_PACK, true>
                      : gelu_fwd_kernel<PP_PACK, false>;
    auto narrow = exact ? gelu_fwd_kernel<1, true> : gelu_fwd_kernel<1, false>;
    return PP_LAUNCH((packed ? wide : narrow),
                     blocks_for(packed ? n / PP_PACK : n, THREADS), THREADS, 0,
                     stream, (elem *)y, (const elem *)x, n);
}

PP_GELU_BWD(PP_CUDA(gelu_bwd))
{
    if (!n)
        return 0;
    bool packed = packs(dx, n, 0) && packs(dy, n, 0) && packs(x, n, 0);
    auto wide = exact ? gelu_bwd_kernel<PP_PACK, true>
                      : gelu_bwd_kernel<PP_PACK, false>;
    auto narrow = exact ? gelu_bwd_kernel<1, true> : gelu_bwd_kernel<1, false>;
    return PP_LAUNCH((packed ? wide : narrow),
                     blocks_for(packed ? n / PP_PACK : n, THREADS), THREADS, 0,
                     stream, (elem *)dx, (const elem *)dy, (const elem *)x, n);
}
