/* SPDX-License-Identifier: MIT */
/* elementwise on a GPU. */
#include "device.cuh"

#define THREADS 256
#define SQUARES_BLOCKS 1024 /* most blocks; enough to fill a GPU */

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

static __global__ void squares_kernel(double *partial, const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        sum += (double)x[i] * (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

static __global__ void fold_kernel(double *out, const double *partial,
                                   unsigned blocks)
{
    double sum = 0;
    for (unsigned i = threadIdx.x; i < blocks; i += THREADS)
        sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = sum;
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

PP_SUM_SQUARES(PP_CUDA(sum_squares))
{
    double *partial = (double *)((struct pp_cuda_stream *)stream)->partials;
    unsigned blocks = blocks_for(n, THREADS);
    if (blocks > SQUARES_BLOCKS)
        blocks = SQUARES_BLOCKS;
    int rc = PP_LAUNCH(squares_kernel, blocks, THREADS, 0, stream, partial,
                       (const float *)x, n);
    return rc ? rc
              : PP_LAUNCH(fold_kernel, 1, THREADS, 0, stream, out,
                          (const double *)partial, blocks);
}
