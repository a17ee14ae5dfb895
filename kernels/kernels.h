/* SPDX-License-Identifier: MIT */
/* kernels - the table of compute kernels, and the rules for all of them.
 *
 * Shapes: N rows (tokens), C and OC widths, V vocabulary, NH query heads, NKV
 * key and value heads, HD head width, G groups of a row. Tensors are row-major;
 * ld is the distance between rows in elements if it may differ from the width.
 *
 * Backward is two functions, so that a schedule may run them apart: bwd_input
 * writes (=), bwd_weight accumulates (+=). Forward writes.
 *
 * Elements have the type of the table: float or double on the CPU
 * (pp_kernels_f32, pp_kernels_f64), float or bfloat16 on a GPU (cuda_stream.h).
 * Accumulated values have the type of the elements on the CPU and are float on
 * a GPU: gradients of parameters, moments, master weights, statistics (rstd,
 * lse, log-probabilities) and the rotary tables.
 *
 * Pointers do not alias unless a kernel says so. N = 0 is legal. No kernel
 * allocates memory. A result depends only on the values and shapes of the
 * arguments, never on threads, addresses or earlier calls; bit-for-bit parity
 * needs this.
 *
 * Functions return 0 or the backend's code. stream is the backend's, NULL on
 * the CPU. The contract of each kernel follows below. */
#ifndef PP_KERNELS_KERNELS_H
#define PP_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "delta.h"
#include "experts.h"
#include "kernel_sizes.h"

/* linear - y = x W^T + b + r
 *
 *   x  (N, C), ldx           w  (OC, C)
 *   b  (OC) or NULL          r  (N, OC), ldy, or NULL
 *   y  (N, OC), ldy          written; r may be y
 *
 * Backward is two functions so that a schedule may run them apart (Qi et al.,
 * "Zero Bubble Pipeline Parallelism", ICLR 2024):
 *   bwd_input    dx  = dy W + r        (N, C)    written; r (N, C), lddx, or
 *                                                NULL, may be dx
 *   bwd_weight   dw += dy^T x          (OC, C)   accumulated; or written, if
 *                                                `writes` and N > 0
 *                db += sum over N      (OC)      accumulated, or NULL */
#define PP_LINEAR_FWD(name)                                             \
    int(name)(void *y, const void *x, const void *w, const void *b,     \
              const void *r, size_t N, size_t C, size_t OC, size_t ldy, \
              size_t ldx, void *stream)
#define PP_LINEAR_BWD_INPUT(name)                                      \
    int(name)(void *dx, const void *dy, const void *w, const void *r,  \
              size_t N, size_t C, size_t OC, size_t lddx, size_t lddy, \
              void *stream)
#define PP_LINEAR_BWD_WEIGHT(name)                                         \
    int(name)(void *dw, void *db, const void *dy, const void *x, size_t N, \
              size_t C, size_t OC, size_t lddy, size_t ldx, bool writes,   \
              void *stream)
typedef PP_LINEAR_FWD(pp_linear_fwd_fn);
typedef PP_LINEAR_BWD_INPUT(pp_linear_bwd_input_fn);
typedef PP_LINEAR_BWD_WEIGHT(pp_linear_bwd_weight_fn);

/* rmsnorm - y = x rstd(x) (shift + w), rstd = 1 / sqrt(mean(x^2) + eps)
 *
 * Each row holds G groups of C elements. Every group is normalised alone, with
 * the same weight: G = 1 for a layer's norm, G = heads for the norm of each
 * query or key head. shift is 0, or 1 for Gemma.
 *   x     (N, G, C), ldx        w  (C), or NULL: zeros
 *   r     (N, G, C), ldy        added to the output, or NULL
 *   y     (N, G, C), ldy        written; y may be x
 *   rstd  (N, G), ldr           written
 * Backward, from the same x:
 *   bwd_input    dx   (N, G, C), lddx    written; dx may be dy
 *                r    (N, G, C), lddx    added to the gradient, or NULL
 *   bwd_weight   dw   (C)                accumulated, rows ascending
 *
 * Several ranks may divide every group. Then each writes its sums with
 * rmsnorm_sums, fwd and bwd_input get the sums of all ranks, and C is the
 * rank's part:
 *   sums  (N, G)   written: the sum of a b, or with w of a b (shift + w)
 * fwd needs the sums of x x, bwd_input the sums of dy x with w. */
