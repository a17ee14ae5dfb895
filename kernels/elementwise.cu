/* SPDX-License-Identifier: MIT */
/* elementwise, rope and swiglu on a GPU. The rotary tables are float for both
 * element types. */
#include "device.cuh"
#include "gated.cuh"

#include <math.h>

#define THREADS 256
#define MAX_PAIRS 128 /* of a head with several positions */

template <int V>
static __global__ void add_kernel(elem *y, const elem *a, const elem *b,
                                  size_t n)
{
    for (size_t i = grid_thread(); i < n / V; i += grid_threads()) {
        pack<V> x = ((const pack<V> *)a)[i], z = ((const pack<V> *)b)[i];
        for (int j = 0; j < V; j++)
            store(&x.at[j], to_float(x.at[j]) + to_float(z.at[j]));
        ((pack<V> *)y)[i] = x;
    }
}

static __global__ void add_gradient_kernel(float *y, const float *a,
                                           const float *b, size_t n)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        y[i] = a[i] + b[i];
}

template <int V>
static __global__ void copy_kernel(elem *y, const elem *x, size_t N, size_t C,
                                   size_t ldy, size_t ldx)
{
    size_t width = C / V;
    for (size_t i = grid_thread(); i < N * width; i += grid_threads()) {
        size_t t = i / width, c = i % width * V;
        *(pack<V> *)(y + t * ldy + c) = *(const pack<V> *)(x + t * ldx + c);
    }
}

template <int V> static __global__ void zero_kernel(elem *y, size_t n)
{
    pack<V> zero;
    for (int j = 0; j < V; j++)
        store(&zero.at[j], 0);
    for (size_t i = grid_thread(); i < n / V; i += grid_threads())
        ((pack<V> *)y)[i] = zero;
}

static __global__ void scale_kernel(elem *y, float factor, size_t N, size_t C,
                                    size_t ldy)
{
    for (size_t i = grid_thread(); i < N * C; i += grid_threads()) {
        elem *at = y + i / C * ldy + i % C;
        store(at, to_float(*at) * factor);
    }
}

static __global__ void softcap_kernel(elem *y, float cap, size_t n)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        store(&y[i], cap * tanhf(to_float(y[i]) / cap));
}

/* The sum over the threads of a block, in one fixed order. Thread 0 receives
 * it. */
static __device__ double block_sum(double x)
{
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = x;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    return threadIdx.x ? 0 : sums[0];
}

