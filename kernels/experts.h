/* SPDX-License-Identifier: MIT */
/* experts - the kernels of a mixture of experts (Shazeer et al., "Outrageously
 * Large Neural Networks", ICLR 2017), with the rules of kernels.h.
 *
 * E experts, K experts of each of N tokens. A row is a real token at one of its
 * experts: there are R, at most N K. Rows ascend by expert, and rows of an
 * expert by token. */
#ifndef PP_KERNELS_EXPERTS_H
#define PP_KERNELS_EXPERTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_sizes.h"

/* The places of rows. */
struct pp_routing {
    int32_t *row;    /* (N, K) of a token's experts, the best first; -1 for
                        padding */
    int32_t *token;  /* (R) */
    int32_t *expert; /* (R) ascending */
};

/* The real tokens among N: sequence i has cu[i + 1] - cu[i] of them from
 * cu_padded[i] on, where the first of the N is number `first`. Padding has no
 * rows. */
struct pp_real_tokens {
    size_t n; /* sequences */
    const int32_t *cu, *cu_padded;
    size_t first;
};

/* Returns the tokens of sequence i among the N; begin is end if it has none. cu
 * and cu_padded are in host memory. */
struct pp_token_range {
    size_t begin, end;
};
static inline struct pp_token_range
pp_real_range(const struct pp_real_tokens *s, size_t i, size_t N)
{
    size_t begin = (size_t)s->cu_padded[i], last = s->first + N;
    size_t end = begin + (size_t)(s->cu[i + 1] - s->cu[i]);
    begin = begin < s->first ? s->first : begin > last ? last : begin;
    end = end < begin ? begin : end > last ? last : end;
    return (struct pp_token_range){begin - s->first, end - s->first};
}

/* scores - the product of a router, x W^T + b, in the accumulated type.
 *
 *   logits  (N, E)   written, accumulated type
 *   x       (N, C)
 *   w       (E, C)           b  (E) or NULL */
#define PP_SCORES(name)                                                  \
    int(name)(void *logits, const void *x, const void *w, const void *b, \
              size_t N, size_t C, size_t E, void *stream)
typedef PP_SCORES(pp_scores_fn);

/* route - chooses K experts of each real token by the rule: the experts with
 * the largest scores, the lowest number first among equals.
 *
 *   logits  (N, E)        accumulated type
 *   bias    (E) or NULL   added to the scores that choose; only with sigmoid
 *   probs   (N, E)   written: the scores without bias, accumulated type
 *   weight  (R)      written: the score of the row's expert, accumulated type;
 *                    with norm, over the sum of the token's scores
 *   r                written. given: on entry r->row has the experts of every
 *                    token, and -1 for padding; then nothing is chosen. It has
 *                    -2 - e if expert e drops the token. These rows come last,
 *                    by token, and r->token has -1 minus the token
 * bwd writes dlogits (N, E) from dweight (R), accumulated type: the gradient by
 * the weights, or if they weigh inputs by their logarithms. */
#define PP_ROUTE_FWD(name)                                             \
    int(name)(void *probs, void *weight, struct pp_routing *r,         \
              const void *logits, const void *bias,                    \
              const struct pp_real_tokens *tokens, size_t N, size_t E, \
              size_t K, const struct pp_router *rule, bool given,      \
              void *stream)
#define PP_ROUTE_BWD(name)                                              \
    int(name)(void *dlogits, const void *dweight, const void *probs,    \
              const struct pp_routing *r, size_t N, size_t E, size_t K, \
              const struct pp_router *rule, void *stream)
typedef PP_ROUTE_FWD(pp_route_fwd_fn);
typedef PP_ROUTE_BWD(pp_route_bwd_fn);

/* The numbers of the real ones of N tokens among the tokens of all ranks that
 * divide a microbatch: they ascend by sequence, then by position. */
struct pp_token_numbers {
    struct pp_real_tokens tokens;
    const int32_t *of; /* (tokens.n) the whole sequence that each is a part of;
                          NULL: each is whole, or its parts are one sequence */
    const int32_t *whole_cu; /* bounds of the whole sequences */
    const int32_t *position; /* of each row, the first N and the rows before
                                them, in its whole sequence */
};

/* Experts with a capacity (Lepikhin et al., "GShard", ICLR 2021). All ranks
 * that divide a microbatch know its n choices: token number t has the choices t
 * K .. t K + K - 1.
 *
 * tell_choices - writes the choices of N tokens of this rank.
 *   chosen   (n)           1 + the expert, accumulated type. The caller clears
 *                          it: padding has no choices, and the tables of all
 *                          ranks are added up
 *   table    (n) or NULL   the weight of each, accumulated type
 *
 * keep - finds the choices that each of E experts keeps, `capacity` of them at
 * most: the first ones, or with `table` the choices with the largest weights,
 * the first ones among equals.
 *   kept     (n)   written where there is a choice: e, or -2 - e if expert e
 *                  drops it
 *   before   (E)   what the experts have kept already, without table;
 *                  overwritten
 *   order    (n)   room; only with table
 *
 * mark_kept - writes the row of a routing, (N, K), as route takes it if given.
 *
 * add_kept - counts[e] += the choices that expert e kept of N tokens. */