struct pp_norm_sums {
    const void *at;   /* accumulated type: of each of n ranks, (N, G) */
    size_t n, stride; /* values from one rank to the next */
    size_t C;         /* the width of the whole group */
};
#define PP_RMSNORM_SUMS(name)                                          \
    int(name)(void *sums, const void *a, const void *b, const void *w, \
              size_t N, size_t G, size_t C, size_t lda, size_t ldb,    \
              double shift, void *stream)
#define PP_RMSNORM_FWD(name)                                           \
    int(name)(void *y, void *rstd, const void *x, const void *w,       \
              const void *r, size_t N, size_t G, size_t C, size_t ldy, \
              size_t ldr, size_t ldx, double shift, double eps,        \
              const struct pp_norm_sums *sums, void *stream)
#define PP_RMSNORM_BWD_INPUT(name)                                            \
    int(name)(void *dx, const void *dy, const void *x, const void *rstd,      \
              const void *w, const void *r, size_t N, size_t G, size_t C,     \
              size_t lddx, size_t lddy, size_t ldx, size_t ldr, double shift, \
              const struct pp_norm_sums *sums, void *stream)
#define PP_RMSNORM_BWD_WEIGHT(name)                                      \
    int(name)(void *dw, const void *dy, const void *x, const void *rstd, \
              size_t N, size_t G, size_t C, size_t lddy, size_t ldx,     \
              size_t ldr, void *stream)
typedef PP_RMSNORM_SUMS(pp_rmsnorm_sums_fn);
typedef PP_RMSNORM_FWD(pp_rmsnorm_fwd_fn);
typedef PP_RMSNORM_BWD_INPUT(pp_rmsnorm_bwd_input_fn);
typedef PP_RMSNORM_BWD_WEIGHT(pp_rmsnorm_bwd_weight_fn);

/* layernorm - y = (x - mean) rstd w + b, rstd = 1 / sqrt(var + eps)
 *
 * Mean and variance are of each row (Ba et al., "Layer Normalization",
 * 2016); the variance is the mean of squares, not divided by C - 1.
 *   x           (N, C)       w, b  (C), or NULL: ones, zeros
 *   r           (N, C)       added to the output, or NULL
 *   y           (N, C)       written; not x
 *   mean, rstd  (N)          written
 * Backward, from the same x:
 *   bwd_input    dx     (N, C)    written; dx may be dy
 *                r      (N, C)    added to the gradient, or NULL
 *   bwd_weight   dw, db (C)       accumulated, rows ascending; each may be
 *                                 NULL */
#define PP_LAYERNORM_FWD(name)                                               \
    int(name)(void *y, void *mean, void *rstd, const void *x, const void *w, \
              const void *b, const void *r, size_t N, size_t C, double eps,  \
              void *stream)
#define PP_LAYERNORM_BWD_INPUT(name)                                     \
    int(name)(void *dx, const void *dy, const void *x, const void *mean, \
              const void *rstd, const void *w, const void *r, size_t N,  \
              size_t C, void *stream)
#define PP_LAYERNORM_BWD_WEIGHT(name)                                 \
    int(name)(void *dw, void *db, const void *dy, const void *x,      \
              const void *mean, const void *rstd, size_t N, size_t C, \
              void *stream)
typedef PP_LAYERNORM_FWD(pp_layernorm_fwd_fn);
typedef PP_LAYERNORM_BWD_INPUT(pp_layernorm_bwd_input_fn);
typedef PP_LAYERNORM_BWD_WEIGHT(pp_layernorm_bwd_weight_fn);