static __global__ void squares_kernel(double *out, const float *x, size_t n)
{
    size_t first = blockIdx.x * PP_SQUARES_BLOCK;
    size_t end = first + PP_SQUARES_BLOCK < n ? first + PP_SQUARES_BLOCK : n;
    double sum = 0;
    for (size_t i = first + threadIdx.x; i < end; i += THREADS)
        sum += (double)x[i] * (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

PP_ADD(PP_CUDA(add))
{
    if (!n)
        return 0;
    bool wide = packs(y, n, 0) && packs(a, n, 0) && packs(b, n, 0);
    if (wide)
        return PP_LAUNCH((add_kernel<PP_PACK>),
                         blocks_for(n / PP_PACK, THREADS), THREADS, 0, stream,
                         (elem *)y, (const elem *)a, (const elem *)b, n);
    return PP_LAUNCH((add_kernel<1>), blocks_for(n, THREADS), THREADS, 0,
                     stream, (elem *)y, (const elem *)a, (const elem *)b, n);
}

PP_ADD(PP_CUDA(add_gradient))
{
    if (!n)
        return 0;
    return PP_LAUNCH(add_gradient_kernel, blocks_for(n, THREADS), THREADS, 0,
                     stream, (float *)y, (const float *)a, (const float *)b, n);
}

PP_COPY(PP_CUDA(copy))
{
    if (!N || !C)
        return 0;
    if (packs(y, C, ldy) && packs(x, C, ldx))
        return PP_LAUNCH((copy_kernel<PP_PACK>),
                         blocks_for(N * C / PP_PACK, THREADS), THREADS, 0,
                         stream, (elem *)y, (const elem *)x, N, C, ldy, ldx);
    return PP_LAUNCH((copy_kernel<1>), blocks_for(N * C, THREADS), THREADS, 0,
                     stream, (elem *)y, (const elem *)x, N, C, ldy, ldx);
}

PP_ZERO(PP_CUDA(zero))
{
    if (!n)
        return 0;
    if (packs(y, n, 0))
        return PP_LAUNCH((zero_kernel<PP_PACK>),
                         blocks_for(n / PP_PACK, THREADS), THREADS, 0, stream,
                         (elem *)y, n);
    return PP_LAUNCH((zero_kernel<1>), blocks_for(n, THREADS), THREADS, 0,
                     stream, (elem *)y, n);
}

PP_SCALE_BY(PP_CUDA(scale_by))
{
    return N && C ? PP_LAUNCH(scale_kernel, blocks_for(N * C, THREADS), THREADS,
                              0, stream, (elem *)y, (float)factor, N, C, ldy)
                  : 0;
}

PP_SOFTCAP(PP_CUDA(softcap))
{
    if (!n)
        return 0;
    return PP_LAUNCH(softcap_kernel, blocks_for(n, THREADS), THREADS, 0, stream,
                     (elem *)y, (float)factor, n);
}

PP_SUM_SQUARES(PP_CUDA(sum_squares))
{
    if (!n)
        return 0;
    return PP_LAUNCH(squares_kernel, (unsigned)pp_squares_blocks(n), THREADS, 0,
                     stream, out, (const float *)x, n);
}

/* --- rope --- */

/* Each thread rotates V pairs (i, i + HD / 2) of one head of one row. */
template <int V>
static __global__ void rope_kernel(elem *x, const float *cos, const float *sin,
                                   const int32_t *position, size_t N, size_t G,
                                   size_t half, size_t ldx, size_t ldg,
                                   float direction)
{
    size_t width = half / V;
    for (size_t i = grid_thread(); i < N * G * width; i += grid_threads()) {
        size_t t = i / (G * width), g = i / width % G, c = i % width * V;
        size_t angle = (size_t)position[t] * half + c;
        elem *at = x + t * ldx + g * ldg + c;
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

/* Each thread rotates one pair (2i, 2i + 1). */
static __global__ void rope_pairs_kernel(elem *x, const float *cos,
                                         const float *sin,
                                         const int32_t *position, size_t N,
                                         size_t G, size_t half, size_t ldx,
                                         size_t ldg, float direction)
{
    for (size_t i = grid_thread(); i < N * G * half; i += grid_threads()) {
        size_t t = i / (G * half), g = i / half % G, c = i % half;
        size_t angle = (size_t)position[t] * half + c;
        elem *at = x + t * ldx + g * ldg + 2 * c;
        float a = to_float(at[0]), b = to_float(at[1]);
        float co = cos[angle], si = direction * sin[angle];
        store(&at[0], a * co - b * si);
        store(&at[1], b * co + a * si);
    }
}

PP_ROPE(PP_CUDA(rope))
{
    size_t half = HD / 2;
    if (!N || !G || !half)
        return 0;
    if (adjacent)
        return PP_LAUNCH(rope_pairs_kernel, blocks_for(N * G * half, THREADS),
                         THREADS, 0, stream, (elem *)x, (const float *)cos,
                         (const float *)sin, position, N, G, half, ldx, ldg,
                         (float)direction);
    if (packs(x, half, ldx) && ldg % PP_PACK == 0 && floats_aligned(cos) &&
        floats_aligned(sin))
        return PP_LAUNCH((rope_kernel<PP_PACK>),
                         blocks_for(N * G * half / PP_PACK, THREADS), THREADS,
                         0, stream, (elem *)x, (const float *)cos,
                         (const float *)sin, position, N, G, half, ldx, ldg,
                         (float)direction);
    return PP_LAUNCH((rope_kernel<1>), blocks_for(N * G * half, THREADS),
                     THREADS, 0, stream, (elem *)x, (const float *)cos,
                     (const float *)sin, position, N, G, half, ldx, ldg,
                     (float)direction);
}

/* --- rope_axes --- */

/* Axes on the device. */
struct axes_view {
    const float *cos, *sin; /* or NULL */
    size_t n, end[PP_ROPE_AXES];
    double frequency[MAX_PAIRS];
};

/* Each thread rotates one pair of each head of a row. */
static __global__ void rope_axes_kernel(elem *x, struct axes_view v,
                                        const int32_t *position, size_t N,
                                        size_t G, size_t half, size_t ldx,
                                        size_t ldg, float direction)
{
    for (size_t i = grid_thread(); i < N * half; i += grid_threads()) {
        size_t t = i / half, c = i % half, axis = 0;
        while (c >= v.end[axis])
            axis++;
        int32_t p = position[t * v.n + axis];
        float co, si;
        if (v.cos) {
            co = v.cos[(size_t)p * half + c];
            si = v.sin[(size_t)p * half + c];
        } else {
            double angle = p * v.frequency[c];
            co = (float)cos(angle);
            si = (float)sin(angle);
        }
        si *= direction;
        for (elem *at = x + t * ldx + c, *end = at + G * ldg; at < end;
             at += ldg) {
            float a = to_float(at[0]), b = to_float(at[half]);
            store(&at[0], a * co - b * si);
            store(&at[half], b * co + a * si);
        }
    }
}

PP_ROPE_ON_AXES(PP_CUDA(rope_axes))
{
    size_t half = HD / 2, end = 0;
    struct axes_view v = {};
    v.cos = (const float *)axes->cos;
    v.sin = (const float *)axes->sin;
    v.n = axes->n;
    if (!N || !G || !half)
        return 0;
    if (half > MAX_PAIRS)
        return (int)cudaErrorInvalidValue;
    for (size_t a = 0; a < axes->n; a++)
        v.end[a] = end += axes->width[a];
    for (size_t c = 0; c < half && !axes->cos; c++)
        v.frequency[c] = axes->frequency[c];
    return PP_LAUNCH(rope_axes_kernel, blocks_for(N * half, THREADS), THREADS,
                     0, stream, (elem *)x, v, position, N, G, half, ldx, ldg,
                     (float)direction);
}

/* --- swiglu --- */

struct silu {
    static __device__ inline float value(float x)
    {
        return x * sigmoid(x);
    }

    static __device__ inline float slope(float x)
    {
        float s = sigmoid(x);
        return s * (1 + x * (1 - s));
    }
};

PP_SWIGLU_FWD(PP_CUDA(swiglu_fwd))
{
    return launch_gated_fwd<silu>(y, gu, N, C, stream);
}

PP_SWIGLU_BWD(PP_CUDA(swiglu_bwd))
{
    return launch_gated_bwd<silu>(dgu, dy, gu, N, C, stream);
}
