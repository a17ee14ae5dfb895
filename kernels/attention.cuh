/* SPDX-License-Identifier: MIT */
/* attention - code of both CUDA versions of attention: rows of a sequence, and
 * the keys that a query attends to. One version is for any width, the
 * other for tensor cores. */
#ifndef PP_KERNELS_ATTENTION_CUH
#define PP_KERNELS_ATTENTION_CUH

#include "device.cuh"

/* A shape on the device: cu and cu_padded are device memory. */
struct attention_view {
    struct pp_attention_shape s;
    float scale;
};

/* Rows of one sequence: the first row, the number of tokens, and the number of
 * rows with padding. */
struct packed_sequence {
    int begin, length, padded;
    int context; /* keys before the key of the first query; queries only */
};

static __device__ inline struct packed_sequence
sequence_at(const struct pp_attention_shape *s, unsigned i)
{
    struct packed_sequence q;
    q.begin = s->cu_padded[i];
    q.length = s->cu[i + 1] - s->cu[i];
    q.padded = s->cu_padded[i + 1] - q.begin;
    q.context = i ? 0 : (int)s->context;
    return q;
}

/* The keys of the sequence that has queries q; the keys of the context come
 * first. */
static __device__ inline struct packed_sequence
keys_of(const struct pp_attention_shape *s, struct packed_sequence q)
{
    q.begin += (int)s->context - q.context;
    q.length += q.context;
    q.padded += q.context;
    return q;
}

/* A tile has `height` rows, and a block works on one tile. The tiles of
 * sequence i, which begins at row b, are b / height + i and those that follow,
 * up to the first tile of the next sequence. A sequence thus has as many tiles
 * as it needs or one more. The number of all tiles depends on rows and
 * sequences only, and hardly any block is idle. */
static inline size_t n_tiles(const struct pp_attention_shape *s, size_t rows,
                             size_t height)
{
    return rows / height + s->n_sequences;
}

struct sequence_tile {
    unsigned sequence;
    int at; /* row of the sequence; may be after its end */
};

/* Finds tile i. context is that of the shape for tiles of keys, 0 for
 * queries. */
static __device__ inline struct sequence_tile
tile_of(const struct pp_attention_shape *s, unsigned i, unsigned height,
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
    struct sequence_tile t = {low, (int)((i - first) * height)};
    return t;
}

/* Query row t of a sequence is at position context + t. first_key is the first
 * key to which the query at position t may attend. end_position is one past the
 * last position, among keys k, whose query may attend to key t. */
static __device__ inline int first_key(const struct pp_attention_shape *s,
                                       int t)
{
    return s->window && t + 1 > (int)s->window ? t + 1 - (int)s->window : 0;
}

static __device__ inline int end_position(const struct pp_attention_shape *s,
                                          struct packed_sequence k, int t)
{
    return s->window && t + (int)s->window < k.length ? t + (int)s->window
                                                      : k.length;
}

/* The term that the gradient of a score subtracts from dp: d, the sum over the
 * row. If the query has one key, the softmax is 1 and the gradient is 0. Then
 * the term is p * dp, because d has the rounding errors of o. */
static __device__ inline float row_term(const struct pp_attention_shape *s,
                                        int t, float p, float dp, float d)
{
    return first_key(s, t) == t ? p * dp : d;
}

/* Attention on tensor cores (attention_mma.cu, attention_mma_bwd.cu), for
 * shapes that pp_attention_mma_fits accepts. PP_ATTENTION_TILE is the height of
 * its smallest tile. */
#define PP_ATTENTION_TILE 64
bool pp_attention_mma_fits(const struct pp_attention_shape *s);
int pp_attention_mma_fwd(__nv_bfloat16 *o, float *lse, const __nv_bfloat16 *q,
                         const __nv_bfloat16 *k, const __nv_bfloat16 *v,
                         const __nv_bfloat16 *sinks, struct attention_view view,
                         void *stream);

/* delta (N, NH): sum of dout o for each query and head. */
int pp_attention_mma_bwd(__nv_bfloat16 *dq, __nv_bfloat16 *dk,
                         __nv_bfloat16 *dv, const __nv_bfloat16 *dout,
                         const __nv_bfloat16 *q, const __nv_bfloat16 *k,
                         const __nv_bfloat16 *v, const float *lse,
                         const float *delta, struct attention_view view,
                         void *stream);

#endif