/* rope - rotary position embedding: element i of a head pairs with i + HD/2, or
 * if `adjacent` is true, 2i with 2i + 1.
 *
 *   x         (N, G, HD), ldx, ldg       updated in place; G heads of each row,
 *                                        which begin ldg elements apart
 *   cos, sin  (max position, HD / 2)     tables of the accumulator's type
 *   position  (N)                        row of the tables for each token
 * direction +1 rotates (forward), -1 rotates back (the gradient). */
#define PP_ROPE(name)                                                 \
    int(name)(void *x, const void *cos, const void *sin,              \
              const int32_t *position, size_t N, size_t G, size_t HD, \
              size_t ldx, size_t ldg, bool adjacent, int direction,   \
              void *stream)
typedef PP_ROPE(pp_rope_fn);

/* rope_axes - the same for tokens with a position on each of several axes, in
 * place. Each axis turns some of the pairs (i, i + HD/2), in their order.
 *
 *   position  (N, n)  of each axis
 * With tables, the angles of pair i are in the row of its position. Without
 * them it turns by the product of its position and its frequency; heads are at
 * most 256 wide on a GPU then. */
struct pp_rope_axes {
    size_t n, width[PP_ROPE_AXES]; /* pairs of each axis, HD/2 in all */
    const void *cos, *sin;         /* (max position, HD/2), or NULL */
    const double *frequency;       /* (HD/2) in host memory; without tables */
};
#define PP_ROPE_ON_AXES(name)                                         \
    int(name)(void *x, const struct pp_rope_axes *axes,               \
              const int32_t *position, size_t N, size_t G, size_t HD, \
              size_t ldx, size_t ldg, int direction, void *stream)
typedef PP_ROPE_ON_AXES(pp_rope_axes_fn);

/* attention - attention within each packed sequence, with grouped queries.
 *
 *   q      (N, NH, HDQK), ldq
 *   k      (N, NKV, HDQK), ldkv
 *   v      (N, NKV, HDV), ldkv
 *   o      (N, NH, HDV), ldo    written; rows of padding become 0
 *   lse    (N, NH)              written: log-sum-exp of the scaled scores;
 *                               rows of padding become 0
 *   sinks  (NH) or NULL         one more score of each softmax, without a value
 *
 * Sequence i begins at row cu_padded[i] and has cu[i + 1] - cu[i] rows. Both
 * arrays have n_sequences + 1 entries, and N = cu_padded[n_sequences]. Query
 * row t attends to the rows s <= t of its sequence; if window > 0, only to rows
 * with t - s < window, or if chunked, only to rows of the same chunk of so many
 * positions (Llama 4; then no one_chunk). If whole, it attends to all rows of
 * its sequence, also to the rows behind it; then there is no window and no
 * keys. Query head h uses key head h / (NH / NKV).
 *
 * A part of a sequence also attends to tokens before the part. Then keys says
 * for each sequence of queries which rows of k and v it attends to; k, v, dk
 * and dv have NK rows. Query row t is at position keys[i].position + t among
 * them. The keys of a sequence begin where the keys of the sequence before it
 * end, padding included; the first begin at row 0. Two parts of one sequence
 * may share keys: with share = 2, sequences 2i and 2i + 1 do, and begin with
 * the same row.
 *
 * Keys may come in several calls. With one_chunk, k and v have two chunks of
 * each sequence, and a call is for one of them. With merge, the results of a
 * call join the results of earlier calls: o and lse become o and lse of the
 * softmax over all keys, and dq, dk and dv are added to. A query without keys
 * gets o 0 and lse -infinity. Backward takes o and lse of all keys.
 *
 * No kernel holds a [T,T] matrix. It computes the scores in blocks, with an
 * online softmax (Milakov and Gimelshein 2018; Dao et al. 2022), and backward
 * computes them again.
 *   dq, dk, dv   like q, k, v; written, or with merge added to; rows of
 *                padding become 0
 *   scratch      attention_scratch() elements
 * Backward needs no sinks, as lse includes them. experts.h has their gradient.
 */
struct pp_attention_keys {
    int32_t first, n; /* n = position + the queries of the sequence */
    int32_t position; /* of the first query */
};

