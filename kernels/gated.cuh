/* SPDX-License-Identifier: MIT */
/* gated - y = f(gate) up on a GPU, and its gradient: swiglu and geglu. */
#ifndef PP_KERNELS_GATED_CUH
#define PP_KERNELS_GATED_CUH

#include "device.cuh"

#define PP_GATED_THREADS 256

/* FORM has static device functions `float value(float x)`, which is f, and
 * `float slope(float x)`, its derivative. */
template <int V, class FORM>
static __global__ void gated_fwd_kernel(elem *y, const elem *gu, size_t N,
                                        size_t C)
{
    size_t width = C / V;
    for (size_t i = grid_thread(); i < N * width; i += grid_threads()) {
        size_t t = i / width, c = i % width * V;
        const elem *row = gu + t * 2 * C + c;
        pack<V> g = *(const pack<V> *)row, u = *(const pack<V> *)(row + C);
        for (int j = 0; j < V; j++)
            store(&u.at[j], FORM::value(to_float(g.at[j])) * to_float(u.at[j]));
        *(pack<V> *)(y + t * C + c) = u;
    }
}

template <int V, class FORM>
static __global__ void gated_bwd_kernel(elem *dgu, const elem *dy,
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
            float x = to_float(g.at[j]), up = to_float(u.at[j]);
            float by = to_float(d.at[j]);
            store(&u.at[j], by * FORM::value(x));
            store(&g.at[j], by * up * FORM::slope(x));
        }
        *(pack<V> *)out = g;
        *(pack<V> *)(out + C) = u;
    }
}

template <class FORM>
static int launch_gated_fwd(void *y, const void *gu, size_t N, size_t C,
                            void *stream)
{
    bool packed = packs(y, C, 0) && packs(gu, C, 0);
    auto kernel =
        packed ? gated_fwd_kernel<PP_PACK, FORM> : gated_fwd_kernel<1, FORM>;
    size_t n = N * C / (packed ? PP_PACK : 1);
    return n ? PP_LAUNCH(kernel, blocks_for(n, PP_GATED_THREADS),
                         PP_GATED_THREADS, 0, stream, (elem *)y,
                         (const elem *)gu, N, C)
             : 0;
}

template <class FORM>
static int launch_gated_bwd(void *dgu, const void *dy, const void *gu, size_t N,
                            size_t C, void *stream)
{
    bool packed = packs(dgu, C, 0) && packs(dy, C, 0) && packs(gu, C, 0);
    auto kernel =
        packed ? gated_bwd_kernel<PP_PACK, FORM> : gated_bwd_kernel<1, FORM>;
    size_t n = N * C / (packed ? PP_PACK : 1);
    return n ? PP_LAUNCH(kernel, blocks_for(n, PP_GATED_THREADS),
                         PP_GATED_THREADS, 0, stream, (elem *)dgu,
                         (const elem *)dy, (const elem *)gu, N, C)
             : 0;
}

#endif
