/* SPDX-License-Identifier: MIT */
/* embedding on a GPU. If several tokens have one id, the block of the first of
 * them sums the gradient of that row, over the tokens in order. No atomics are
 * needed. */
#include "device.cuh"

#define THREADS 256
#define WARPS (THREADS / PP_WARP)

template <int V>
static __global__ void embedding_fwd_kernel(elem *y, const int32_t *ids,
                                            const elem *w, size_t C)
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

template <int V>
static __global__ void embedding_add_kernel(elem *y, const int32_t *ids,
                                            const elem *w, size_t C)
{
    int32_t id = ids[blockIdx.x];
    elem *out = y + (size_t)blockIdx.x * C;
    for (size_t c = threadIdx.x * V; id >= 0 && c < C; c += THREADS * V) {
        pack<V> a = *(const pack<V> *)(out + c);
        pack<V> b = *(const pack<V> *)(w + (size_t)id * C + c);
        for (int j = 0; j < V; j++)
            store(&a.at[j], to_float(a.at[j]) + to_float(b.at[j]));
        *(pack<V> *)(out + c) = a;
    }
}

/* The tokens with a given id among THREADS consecutive tokens, as bits and as a
 * list. */
struct matches {
    uint32_t bits[WARPS];
    uint16_t list[THREADS];
};

/* Sets the bits of the tokens in [at, end) that have the id. Returns their
 * number. */
static __device__ inline int find_matches(struct matches *f, const int32_t *ids,
                                          size_t at, size_t end, int32_t id)
{
    size_t t = at + threadIdx.x;
    bool here = t < end && ids[t] == id;
    uint32_t mask = __ballot_sync(PP_ALL_LANES, here);
    int n = 0;
    __syncthreads(); /* threads may still read the last bits and list */
    if (threadIdx.x % PP_WARP == 0)
        f->bits[threadIdx.x / PP_WARP] = mask;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        n += __popc(f->bits[i]);
    return n;
}

/* Lists the tokens that find_matches found, in order. */
static __device__ inline void list_matches(struct matches *f)
{
    uint32_t warp = threadIdx.x / PP_WARP, bit = 1u << threadIdx.x % PP_WARP;
    int before = __popc(f->bits[warp] & (bit - 1));
    for (uint32_t i = 0; i < warp; i++)
        before += __popc(f->bits[i]);
    if (f->bits[warp] & bit)
        f->list[before] = (uint16_t)threadIdx.x;
    __syncthreads();
}

template <int V>
static __global__ void embedding_bwd_kernel(float *dw, const elem *dy,
                                            const int32_t *ids, size_t N,
                                            size_t C)
{
    __shared__ struct matches f;
    size_t mine = blockIdx.x;
    int32_t id = ids[mine];
    if (id < 0)
        return;
    for (size_t at = 0; at < mine; at += THREADS)
        if (find_matches(&f, ids, at, mine, id))
            return; /* the block of an earlier token adds to this row */
    for (size_t at = mine / THREADS * THREADS; at < N; at += THREADS) {
        int n = find_matches(&f, ids, at, N, id);
        if (!n)
            continue;
        list_matches(&f);
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
        return PP_LAUNCH((embedding_fwd_kernel<PP_PACK>), (unsigned)N, THREADS,
                         0, stream, (elem *)y, ids, (const elem *)w, C);
    return PP_LAUNCH((embedding_fwd_kernel<1>), (unsigned)N, THREADS, 0, stream,
                     (elem *)y, ids, (const elem *)w, C);
}

PP_EMBEDDING_FWD(PP_CUDA(embedding_add))
{
    if (!N)
        return 0;
    if (packs(y, C, 0) && packs(w, C, 0))
        return PP_LAUNCH((embedding_add_kernel<PP_PACK>), (unsigned)N, THREADS,
                         0, stream, (elem *)y, ids, (const elem *)w, C);
    return PP_LAUNCH((embedding_add_kernel<1>), (unsigned)N, THREADS, 0, stream,
                     (elem *)y, ids, (const elem *)w, C);
}

PP_EMBEDDING_BWD_WEIGHT(PP_CUDA(embedding_bwd_weight))
{
    if (!N)
        return 0;
    auto kernel = packs(dy, C, 0) && floats_aligned(dw)
                      ? embedding_bwd_kernel<PP_PACK>
                      : embedding_bwd_kernel<1>;
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