struct pp_attention_shape {
    size_t N, NH, NKV, HDQK, HDV;
    size_t ldq, ldkv, ldo;
    size_t n_sequences;
    const int32_t *cu, *cu_padded;
    double scale;  /* positive */
    double cap;    /* of scaled scores: they become cap tanh(score / cap), as in
                      Gemma 2; 0: none */
    size_t window; /* 0: no window */
    bool chunked;  /* the window is a chunk */
    bool whole;    /* not causal */

    /* For parts of sequences. */
    const struct pp_attention_keys *keys; /* (n_sequences); NULL: the keys of a
                                             sequence are in its own rows */
    size_t NK;                            /* rows of k and v, if keys */
    size_t share;                         /* 1 or 2, if keys */

    /* With one_chunk, share is 2, and k and v have the rows of the queries.
     * Rows of sequences 2i and 2i + 1 are two chunks of one sequence of keys,
     * both as long as the sequences of its queries. The rows of 2i + half are
     * used; they are its chunk number `chunk`. Backward needs merge. */
    bool one_chunk, merge;
    int32_t chunk, half;
};

/* Returns the rows of k and v. */
static inline size_t pp_attention_key_rows(const struct pp_attention_shape *s)
{
    return s->keys ? s->NK : s->N;
}

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

/* Returns the elements of scratch that forward and backward need. They depend
 * on the head widths, NH, NKV and N only. */
#define PP_ATTENTION_SCRATCH(name) \
    size_t(name)(const struct pp_attention_shape *s)
typedef PP_ATTENTION_SCRATCH(pp_attention_scratch_fn);

/* swiglu - y = silu(gate) up
 *
 *   gu   (N, 2C)   gate in columns 0..C-1, up in C..2C-1
 *   y    (N, C)    written
 *   dgu  (N, 2C)   written
 *
 * geglu - the same with gelu's form TANH in place of silu */
#define PP_SWIGLU_FWD(name) \
    int(name)(void *y, const void *gu, size_t N, size_t C, void *stream)
#define PP_SWIGLU_BWD(name)                                                  \
    int(name)(void *dgu, const void *dy, const void *gu, size_t N, size_t C, \
              void *stream)
typedef PP_SWIGLU_FWD(pp_swiglu_fwd_fn); /* and geglu */
typedef PP_SWIGLU_BWD(pp_swiglu_bwd_fn);

/* sigmoid_gate - y = x sigmoid(g)
 *
 *   y, x   (N, C)         y written; y may be x
 *   g, dg  (N, C), ldg    dg written
 * As dx = dy sigmoid(g), fwd makes it of dy; bwd makes dg of dx. */
#define PP_SIGMOID_GATE_FWD(name)                                        \
    int(name)(void *y, const void *x, const void *g, size_t N, size_t C, \
              size_t ldg, void *stream)
#define PP_SIGMOID_GATE_BWD(name)                                     \
    int(name)(void *dg, const void *dx, const void *x, const void *g, \
              size_t N, size_t C, size_t ldg, void *stream)
typedef PP_SIGMOID_GATE_FWD(pp_sigmoid_gate_fwd_fn);
typedef PP_SIGMOID_GATE_BWD(pp_sigmoid_gate_bwd_fn);

/* gelu - y = x P(X <= x) for normal X (Hendrycks and Gimpel, "Gaussian Error
 * Linear Units", 2016)
 *
 *   y, x        (n)    y written
 *   dx, dy, x   (n)    dx written; dx may be dy
 * The probability is, by form,
 *   ERF      (1 + erf(x / sqrt 2)) / 2
 *   TANH     (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, as in GPT-2
 *   SIGMOID  sigmoid(1.702 x), as in CLIP
 * and in its place max(x, 0), so that y = max(x, 0)^2:
 *   RELU_SQUARED  (So et al., "Primer", 2021) */
#define PP_GELU_FWD(name) \
    int(name)(void *y, const void *x, size_t n, enum pp_gelu form, void *stream)
