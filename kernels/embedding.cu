/* SPDX-License-Identifier: MIT */
/* embedding on a GPU. The gradient of a row of the table is summed by the
 * block of the token that has its id first, over the tokens that follow in
 * order: no atomics, whatever repeats. */
#include "cuda.cuh"
#include "device.cuh"

#define THREADS 256
#define WARPS (THREADS / PP_WARP)

template <int V>
static __global__ void fwd_kernel(elem *y, const int32_t *ids, const elem *w,
                                  size_t C)
{
    int32_t id = ids[blockIdx.x];
    elem *out = y + (size_t)blockIdx.x * C;
    for (size_t c = threadIdx.x * V; c < C; c += THREADS * V) {
        pack<V> x;
        for (int j = 0; j < V; j++)
            store(&x.at[j], 0);
        if (id >= 0)
            x = *(const pack<V> *)(w + (size_t)id * C + c);
        *(pack<V> *)(out + c) = x;
    }
}

/* Marks which of the THREADS tokens from `at` on have this id, a bit each. */
static __device__ inline void find_id(uint32_t *marks, const int32_t *ids,
                                      size_t at, size_t end, int32_t id)
{
    size_t t = at + threadIdx.x;
    bool here = t < end && ids[t] == id;
    __syncthreads(); /* the last marks may still be read */
    uint32_t mask = __ballot_sync(PP_ALL_LANES, here);
    if (threadIdx.x % PP_WARP == 0)
        marks[threadIdx.x / PP_WARP] = mask;
    __syncthreads();
}

static __device__ inline bool any(const uint32_t *marks)
{
    uint32_t all = 0;
    for (int i = 0; i < WARPS; i++)
        all |= marks[i];
    return all != 0;
}

static __global__ void bwd_kernel(float *dw, const elem *dy, const int32_t *ids,
                                  size_t N, size_t C)
{
    __shared__ uint32_t marks[WARPS];
    size_t mine = blockIdx.x;
    int32_t id = ids[mine];
    if (id < 0)
        return;
    for (size_t at = 0; at < mine; at += THREADS) {
        find_id(marks, ids, at, mine, id);
        if (any(marks))
            return; /* an earlier token's block does this row */
    }
    for (size_t at = mine / THREADS * THREADS; at < N; at += THREADS) {
        find_id(marks, ids, at, N, id);
        for (int i = 0; i < WARPS; i++)
            for (uint32_t left = marks[i]; left; left &= left - 1) {
                size_t t = at + (size_t)(i * PP_WARP + __ffs((int)left) - 1);
                for (size_t c = threadIdx.x; c < C; c += THREADS)
                    dw[(size_t)id * C + c] += to_float(dy[t * C + c]);
            }
    }
}

template <int V>
static __global__ void scatter_kernel(elem *y, const elem *x,
                                      const int32_t *rows, size_t C)
{
    elem *out = y + (size_t)rows[blockIdx.x] * C;
    const elem *in = x + (size_t)blockIdx.x * C;
    for (size_t c = threadIdx.x * V; c < C; c += THREADS * V)
        *(pack<V> *)(out + c) = *(const pack<V> *)(in + c);
}

PP_EMBEDDING_FWD(PP_CUDA(embedding_fwd))
{
    if (!N)
        return 0;
    if (packs(y, C, 0) && packs(w, C, 0))
        return PP_LAUNCH((fwd_kernel<PP_PACK>), (unsigned)N, THREADS, 0, stream,
                         (elem *)y, ids, (const elem *)w, C);
    return PP_LAUNCH((fwd_kernel<1>), (unsigned)N, THREADS, 0, stream,
                     (elem *)y, ids, (const elem *)w, C);
}

PP_EMBEDDING_BWD_WEIGHT(PP_CUDA(embedding_bwd_weight))
{
    if (!N)
        return 0;
    return PP_LAUNCH(bwd_kernel, (unsigned)N, THREADS, 0, stream, (float *)dw,
                     (const elem *)dy, ids, N, C);
}

PP_SCATTER(PP_CUDA(scatter))
{
    if (!N)
        return 0;
    if (packs(y, C, 0) && packs(x, C, 0))
        return PP_LAUNCH((scatter_kernel<PP_PACK>), (unsigned)N, THREADS, 0,
                         stream, (elem *)y, (const elem *)x, rows, C);
    return PP_LAUNCH((scatter_kernel<1>), (unsigned)N, THREADS, 0, stream,
                     (elem *)y, (const elem *)x, rows, C);
}
