/* SPDX-License-Identifier: MIT */
/* attention - causal attention within each packed sequence, grouped queries.
 *
 *   q      (N, NH, HDQK), ldq
 *   k      (N, NKV, HDQK), ldkv
 *   v      (N, NKV, HDV), ldkv
 *   o      (N, NH, HDV), ldo    written; rows of padding become 0
 *   lse    (N, NH)              log-sum-exp of the scaled scores; written,
 *                               padding 0
 *   sinks  (NH) or NULL         one more score in every softmax, without value
 *
 * Sequence i begins at row cu_padded[i] and has cu[i + 1] - cu[i] rows; both
 * arrays have n_sequences + 1 entries, and N = cu_padded[n_sequences]. Query
 * row t attends rows s of its sequence with s <= t, and t - s < window where
 * window > 0. Query head h uses key head h / (NH / NKV).
 *
 * A slice of a sequence attends to what came before the slice: k and v (and dk,
 * dv) then begin with context more rows of the first sequence, N + context in
 * all, and its query row t stands for row context + t of it. N is not 0 then.
 *
 * Never holds a [T,T] matrix: scores are made in blocks, the softmax is online
 * (Milakov and Gimelshein 2018; Dao et al. 2022), backward makes them again.
 *   dq, dk, dv   like q, k, v; written, padding 0
 *   scratch      attention_scratch() elements
 * Backward finds the sinks' share in lse; their own gradient is not computed.
 */
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
    size_t window;  /* 0: none */
    size_t context; /* 0 unless a slice begins inside a sequence */
};

#define PP_ATTENTION_FWD(name)                                                 \
    int(name)(void *o, void *lse, const void *q, const void *k, const void *v, \
              const void *sinks, const struct pp_attention_shape *s,           \
              void *scratch, void *stream)
#define PP_ATTENTION_BWD(name)                                               \
    int(name)(void *dq, void *dk, void *dv, const void *dout, const void *q, \
              const void *k, const void *v, const void *o, const void *lse,  \
              const struct pp_attention_shape *s, void *scratch,             \
              void *stream) /* dq has ldq, dk and dv ldkv, dout and o ldo */
typedef PP_ATTENTION_FWD(pp_attention_fwd_fn);
typedef PP_ATTENTION_BWD(pp_attention_bwd_fn);

/* Elements of scratch for forward or backward at shape s; only the head
 * widths, NH, NKV and N count. */
#define PP_ATTENTION_SCRATCH(name) \
    size_t(name)(const struct pp_attention_shape *s)
typedef PP_ATTENTION_SCRATCH(pp_attention_scratch_fn);

#endif