#define PP_GELU_BWD(name)                                        \
    int(name)(void *dx, const void *dy, const void *x, size_t n, \
              enum pp_gelu form, void *stream)
typedef PP_GELU_FWD(pp_gelu_fwd_fn);
typedef PP_GELU_BWD(pp_gelu_bwd_fn);

/* xielu - an activation whose slopes are trained (Huang and Schlag, "Deriving
 * Activation Functions Using Integration", 2024)
 *
 *   y, x             (N, C)  y written
 *   dx, dy, x        (N, C)  dx written; dx may be dy
 *   sums             (2, N)  accumulated type, written: what each row adds to
 *                            the gradients of p and of n
 *   p, n, beta, eps  (1)     elements' type
 * With a = softplus(p) and b = beta + softplus(n), y is a x^2 + beta x above 0,
 * and b (exp(min(x, eps)) - 1 - x) + beta x elsewhere; eps is just below 0. */
struct pp_xielu {
    const void *p, *n, *beta, *eps;
};
#define PP_XIELU_FWD(name)                                \
    int(name)(void *y, const void *x, size_t N, size_t C, \
              const struct pp_xielu *by, void *stream)
#define PP_XIELU_BWD(name)                                                   \
    int(name)(void *dx, void *sums, const void *dy, const void *x, size_t N, \
              size_t C, const struct pp_xielu *by, void *stream)
typedef PP_XIELU_FWD(pp_xielu_fwd_fn);
typedef PP_XIELU_BWD(pp_xielu_bwd_fn);

/* embedding - y[t] = w[ids[t]]
 *
 *   ids (N), each below V: the caller checks them before step 0
 *   w   (V, C)     y (N, C) written     dw (V, C) accumulated, rows ascending
 * A negative id is padding: y is 0, and dw does not change.
 *
 * embedding_add - y[t] += w[ids[t]], but nothing if the id is negative
 *
 * scatter - y[rows[t]] = x[t], with distinct rows; other rows of y do not
 * change */
#define PP_EMBEDDING_FWD(name)                                                \
    int(name)(void *y, const int32_t *ids, const void *w, size_t N, size_t C, \
              void *stream)
#define PP_EMBEDDING_BWD_WEIGHT(name)                                 \
    int(name)(void *dw, const void *dy, const int32_t *ids, size_t N, \
              size_t C, void *stream)
#define PP_SCATTER(name)                                                       \
    int(name)(void *y, const void *x, const int32_t *rows, size_t N, size_t C, \
              void *stream)
typedef PP_EMBEDDING_FWD(pp_embedding_fwd_fn); /* and embedding_add */
typedef PP_EMBEDDING_BWD_WEIGHT(pp_embedding_bwd_weight_fn);
typedef PP_SCATTER(pp_scatter_fn);

/* taps - the windows that the second convolution of an encoder of audio reads.
 *
 * The first convolution has two outputs for each row of the encoder, at an even
 * frame and at the odd one behind it. A window has the output at the odd frame
 * before, at the even one and at the odd one.
 *   fwd   y (N, C, 3) written, from x (N, 2, C)
 *   bwd   y (N, 2, C) written, the sums of the gradients x (N, C, 3)
 *   kind  (N)         bits of enum pp_row_kind, or negative: padding, y is 0
 *
 * sinusoids - y (N, C) written: column c < C/2 of row p is the sine of p times
 * 10000^(-c / (C/2 - 1)), column C/2 + c its cosine. C is even, 4 or more */
enum pp_row_kind {
    PP_ROW_BEGINS = 1, /* what is before it counts as 0 */
    PP_ROW_HALF = 2    /* so does the output at its odd frame */
};
#define PP_TAPS(name)                                                          \
    int(name)(void *y, const void *x, const int32_t *kind, size_t N, size_t C, \
              void *stream)
#define PP_SINUSOIDS(name) int(name)(void *y, size_t N, size_t C, void *stream)
typedef PP_TAPS(pp_taps_fn);
typedef PP_SINUSOIDS(pp_sinusoids_fn);

