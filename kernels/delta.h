/* SPDX-License-Identifier: MIT */
/* delta - linear attention by the gated delta rule (Yang et al., "Gated Delta
 * Networks: Improving Mamba2 with Delta Rule", 2024), as Qwen3-Next and Qwen3.5
 * have it. Shapes: NK key heads of DK elements, NV value heads of DV, which
 * share key heads in turn; channels CH = 2 NK DK + NV DV.
 *
 *   in    (N, R)        queries, keys and values (CH), then z (NV DV), b (NV)
 *                       and a (NV): R = CH + NV DV + 2 NV; or grouped: query,
 *                       key, values and z of each key head, then b and a of
 *                       each
 *   conv  (CH, taps)    dt, log (NV)    norm (DV)
 * The heads may be one of several equal shares of a layer's heads: conv, dt and
 * log have all heads of the layer, and so have their gradients.
 *
 * u = the causal convolution of each channel within its sequence, then
 * q, k, v = silu(u); q and k of each head are divided by their lengths, and q
 * by sqrt(DK) too. For each value head, with a state S (DK, DV) that is 0
 * before a sequence, beta = sigmoid(b) and g = -exp(log) softplus(a + dt), S =
 * exp(g) S;  S += k (beta (v - S^T k))^T;  o = S^T q y = o rstd(o) norm silu(z)
 *   o, y  (N, NV DV)    written
 * Backward:
 *   bwd_input   din (N, R), du (N, CH), dnorm (N, DV)    written: gradients of
 *               in and of u, and of norm by each token
 *   bwd_weight  dconv, ddt, dlog, dweight    accumulated, rows ascending
 *
 * States are computed again in backward: scratch has one for every
 * PP_DELTA_ROWS rows, and the states of so many rows.
 *
 * The rows may be a part of a sequence. What passes between parts, in the type
 * of statistics, has pp_delta_passes elements: the states (NV, DK, DV), the
 * last taps - 1 rows that the convolution read, and from the other side the
 * gradients of the first taps - 1 rows of u, (taps - 1, CH) each:
 *   before   read: states and rows, 0 if they are outside of the sequence. NULL
 *            if no sequence goes on here. bwd_input puts the gradients of the
 *            states in the place of the states, and the gradients of u behind
 *            them
 *   behind   likewise what passes to the next part: fwd writes states and rows,
 *            bwd_input and bwd_weight read gradients; NULL: there is none */
#ifndef PP_KERNELS_DELTA_H
#define PP_KERNELS_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_sizes.h"

struct pp_delta_shape {
    size_t N, NK, NV, DK, DV, taps;
    bool grouped;
    size_t n_sequences;
    const int32_t *cu_padded; /* (n_sequences + 1) */
    double eps;               /* of rstd */
    size_t share, others;     /* the number of this share, and of the others */
    void *before, *behind;
};

struct pp_delta_weights {
    const void *conv, *dt, *log, *norm;
};
struct pp_delta_gradients {
    void *conv, *dt, *log, *norm;
};

#define PP_DELTA_FWD(name)                      \
    int(name)(void *y, void *o, const void *in, \
              const struct pp_delta_weights *w, \
              const struct pp_delta_shape *s, void *scratch, void *stream)
#define PP_DELTA_BWD_INPUT(name)                                               \
    int(name)(void *din, void *du, void *dnorm, const void *dy,                \
              const void *in, const void *o, const struct pp_delta_weights *w, \
              const struct pp_delta_shape *s, void *scratch, void *stream)
#define PP_DELTA_BWD_WEIGHT(name)                                  \
    int(name)(const struct pp_delta_gradients *g, const void *din, \
              const void *du, const void *dnorm, const void *in,   \
              const struct pp_delta_weights *w,                    \
              const struct pp_delta_shape *s, void *stream)

struct pp_delta_kernels {
    PP_DELTA_FWD(*fwd);
    PP_DELTA_BWD_INPUT(*bwd_input);
    PP_DELTA_BWD_WEIGHT(*bwd_weight);
};

#endif