#define PP_TELL_CHOICES(name)                                           \
    int(name)(void *chosen, void *table, const struct pp_routing *r,    \
              const void *weight, const struct pp_token_numbers *token, \
              size_t N, size_t K, void *stream)
#define PP_KEEP(name)                                                    \
    int(name)(int32_t * kept, int32_t * before, int32_t * order,         \
              const void *chosen, const void *table, size_t n, size_t E, \
              size_t capacity, void *stream)
#define PP_MARK_KEPT(name)                                              \
    int(name)(int32_t * row, const int32_t *kept,                       \
              const struct pp_token_numbers *token, size_t N, size_t K, \
              void *stream)
#define PP_ADD_KEPT(name)                                             \
    int(name)(int32_t * counts, const struct pp_routing *r, size_t N, \
              size_t E, size_t K, void *stream)
typedef PP_TELL_CHOICES(pp_tell_choices_fn);
typedef PP_KEEP(pp_keep_fn);
typedef PP_MARK_KEPT(pp_mark_kept_fn);
typedef PP_ADD_KEPT(pp_add_kept_fn);

/* Auxiliary losses of the router, over tokens first .. end - 1. load (E), probs
 * (N, E) and logits (N, E) are of the accumulated type, dlogits (N, E)
 * elements.
 *
 * load - adds to load[e] the tokens that chose expert e.
 *
 * balance - scale times the sum of load[e] probs[t, e], where load is a
 * constant (Fedus, Zoph and Shazeer, "Switch Transformers", JMLR 2022). With
 * sigmoid, probs are sigmoids of logits, and count over their sum.
 *
 * logit_size - scale times the sum of the squares of log sum exp logits[t]
 * (Zoph et al., "ST-MoE", 2022).
 *
 * fwd adds to *loss, which the kernels' memory has, and bwd to dlogits. */
#define PP_LOAD(name)                                               \
    int(name)(void *load, const struct pp_routing *r, size_t first, \
              size_t end, size_t E, size_t K, void *stream)
#define PP_BALANCE_FWD(name)                                                   \
    int(name)(double *loss, const void *load, const void *probs, bool sigmoid, \
              double scale, size_t first, size_t end, size_t E, void *stream)
#define PP_BALANCE_BWD(name)                                                  \
    int(name)(void *dlogits, const void *load, const void *probs,             \
              bool sigmoid, double scale, size_t first, size_t end, size_t E, \
              void *stream)
#define PP_LOGIT_SIZE_FWD(name)                                             \
    int(name)(double *loss, const void *logits, double scale, size_t first, \
              size_t end, size_t E, void *stream)
#define PP_LOGIT_SIZE_BWD(name)                                              \
    int(name)(void *dlogits, const void *logits, double scale, size_t first, \
              size_t end, size_t E, void *stream)
/* follow_load - the step of the bias of a router by its loads (Wang et al.,
 * "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts", 2024):
 *
 *   bias[e] += rate sign(mean of load - load[e])
 *
 * for experts first .. first + n - 1; centred: minus the mean of all E steps.
 *
 *   bias    (n) elements                     load  (E) accumulated type
 *   master  (n) accumulated type, or NULL    as of adamw */
#define PP_FOLLOW_LOAD(name)                                            \
    int(name)(void *bias, void *master, const void *load, size_t first, \
              size_t n, size_t E, double rate, bool centred, void *stream)
typedef PP_FOLLOW_LOAD(pp_follow_load_fn);
typedef PP_LOAD(pp_load_fn);
typedef PP_BALANCE_FWD(pp_balance_fwd_fn);
typedef PP_BALANCE_BWD(pp_balance_bwd_fn);
typedef PP_LOGIT_SIZE_FWD(pp_logit_size_fwd_fn);
typedef PP_LOGIT_SIZE_BWD(pp_logit_size_bwd_fn);

/* spread - y[r] = weight[r] x[token[r]], R rows of C. Without token, row r is
 * that of x, and y may be x; without weight, it is 1.
 *
 * Rows of a negative token, which is dropped, stay as they are.
 *
 * combine - y[t] = the sum over j, ascending, of weight[i] x[i], i = row[t, j],
 * for N tokens of C, and 0 for padding; or with add, y[t] += its terms. Without
 * row, K is 1 and i is t. Without weight, it is 1.
 *
 * weigh_bwd - the gradient of weight[r] y[r] for R rows of C: dweight[r] = the
 * sum of dy[r] y[r], then dy[r] becomes weight[r] dy[r].
 *
 *   weight, dweight   accumulated type */