/* cross_entropy - softmax cross-entropy of a block of logits.
 *
 *   logits   (N, V)
 *   targets  (N)     each in [0, V), or negative: not one of these words
 *   fwd      lse (N) written, logp (N) = logits[t, target] - lse, written;
 *            -INFINITY without a target
 *   scale    (N)     accumulated type
 *   add      *sum += scale * (the sum of -logp), in row order; both in double
 *   bwd      replaces logits with the gradient of sum(scale * -logp):
 *            (exp(logits - lse) - onehot(target)) * scale. If cap is not 0,
 *            softcap has made the logits, and the gradient is that of its
 *            inputs
 *   merge    lse (N), logp (N) of the whole vocabulary, written, from P parts
 *            of it: parts (P, 2, N), lse and logp of each
 *   soft     the same for a distribution over k of the words, in place of one
 *            target: ids (N, k), distinct in a row, or negative: not one of
 *            these words, and weights (N, k), accumulated type, each row of sum
 *            1 over all words
 *   soft_fwd logp (N) += sum of weight * (logits[t, id] - lse)
 *   soft_bwd replaces logits with (exp(logits - lse) - weights) * scale; cap is
 *            that of bwd
 * The caller computes the logits block by block, so that no buffer holds
 * [T,V]. */
enum { PP_MOST_SOFT_TARGETS = 1024 }; /* k */
#define PP_SOFT_TARGETS_FWD(name)                                          \
    int(name)(void *logp, const void *logits, const void *lse,             \
              const int32_t *ids, const void *weights, size_t N, size_t V, \
              size_t k, void *stream)
#define PP_SOFT_TARGETS_BWD(name)                                         \
    int(name)(void *logits, const void *lse, const int32_t *ids,          \
              const void *weights, const void *scale, size_t N, size_t V, \
              size_t k, double cap, void *stream)
typedef PP_SOFT_TARGETS_FWD(pp_soft_targets_fwd_fn);
typedef PP_SOFT_TARGETS_BWD(pp_soft_targets_bwd_fn);
#define PP_CROSS_ENTROPY_FWD(name)                       \
    int(name)(void *lse, void *logp, const void *logits, \
              const int32_t *targets, size_t N, size_t V, void *stream)
#define PP_CROSS_ENTROPY_BWD(name)                                   \
    int(name)(void *logits, const void *lse, const int32_t *targets, \
              const void *scale, size_t N, size_t V, double cap, void *stream)
#define PP_CROSS_ENTROPY_ADD(name)                                   \
    int(name)(double *sum, const void *logp, double scale, size_t N, \
              void *stream)
typedef PP_CROSS_ENTROPY_ADD(pp_cross_entropy_add_fn);
#define PP_CROSS_ENTROPY_MERGE(name)                                        \
    int(name)(void *lse, void *logp, const void *parts, size_t N, size_t P, \
              void *stream)
typedef PP_CROSS_ENTROPY_MERGE(pp_cross_entropy_merge_fn);
typedef PP_CROSS_ENTROPY_FWD(pp_cross_entropy_fwd_fn);
typedef PP_CROSS_ENTROPY_BWD(pp_cross_entropy_bwd_fn);

/* distribution - what a row of logits says about the next token.
 *
 *   logits   (N, V)
 *   lse      (N)     as of cross_entropy
 *   entropy  (N)     nats, accumulated type, written
 *   top_k    values (N, k) of the accumulated type and ids (N, k), written: the
 *            largest logits in descending order, the lowest id first among
 *            equals; k <= V */
#define PP_ENTROPY(name)                                                    \
    int(name)(void *entropy, const void *logits, const void *lse, size_t N, \
              size_t V, void *stream)
#define PP_TOP_K(name)                                                  \
    int(name)(void *values, int32_t *ids, const void *logits, size_t N, \
              size_t V, size_t k, void *stream)
typedef PP_ENTROPY(pp_entropy_fn);
typedef PP_TOP_K(pp_top_k_fn);

