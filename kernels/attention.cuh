/* SPDX-License-Identifier: MIT */
/* attention - what both ways to attend on a GPU share: where a sequence lies
 * and which keys a query sees. */
#ifndef PP_KERNELS_ATTENTION_CUH
#define PP_KERNELS_ATTENTION_CUH

#include "cuda.cuh"
#include "device.cuh"

/* A shape on the device: cu and cu_padded are device memory. */
struct attention_view {
    struct pp_attention_shape s;
    float scale;
};

/* Rows of one sequence: the first; those that count; all. */
struct sequence {
    int begin, length, slots;
    int context; /* of queries: keys before the first one's own */
};

static __device__ inline struct sequence
sequence_at(const struct pp_attention_shape *s, unsigned i)
{
    struct sequence q;
    q.begin = s->cu_padded[i];
    q.length = s->cu[i + 1] - s->cu[i];
    q.slots = s->cu_padded[i + 1] - q.begin;
    q.context = i ? 0 : (int)s->context;
    return q;
}

/* The keys of its queries q: those of the context come first. */
static __device__ inline struct sequence
keys_of(const struct pp_attention_shape *s, struct sequence q)
{
    q.begin += (int)s->context - q.context;
    q.length += q.context;
    q.slots += q.context;
    return q;
}

/* Blocks take tiles of `height` rows. Those of sequence i, which begins at row
 * b, are b / height + i and the following, up to those of the next: as many as
 * it needs or one more, so that their number depends on rows and sequences
 * alone and hardly any block has nothing to do. */
static inline size_t n_tiles(const struct pp_attention_shape *s, size_t rows,
                             size_t height)
{
    return rows / height + s->n_sequences;
}

struct tile {
    unsigned sequence;
    int at; /* row of the sequence; one behind its end where there is none */
};

/* Tile i; context: that of the shape for tiles of keys, 0 for queries. */
static __device__ inline struct tile tile_of(const struct pp_attention_shape *s,
                                             unsigned i, unsigned height,
                                             int context)
{
    unsigned low = 0, high = (unsigned)s->n_sequences, first = 0;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        unsigned row = (unsigned)(s->cu_padded[middle] + context);
        if (row / height + middle <= i) {
            low = middle;
            first = row / height + middle;
        } else {
            high = middle;
        }
    }
    struct tile t = {low, (int)((i - first) * height)};
    return t;
}

/* Query row t of a sequence stands at place context + t of it. First key that
 * the query at place t may attend, and one past the last place, of keys k,
 * whose query may attend key t. */
static __device__ inline int first_key(const struct pp_attention_shape *s,
                                       int t)
{
    return s->window && t + 1 > (int)s->window ? t + 1 - (int)s->window : 0;
}

static __device__ inline int end_place(const struct pp_attention_shape *s,
                                       struct sequence k, int t)
{
    return s->window && t + (int)s->window < k.length ? t + (int)s->window
                                                      : k.length;
}

/* What the gradient of a score takes off dp: the sum over the row, d. Of a
 * single score it is known without the rounding of o: where the softmax is 1
 * the gradient is 0, as it should be. */
static __device__ inline float row_term(const struct pp_attention_shape *s,
                                        int t, float p, float dp, float d)
{
    return first_key(s, t) == t ? p * dp : d;
}

/* Attention on tensor cores (attention_mma.cu, attention_mma_bwd.cu), for what
 * mma_fits. No tile of theirs has fewer rows. */
#define PP_ATTENTION_TILE 64
bool pp_attention_mma_fits(const struct pp_attention_shape *s);
int pp_attention_mma_fwd(__nv_bfloat16 *o, float *lse, const __nv_bfloat16 *q,
                         const __nv_bfloat16 *k, const __nv_bfloat16 *v,
                         const __nv_bfloat16 *sinks, struct attention_view view,
                         void *stream);

/* delta (N, NH): sum of dout o of every query and head. */
int pp_attention_mma_bwd(__nv_bfloat16 *dq, __nv_bfloat16 *dk,
                         __nv_bfloat16 *dv, const __nv_bfloat16 *dout,
                         const __nv_bfloat16 *q, const __nv_bfloat16 *k,
                         const __nv_bfloat16 *v, const float *lse,
                         const float *delta, struct attention_view view,
                         void *stream);

#endif