#define PP_SPREAD(name)                                   \
    int(name)(void *y, const void *x, const void *weight, \
              const int32_t *token, size_t R, size_t C, void *stream)
#define PP_COMBINE(name)                                                      \
    int(name)(void *y, const void *x, const void *weight, const int32_t *row, \
              size_t N, size_t K, size_t C, bool add, void *stream)
#define PP_WEIGH_BWD(name)                                                \
    int(name)(void *dweight, void *dy, const void *y, const void *weight, \
              size_t R, size_t C, void *stream)
typedef PP_SPREAD(pp_spread_fn);
typedef PP_COMBINE(pp_combine_fn);
typedef PP_WEIGH_BWD(pp_weigh_bwd_fn);

/* bias_dot - dweight[r] += the sum of dy[r] b[expert[r]]: the part of a row's
 * bias in the gradient of its weight. b as of grouped. */
#define PP_BIAS_DOT(name)                                               \
    int(name)(void *dweight, const void *dy, const void *b,             \
              const int32_t *expert, size_t R, size_t C, size_t stride, \
              void *stream)
typedef PP_BIAS_DOT(pp_bias_dot_fn);

/* clamped_swiglu - y = (u + 1) g sigmoid(gain g), where g is the gate, at most
 * limit, and u is up, between -limit and limit (GPT-OSS).
 *
 *   gu   (R, 2C)   gate and up take turns
 *   y    (R, C)    written
 *   dgu  (R, 2C)   written; 0 where it is clamped */
struct pp_clamp {
    double limit, gain;
};
#define PP_CLAMPED_SWIGLU_FWD(name)                        \
    int(name)(void *y, const void *gu, size_t R, size_t C, \
              const struct pp_clamp *by, void *stream)
#define PP_CLAMPED_SWIGLU_BWD(name)                                          \
    int(name)(void *dgu, const void *dy, const void *gu, size_t R, size_t C, \
              const struct pp_clamp *by, void *stream)
typedef PP_CLAMPED_SWIGLU_FWD(pp_clamped_swiglu_fwd_fn);
typedef PP_CLAMPED_SWIGLU_BWD(pp_clamped_swiglu_bwd_fn);

/* sinks_bwd_input - the gradients of the sinks of attention, which only models
 * with experts have: dsinks[t, h] = -exp(sinks[h] - lse[t, h]) times the sum of
 * dout[t, h] o[t, h].
 *
 *   dout, o   (N, NH, HD), rows ldo apart, heads HD
 *   sinks     (NH)          lse, dsinks   (N, NH) accumulated type */
#define PP_SINKS_BWD_INPUT(name)                                              \
    int(name)(void *dsinks, const void *dout, const void *o, const void *lse, \
              const void *sinks, size_t N, size_t NH, size_t HD, size_t ldo,  \
              void *stream)
typedef PP_SINKS_BWD_INPUT(pp_sinks_bwd_input_fn);

/* add_rows - dw[h] += the sum of x[t, h], t ascending: the gradients of sinks
 * from dsinks, and of the two parameters of xielu (kernels.h) from its sums.
 *
 *   dw   (NH), x   (N, NH) accumulated type */
#define PP_ADD_ROWS(name) \
    int(name)(void *dw, const void *x, size_t N, size_t NH, void *stream)
typedef PP_ADD_ROWS(pp_add_rows_fn);

/* gate - y = sigmoid(x), n values; bwd: dx = dy y (1 - y).
 *
 *   x, dx   elements        y, dy   accumulated type */
#define PP_GATE_FWD(name) \
    int(name)(void *y, const void *x, size_t n, void *stream)
#define PP_GATE_BWD(name) \
    int(name)(void *dx, const void *dy, const void *y, size_t n, void *stream)
typedef PP_GATE_FWD(pp_gate_fwd_fn);
typedef PP_GATE_BWD(pp_gate_bwd_fn);

/* count - counts[e] = the rows of expert e of E, of R rows of a routing, but
 * not the dropped ones.
 *
 * arrivals - puts the rows that P ranks send to this one in the order of
 * experts, and rows of one expert in the order of ranks. They come by rank, and
 * rows of one rank by expert. This one has n of E experts, from `first` on.
 *
 *   counts   (P, E)   rows of each rank for each expert
 *   arrival  (R)      written: when each row came
 *   expert   (R)      written: 0 .. n - 1, ascending
 *
 * pad - gives each of E experts P rows: y (E, P, C) has its kept rows of x (R,
 * C), then zeros. P is at least their number.
 *
 * close_up - the opposite: y (R, C) has the rows of x (E, P, C), and zeros
 * where a row is dropped. */