/* elementwise - operations on whole tensors.
 *
 *   add           y = a + b       n elements; y may be a or b
 *   add_gradient  y = a + b       the same for accumulated values
 *   copy          y = x           (N, C), ldy, ldx
 *   zero          y = 0           n elements
 *   scale_by      y = factor y    (N, C), ldy
 *   softcap       y = factor tanh(y / factor)  n elements
 *   sum_squares   out[k] = sum x^2  of the k-th PP_SQUARES_BLOCK accumulated
 *                                 values, in double, for all of them; the last
 * has fewer. The order depends on their number only. The CPU adds blocks of
 * 1024 in ascending order, each with dot_rows of real.h. */
#define PP_ADD(name) \
    int(name)(void *y, const void *a, const void *b, size_t n, void *stream)
#define PP_COPY(name)                                                 \
    int(name)(void *y, const void *x, size_t N, size_t C, size_t ldy, \
              size_t ldx, void *stream)
#define PP_ZERO(name) int(name)(void *y, size_t n, void *stream)
#define PP_SCALE_BY(name)                                             \
    int(name)(void *y, double factor, size_t N, size_t C, size_t ldy, \
              void *stream)
#define PP_SOFTCAP(name) \
    int(name)(void *y, double factor, size_t n, void *stream)
#define PP_SUM_SQUARES(name) \
    int(name)(double *out, const void *x, size_t n, void *stream)
typedef PP_ADD(pp_add_fn);
typedef PP_COPY(pp_copy_fn);
typedef PP_ZERO(pp_zero_fn);
typedef PP_SCALE_BY(pp_scale_by_fn);
typedef PP_SOFTCAP(pp_softcap_fn);
typedef PP_SUM_SQUARES(pp_sum_squares_fn);

/* adamw - one step of AdamW (Loshchilov and Hutter 2019) or of plain SGD, with
 * PyTorch's order of operations.
 *
 *   w, m, v   (n) updated in place       g (n) gradient, read
 *   master    (n) or NULL. Weights of fewer bits than the accumulated values
 *             have one: the step updates it, and w becomes its rounding.
 *             With NULL the step updates w itself.
 *
 * The step multiplies g by g_scale first (clipping). AdamW then computes
 *   w *= 1 - lr wd;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *   w -= lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps),  bc = 1 - b^step
 * and SGD
 *   w -= lr (g + wd w) */
struct pp_adamw_step {
    double lr, beta1, beta2, eps, weight_decay;
    double bias1, bias2; /* 1 - beta^step */
    double g_scale;
};

#define PP_ADAMW(name)                                                \
    int(name)(void *w, void *master, void *m, void *v, const void *g, \
              size_t n, const struct pp_adamw_step *s, void *stream)
#define PP_SGD(name)                                          \
    int(name)(void *w, void *master, const void *g, size_t n, \
              const struct pp_adamw_step *s, void *stream)
typedef PP_ADAMW(pp_adamw_fn);
typedef PP_SGD(pp_sgd_fn);

/* The matrix products of a table, as K(name, type). All that are here are
 * clocked (run/timing/timed_kernels.h). */
#define PP_PRODUCT_KERNELS(K)                   \
    K(linear_fwd, pp_linear_fwd_fn)             \
    K(linear_bwd_input, pp_linear_bwd_input_fn) \
    K(linear_bwd_weight, pp_linear_bwd_weight_fn)

