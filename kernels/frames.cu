/* SPDX-License-Identifier: MIT */
/* frames on a GPU. */
#include "device.cuh"

#include <math.h>

#define THREADS 256
#define TAPS 3

static __device__ inline bool has_frames(const int32_t *kind, size_t t)
{
    return kind[t] >= 0;
}

static __device__ inline bool goes_on(const int32_t *kind, size_t t, size_t N)
{
    return t + 1 < N && has_frames(kind, t + 1) &&
           !(kind[t + 1] & PP_ROW_BEGINS);
}

static __device__ inline float value_if(bool is_there, const elem *at)
{
    return is_there ? to_float(*at) : 0;
}

/* Each thread has one column of a row. */
static __global__ void taps_fwd_kernel(elem *y, const elem *x,
                                       const int32_t *kind, size_t N, size_t C)
{
    for (size_t i = grid_thread(); i < N * C; i += grid_threads()) {
        size_t t = i / C, c = i % C;
        bool here = has_frames(kind, t);
        const elem *even = x + t * 2 * C + c;
        elem *out = y + i * TAPS;
        store(&out[0], value_if(here && !(kind[t] & PP_ROW_BEGINS), even - C));
        store(&out[1], value_if(here, even));
        store(&out[2], value_if(here && !(kind[t] & PP_ROW_HALF), even + C));
    }
}

static __global__ void taps_bwd_kernel(elem *dx, const elem *dy,
                                       const int32_t *kind, size_t N, size_t C)
{
    for (size_t i = grid_thread(); i < N * C; i += grid_threads()) {
        size_t t = i / C, c = i % C;
        bool here = has_frames(kind, t);
        const elem *in = dy + i * TAPS;
        elem *even = dx + t * 2 * C + c;
        float odd = value_if(here, in + 2) +
                    value_if(here && goes_on(kind, t, N), in + C * TAPS);
        store(even, value_if(here, in + 1));
        store(even + C, here && kind[t] & PP_ROW_HALF ? 0 : odd);
    }
}

static __global__ void sinusoids_kernel(elem *y, size_t N, size_t C)
{
    size_t half = C / 2;
    for (size_t i = grid_thread(); i < N * half; i += grid_threads()) {
        size_t p = i / half, c = i % half;
        double rate = exp(-log(10000.0) * (double)c / (double)(half - 1));
        store(&y[p * C + c], (float)sin((double)p * rate));
        store(&y[p * C + half + c], (float)cos((double)p * rate));
    }
}

PP_TAPS(PP_CUDA(taps_fwd))
{
    if (!N || !C)
        return 0;
    return PP_LAUNCH(taps_fwd_kernel, blocks_for(N * C, THREADS), THREADS, 0,
                     stream, (elem *)y, (const elem *)x, kind, N, C);
}

PP_TAPS(PP_CUDA(taps_bwd))
{
    if (!N || !C)
        return 0;
    return PP_LAUNCH(taps_bwd_kernel, blocks_for(N * C, THREADS), THREADS, 0,
                     stream, (elem *)y, (const elem *)x, kind, N, C);
}

PP_SINUSOIDS(PP_CUDA(sinusoids))
{
    if (!N || C < 2)
        return 0;
    return PP_LAUNCH(sinusoids_kernel, blocks_for(N * C / 2, THREADS), THREADS,
                     0, stream, (elem *)y, N, C);
}
