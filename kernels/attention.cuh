/* SPDX-License-Identifier: MIT */
/* attention - code of both CUDA versions of attention: rows of a sequence, and
 * the keys that a query attends to. One version is for any width, the
 * other for tensor cores. */
#ifndef PP_KERNELS_ATTENTION_CUH
#define PP_KERNELS_ATTENTION_CUH

#include "attention_span.h"
#include "device.cuh"

/* A shape on the device: cu and cu_padded are device memory. With a cap, a
 * score of x before its scale becomes cap tanh(tanh_scale x / 2), where cap and
 * tanh_scale are in powers of 2. */
struct attention_view {
    struct pp_attention_shape s;
    float scale, cap, tanh_scale;
};

/* The inputs of backward. delta (N, NH) has the sum of dout o for each query
 * and head. */
struct bwd_inputs {
    const elem *dout, *q, *k, *v;
    const float *lse, *delta;
    struct attention_view view;
};

/* Rows of one sequence: the first row, the number of tokens, and the number of
 * rows with padding. */
struct packed_sequence {
    int begin, length, padded;
    /* For queries: the position of the first one in its span of keys, and that
     * of the span (attention_span.h). */
    int context, base;
};

/* Sequences of queries that share keys. */
static __device__ inline unsigned sharers(const struct pp_attention_shape *s)
{
    return s->keys ? (unsigned)s->share : 1;
}

static __device__ inline struct packed_sequence
sequence_at(const struct pp_attention_shape *s, unsigned i)
{
    struct pp_attention_span p = pp_attention_span(s, i);
    struct packed_sequence q;
    q.begin = s->cu_padded[i];
    q.length = s->cu[i + 1] - s->cu[i];
    q.padded = s->cu_padded[i + 1] - q.begin;
    q.context = p.query;
    q.base = p.base;
    return q;
}

/* The first row of the i-th keys, which sequence sharers * i and the sequences
 * after it share. */
static __device__ inline int key_begin(const struct pp_attention_shape *s,
                                       unsigned i)
{
    return pp_attention_span(s, i * sharers(s)).row;
}

/* The keys of sequence i of queries; the keys of the context come first. A
 * chunk of keys has as many rows as the queries. */
static __device__ inline struct packed_sequence
keys_at(const struct pp_attention_shape *s, unsigned i)
{
    struct packed_sequence k = sequence_at(s, i);
    unsigned at = i / sharers(s);
    if (!s->keys)
        return k;
    k.begin = key_begin(s, at);
    k.length = pp_attention_span(s, i).n;
    if (s->one_chunk)
        return k;
    k.padded = ((at + 1) * sharers(s) < s->n_sequences ? key_begin(s, at + 1)
                                                       : (int)s->NK) -
               k.begin;
    return k;
}

/* A tile has `height` rows of queries or of keys, and a block works on one
 * tile. The tiles of sequence i, which begins at row b, are b / height + i and
 * the tiles that follow, up to the first tile of the next sequence. A sequence
 * thus has as many tiles as it needs or one more. The number of all tiles
 * depends on rows and sequences only, and hardly any block is idle. */
static inline size_t n_tiles(const struct pp_attention_shape *s, size_t rows,
                             size_t height)
{
    return rows / height + s->n_sequences;
}

struct sequence_tile {
    unsigned sequence;
    int at; /* row of the sequence; may be after its end */
};

/* Finds tile i of the queries, or of the keys. The sequence of a tile of keys
 * is the first sequence that shares them. */
static __device__ inline struct sequence_tile
tile_of(const struct pp_attention_shape *s, unsigned i, unsigned height,
        bool of_keys)
{
    unsigned share = of_keys ? sharers(s) : 1;
    unsigned low = 0, high = (unsigned)s->n_sequences / share, first = 0;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        unsigned row =
            (unsigned)(of_keys ? key_begin(s, middle) : s->cu_padded[middle]);
        if (row / height + middle <= i) {
            low = middle;
            first = row / height + middle;
        } else {
            high = middle;
        }
    }
    struct sequence_tile t = {low * share, (int)((i - first) * height)};
    return t;
}

/* Query row t of a sequence is at position context + t. last_key is the last of
 * n keys to which the query at position t may attend, and first_position is the
 * first position whose query may attend to key t. attention_span.h has the
 * others. */
static __device__ inline int last_key(const struct pp_attention_shape *s, int n,
                                      int t)
{
    return s->whole || t >= n ? n - 1 : t;
}

static __device__ inline int first_position(const struct pp_attention_shape *s,
                                            int t)
{
    return s->whole ? 0 : t;
}

/* The term that the gradient of a score subtracts from dp: d, the sum over the
 * row. If the query has one key, the softmax is 1 and the gradient is 0. Then
 * the term is p * dp, because d has the rounding errors of o. */
static __device__ inline float row_term(bool lone, float p, float dp, float d)
{
    return lone ? p * dp : d;
}

/* Attention on tensor cores (attention_mma.cu, attention_mma_bwd.cu), for
 * shapes that pp_attention_mma_fits accepts. PP_ATTENTION_TILE is the height of
 * its smallest tile.
 *
 * PP_ATTENTION_WIDTHS lists the widths that tiles have, for q and k, and for v,
 * besides 256 for both. Narrower heads use the first that fits, and their tiles
 * end in columns of zeros. Models have all of these: 80 and 96 are towers and
 * Phi-3, 192 and 128 the latent attention of DeepSeek-V2, 256 Gemma. Kernels
 * for capped scores are apart, so that the others do not pay for caps. Gemma 2
 * alone has caps, and they have fewer widths. */
#define PP_ATTENTION_TILE 64
#define PP_ATTENTION_CAPPED_WIDTHS(W) W(64, 64) W(128, 128)
#define PP_ATTENTION_WIDTHS(W) \
    W(32, 32) W(64, 64) W(80, 80) W(96, 96) W(128, 128) W(192, 128)

bool pp_attention_mma_fits(const struct pp_attention_shape *s);
int pp_attention_mma_fwd(__nv_bfloat16 *o, float *lse, const __nv_bfloat16 *q,
                         const __nv_bfloat16 *k, const __nv_bfloat16 *v,
                         const __nv_bfloat16 *sinks, struct attention_view view,
                         void *stream);
int pp_attention_mma_bwd(__nv_bfloat16 *dq, __nv_bfloat16 *dk,
                         __nv_bfloat16 *dv, struct bwd_inputs b, void *stream);

/* The same for heads of 64 or 128 on GPUs with products of warpgroups
 * (attention_wgmma.cu). The shape is one that pp_attention_mma_fits accepts. */
bool pp_attention_wgmma_fits(const struct pp_attention_shape *s);
int pp_attention_wgmma_fwd(__nv_bfloat16 *o, float *lse, const __nv_bfloat16 *q,
                           const __nv_bfloat16 *k, const __nv_bfloat16 *v,
                           const __nv_bfloat16 *sinks,
                           struct attention_view view, void *stream);
int pp_attention_wgmma_bwd(__nv_bfloat16 *dq, __nv_bfloat16 *dk,
                           __nv_bfloat16 *dv, struct bwd_inputs b,
                           void *stream);
int pp_attention_wgmma_dq(__nv_bfloat16 *dq, struct bwd_inputs b, void *stream);

#endif
