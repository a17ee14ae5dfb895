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

/* Which of THREADS tokens in a row have an id: a bit each, and a list. */
struct found {
    uint32_t marks[WARPS];
    uint16_t list[THREADS];
};

/* Marks those of the tokens [at, end) that have it; how many they are. */
static __device__ inline int find_id(struct found *f, const int32_t *ids,
                                     size_t at, size_t end, int32_t id)
{
    size_t t = at + threadIdx.x;
    bool here = t < end && ids[t] == id;
    uint32_t mask = __ballot_sync(PP_ALL_LANES, here);
    int n = 0;
    __syncthreads(); /* the last marks and list may still be read */
    if (threadIdx.x % PP_WARP == 0)
        f->marks[threadIdx.x / PP_WARP] = mask;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        n += __popc(f->marks[i]);
    return n;
}

/* Lists what find_id marked, in order. */
static __device__ inline void list_found(struct found *f)
{
    uint32_t warp = threadIdx.x / PP_WARP, bit = 1u << threadIdx.x % PP_WARP;
    int before = __popc(f->marks[warp] & (bit - 1));
    for (uint32_t i = 0; i < warp; i++)
        before += __popc(f->marks[i]);
    if (f->marks[warp] & bit)
        f->list[before] = (uint16_t)threadIdx.x;
    __syncthreads();
}

template <int V>
static __global__ void bwd_kernel(float *dw, const elem *dy, const int32_t *ids,
                                  size_t N, size_t C)
{
    __shared__ struct found f;
    size_t mine = blockIdx.x;
    int32_t id = ids[mine];
    if (id < 0)
        return;
    for (size_t at = 0; at < mine; at += THREADS)
        if (find_id(&f, ids, at, mine, id))
            return; /* an earlier token's block does this row */
    for (size_t at = mine / THREADS * THREADS; at < N; at += THREADS) {
        int n = find_id(&f, ids, at, N, id);
        if (!n)
            continue;
        list_found(&f);
        for (size_t c = threadIdx.x * V; c < C; c += THREADS * V) {
            floats<V> *out = (floats<V> *)(dw + (size_t)id * C + c), sum = *out;
            for (int i = 0; i < n; i++) {
                pack<V> x = *(const pack<V> *)(dy + (at + f.list[i]) * C + c);
                for (int j = 0; j < V; j++)
                    sum.at[j] += to_float(x.at[j]);
            }
            *out = sum;
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
    auto kernel = packs(dy, C, 0) && floats_aligned(dw) ? bwd_kernel<PP_PACK>
                                                        : bwd_kernel<1>;
    return PP_LAUNCH(kernel, (unsigned)N, THREADS, 0, stream, (float *)dw,
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