#define PP_COUNT(name)                                                \
    int(name)(int32_t * counts, const struct pp_routing *r, size_t R, \
              size_t E, void *stream)
#define PP_ARRIVALS(name)                                                 \
    int(name)(int32_t * arrival, int32_t * expert, const int32_t *counts, \
              size_t P, size_t E, size_t first, size_t n, void *stream)
#define PP_PAD(name)                                                        \
    int(name)(void *y, const void *x, const struct pp_routing *r, size_t R, \
              size_t E, size_t P, size_t C, void *stream)
typedef PP_PAD(pp_pad_fn); /* and close_up */
typedef PP_COUNT(pp_count_fn);
typedef PP_ARRIVALS(pp_arrivals_fn);

/* The rows of the experts of a rank. */
struct pp_expert_rows {
    size_t n;
    const int32_t *expert; /* (n) ascending */
    const int32_t *counts; /* (n_experts) rows of each, in host memory; only
                              kernels of a GPU read them */
    size_t n_experts;
};

/* grouped - linear of kernels.h for the rows of each expert, with the matrix of
 * that expert. R is rows->n.
 *
 *   x       (R, C)            dx  written
 *   y       (R, OC)           written
 *   b       (OC) of expert 0, or NULL   db  accumulated, or NULL; both lie like
 *           the matrices
 *   w       (OC, C) of expert 0; that of expert e begins e stride elements
 *           behind it         dw  accumulated, in the same places; or written,
 *                                 with `writes`
 * The matrix of an expert without rows is not read, and dw stays as it is. */
#define PP_GROUPED_FWD(name)                                          \
    int(name)(void *y, const void *x, const void *w, const void *b,   \
              const struct pp_expert_rows *rows, size_t C, size_t OC, \
              size_t stride, void *stream)
#define PP_GROUPED_BWD_INPUT(name)                                    \
    int(name)(void *dx, const void *dy, const void *w,                \
              const struct pp_expert_rows *rows, size_t C, size_t OC, \
              size_t stride, void *stream)
#define PP_GROUPED_BWD_WEIGHT(name)                                   \
    int(name)(void *dw, void *db, const void *dy, const void *x,      \
              const struct pp_expert_rows *rows, size_t C, size_t OC, \
              size_t stride, bool writes, void *stream)
typedef PP_GROUPED_FWD(pp_grouped_fwd_fn);
typedef PP_GROUPED_BWD_INPUT(pp_grouped_bwd_input_fn);
typedef PP_GROUPED_BWD_WEIGHT(pp_grouped_bwd_weight_fn);

#define PP_EXPERT_KERNELS(K)                        \
    K(scores, pp_scores_fn)                         \
    K(route_fwd, pp_route_fwd_fn)                   \
    K(route_bwd, pp_route_bwd_fn)                   \
    K(tell_choices, pp_tell_choices_fn)             \
    K(keep, pp_keep_fn)                             \
    K(mark_kept, pp_mark_kept_fn)                   \
    K(add_kept, pp_add_kept_fn)                     \
    K(load, pp_load_fn)                             \
    K(follow_load, pp_follow_load_fn)               \
    K(balance_fwd, pp_balance_fwd_fn)               \
    K(balance_bwd, pp_balance_bwd_fn)               \
    K(logit_size_fwd, pp_logit_size_fwd_fn)         \
    K(logit_size_bwd, pp_logit_size_bwd_fn)         \
    K(spread, pp_spread_fn)                         \
    K(combine, pp_combine_fn)                       \
    K(weigh_bwd, pp_weigh_bwd_fn)                   \
    K(bias_dot, pp_bias_dot_fn)                     \
    K(clamped_swiglu_fwd, pp_clamped_swiglu_fwd_fn) \
    K(clamped_swiglu_bwd, pp_clamped_swiglu_bwd_fn) \
    K(sinks_bwd_input, pp_sinks_bwd_input_fn)       \
    K(add_rows, pp_add_rows_fn)                     \
    K(gate_fwd, pp_gate_fwd_fn)                     \
    K(gate_bwd, pp_gate_bwd_fn)                     \
    K(count, pp_count_fn)                           \
    K(arrivals, pp_arrivals_fn)                     \
    K(pad, pp_pad_fn)                               \
    K(close_up, pp_pad_fn)                          \
    K(grouped_fwd, pp_grouped_fwd_fn)               \
    K(grouped_bwd_input, pp_grouped_bwd_input_fn)   \
    K(grouped_bwd_weight, pp_grouped_bwd_weight_fn)

struct pp_expert_kernels {
#define PP_MEMBER(name, type) type *name;
    PP_EXPERT_KERNELS(PP_MEMBER)
#undef PP_MEMBER
};

#endif
