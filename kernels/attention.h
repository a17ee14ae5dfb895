/* SPDX-License-Identifier: MIT */
/* attention - causal attention within each packed sequence, with grouped
 * queries.
 *
 *   q      (N, NH, HDQK), ldq
 *   k      (N, NKV, HDQK), ldkv
 *   v      (N, NKV, HDV), ldkv
 *   o      (N, NH, HDV), ldo    written; rows of padding become 0
 *   lse    (N, NH)              written: log-sum-exp of the scaled scores;
 *                               rows of padding become 0
 *   sinks  (NH) or NULL         one more score in every softmax; it has no
 * value
 *
 * Sequence i begins at row cu_padded[i] and has cu[i + 1] - cu[i] rows. Both
 * arrays have n_sequences + 1 entries, and N = cu_padded[n_sequences]. Query
 * row t attends to the rows s <= t of its sequence; if window > 0, only to
 * those with t - s < window. Query head h uses key head h / (NH / NKV).
 *
 * A slice of a sequence also attends to the tokens before the slice. k, v, dk
 * and dv then begin with context more rows, which belong to the first sequence,
 * and have N + context rows in all. Query row t of that sequence is at position
 * context + t. N > 0 in this case.
 *
 * No kernel holds a [T,T] matrix. It computes the scores in blocks, with an
 * online softmax (Milakov and Gimelshein 2018; Dao et al. 2022), and backward
 * computes them again.
 *   dq, dk, dv   like q, k, v; written, rows of padding become 0
 *   scratch      attention_scratch() elements
 * Backward needs no sinks, as lse includes them. Their gradient is not
 * computed. */
#ifndef PP_KERNELS_ATTENTION_H
#define PP_KERNELS_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

struct pp_attention_shape {
    size_t N, NH, NKV, HDQK, HDV;
    size_t ldq, ldkv, ldo;
    size_t n_sequences;
    const int32_t *cu, *cu_padded;
    double scale;   /* positive */
    size_t window;  /* 0: no window */
    size_t context; /* > 0 only if a slice begins inside a sequence */
};

#define PP_ATTENTION_FWD(name)                                                 \
    int(name)(void *o, void *lse, const void *q, const void *k, const void *v, \
              const void *sinks, const struct pp_attention_shape *s,           \
              void *scratch, void *stream)
#define PP_ATTENTION_BWD(name)                                               \
    int(name)(void *dq, void *dk, void *dv, const void *dout, const void *q, \
              const void *k, const void *v, const void *o, const void *lse,  \
              const struct pp_attention_shape *s, void *scratch,             \
              void *stream) /* dq has ldq; dk and dv have ldkv; dout and o   \
                               have ldo */
typedef PP_ATTENTION_FWD(pp_attention_fwd_fn);
typedef PP_ATTENTION_BWD(pp_attention_bwd_fn);

/* Elements of scratch that forward and backward need at shape s. They depend on
 * the head widths, NH, NKV and N only. */
#define PP_ATTENTION_SCRATCH(name) \
    size_t(name)(const struct pp_attention_shape *s)
typedef PP_ATTENTION_SCRATCH(pp_attention_scratch_fn);

#endif
