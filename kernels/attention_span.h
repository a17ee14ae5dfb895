/* SPDX-License-Identifier: MIT */
/* attention_span - the keys that a sequence of queries visits, for the CPU and
 * for CUDA.
 *
 * Positions are counted from the first key of the span, so that query row t, at
 * position query + t, attends to keys up to that position. With base added they
 * are positions in the whole sequence. */
#ifndef PP_KERNELS_ATTENTION_SPAN_H
#define PP_KERNELS_ATTENTION_SPAN_H

#include "kernels.h"

#ifdef __CUDACC__
#define PP_SPAN_INLINE static inline __host__ __device__
#else
#define PP_SPAN_INLINE static inline
#endif

struct pp_attention_span {
    int32_t row;   /* of k and v, of the first key */
    int32_t n;     /* keys; keys after the last query count only with chunks */
    int32_t query; /* position of the first query; 0 if there are no keys */
    int32_t base;  /* position of the first key in the whole sequence */
};

/* Returns the span of sequence i of queries. */
PP_SPAN_INLINE struct pp_attention_span
pp_attention_span(const struct pp_attention_shape *s, size_t i)
{
    struct pp_attention_span p = {s->cu_padded[i], s->cu[i + 1] - s->cu[i], 0,
                                  0};
    if (!s->keys)
        return p;
    p.row = s->keys[i].first;
    p.n = s->keys[i].n;
    p.query = s->keys[i].position;
    if (!s->one_chunk)
        return p;
    int32_t rows = s->cu_padded[i + 1] - s->cu_padded[i];
    p.row = s->cu_padded[i - i % 2] + s->half * rows;
    p.base = s->chunk * rows;
    p.n = p.n <= p.base ? 0 : p.n - p.base < rows ? p.n - p.base : rows;
    p.query = p.n ? p.query - p.base : 0;
    return p;
}

/* Return the first key to which the query at position t of a span may attend,
 * and one past the last query before end that may attend to key t. */
PP_SPAN_INLINE int32_t pp_attention_first(const struct pp_attention_shape *s,
                                          int32_t t)
{
    int32_t w = (int32_t)s->window;
    return !w ? 0 : s->chunked ? t - t % w : t + 1 > w ? t + 1 - w : 0;
}

PP_SPAN_INLINE int32_t pp_attention_end(const struct pp_attention_shape *s,
                                        int32_t end, int32_t t)
{
    int32_t w = (int32_t)s->window;
    int32_t last = !w ? end : s->chunked ? t - t % w + w : t + w;
    return last < end ? last : end;
}

/* Returns whether the query at a position of a span of n keys at base has one
 * key in the whole sequence, itself. */
PP_SPAN_INLINE bool pp_attention_is_lone(const struct pp_attention_shape *s,
                                         int32_t base, int32_t n,
                                         int32_t position)
{
    bool begins = s->window && s->chunked && position % (int32_t)s->window == 0;
    return s->whole ? n == 1 : base + position == 0 || s->window == 1 || begins;
}

#endif
