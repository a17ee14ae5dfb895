/* SPDX-License-Identifier: MIT */
/* rope on a GPU. The tables are float for both element types. */
#include "device.cuh"

#define THREADS 256

/* Each thread rotates V pairs (i, i + HD / 2) of one head of one row. */
template <int V>
static __global__ void rope_kernel(elem *x, const float *cos, const float *sin,
                                   const int32_t *position, size_t N, size_t G,
                                   size_t half, size_t ldx, float direction)
{
    size_t width = half / V;
    for (size_t i = grid_thread(); i < N * G * width; i += grid_threads()) {
        size_t t = i / (G * width), g = i / width % G, c = i % width * V;
        size_t angle = (size_t)position[t] * half + c;
        elem *at = x + t * ldx + g * 2 * half + c;
        pack<V> low = *(pack<V> *)at, high = *(pack<V> *)(at + half);
        floats<V> cosine = *(const floats<V> *)(cos + angle);
        floats<V> sine = *(const floats<V> *)(sin + angle);
        for (int j = 0; j < V; j++) {
            float a = to_float(low.at[j]), b = to_float(high.at[j]);
            float co = cosine.at[j], si = direction * sine.at[j];
            store(&low.at[j], a * co - b * si);
            store(&high.at[j], b * co + a * si);
        }
        *(pack<V> *)at = low;
        *(pack<V> *)(at + half) = high;
    }
}

PP_ROPE(PP_CUDA(rope))
{
    size_t half = HD / 2;
    if (!N || !G || !half)
        return 0;
    if (packs(x, half, ldx) && floats_aligned(cos) && floats_aligned(sin))
        return PP_LAUNCH(
            (rope_kernel<PP_PACK>), blocks_for(N * G * half / PP_PACK, THREADS),
            THREADS, 0, stream, (elem *)x, (const float *)cos,
            (const float *)sin, position, N, G, half, ldx, (float)direction);
    return PP_LAUNCH((rope_kernel<1>), blocks_for(N * G * half, THREADS),
                     THREADS, 0, stream, (elem *)x, (const float *)cos,
                     (const float *)sin, position, N, G, half, ldx,
                     (float)direction);
}