/* All kernels of a table. */
#define PP_ALL_KERNELS(K)                               \
    PP_PRODUCT_KERNELS(K)                               \
    K(rmsnorm_sums, pp_rmsnorm_sums_fn)                 \
    K(rmsnorm_fwd, pp_rmsnorm_fwd_fn)                   \
    K(rmsnorm_bwd_input, pp_rmsnorm_bwd_input_fn)       \
    K(rmsnorm_bwd_weight, pp_rmsnorm_bwd_weight_fn)     \
    K(layernorm_fwd, pp_layernorm_fwd_fn)               \
    K(layernorm_bwd_input, pp_layernorm_bwd_input_fn)   \
    K(layernorm_bwd_weight, pp_layernorm_bwd_weight_fn) \
    K(rope, pp_rope_fn)                                 \
    K(rope_axes, pp_rope_axes_fn)                       \
    K(attention_scratch, pp_attention_scratch_fn)       \
    K(attention_fwd, pp_attention_fwd_fn)               \
    K(attention_bwd, pp_attention_bwd_fn)               \
    K(swiglu_fwd, pp_swiglu_fwd_fn)                     \
    K(swiglu_bwd, pp_swiglu_bwd_fn)                     \
    K(geglu_fwd, pp_swiglu_fwd_fn)                      \
    K(geglu_bwd, pp_swiglu_bwd_fn)                      \
    K(sigmoid_gate_fwd, pp_sigmoid_gate_fwd_fn)         \
    K(sigmoid_gate_bwd, pp_sigmoid_gate_bwd_fn)         \
    K(gelu_fwd, pp_gelu_fwd_fn)                         \
    K(gelu_bwd, pp_gelu_bwd_fn)                         \
    K(xielu_fwd, pp_xielu_fwd_fn)                       \
    K(xielu_bwd, pp_xielu_bwd_fn)                       \
    K(embedding_fwd, pp_embedding_fwd_fn)               \
    K(embedding_add, pp_embedding_fwd_fn)               \
    K(embedding_bwd_weight, pp_embedding_bwd_weight_fn) \
    K(scatter, pp_scatter_fn)                           \
    K(taps_fwd, pp_taps_fn)                             \
    K(taps_bwd, pp_taps_fn)                             \
    K(sinusoids, pp_sinusoids_fn)                       \
    K(cross_entropy_fwd, pp_cross_entropy_fwd_fn)       \
    K(cross_entropy_bwd, pp_cross_entropy_bwd_fn)       \
    K(cross_entropy_merge, pp_cross_entropy_merge_fn)   \
    K(cross_entropy_add, pp_cross_entropy_add_fn)       \
    K(soft_targets_fwd, pp_soft_targets_fwd_fn)         \
    K(soft_targets_bwd, pp_soft_targets_bwd_fn)         \
    K(entropy, pp_entropy_fn)                           \
    K(top_k, pp_top_k_fn)                               \
    K(add, pp_add_fn)                                   \
    K(add_gradient, pp_add_fn)                          \
    K(copy, pp_copy_fn)                                 \
    K(zero, pp_zero_fn)                                 \
    K(scale_by, pp_scale_by_fn)                         \
    K(softcap, pp_softcap_fn)                           \
    K(sum_squares, pp_sum_squares_fn)                   \
    K(adamw, pp_adamw_fn)                               \
    K(sgd, pp_sgd_fn)

struct pp_kernels {
    const char *name; /* "cpu-f32" */
    size_t element_bytes;
    size_t accumulator_bytes;
    /* Most logits, and most of their rows, that the head computes at a time.
     * More make products faster, but need more cache or GPU memory. */
    size_t head_logits, head_rows;
    const struct pp_expert_kernels *experts;
    const struct pp_delta_kernels *delta;

#define PP_MEMBER(name, type) type *name;
    PP_ALL_KERNELS(PP_MEMBER)
#undef PP_MEMBER
};

extern const struct pp_kernels pp_kernels_f32;
extern const struct pp_kernels pp_kernels_f64;

/* The same kernels, but in forward and input gradient the bits of a row do not
 * depend on the other rows or on their number (linear_rows.c). They use one
 * thread. */
extern const struct pp_kernels pp_kernels_rows_f32;
extern const struct pp_kernels pp_kernels_rows_f64;

/* Sets the number of threads of the BLAS for the whole process. n > 0. Call
 * this once, before the first product. The default is one thread for each rank,
 * because some kernels of OpenBLAS give other bits with more threads. */
void pp_blas_set_threads(int n);

/* Returns whether the process can map the memory that n threads need for their
 * products, of which some are made at a time, and how much that is. OpenBLAS
 * retries for ever if a mapping fails. */
bool pp_blas_has_memory(int n, size_t *bytes);

#endif
