/* SPDX-License-Identifier: MIT */
/* rmsnorm - y = x rstd(x) w, rstd = 1 / sqrt(mean(x^2) + eps)
 *
 * Each row holds G groups of C elements. Every group is normalised alone, with
 * the same weight: G = 1 for a layer's norm, G = heads for the norm of each
 * query or key head.
 *   x     (N, G, C), ldx        w  (C)
 *   y     (N, G, C), ldy        written; y may be x
 *   rstd  (N, G), ldr           written
 * Backward, from the same x:
 *   bwd_input    dx   (N, G, C), lddx    written; dx may be dy
 *   bwd_weight   dw   (C)                accumulated, rows ascending */
#ifndef PP_KERNELS_RMSNORM_H
#define PP_KERNELS_RMSNORM_H

#include <stddef.h>

#define PP_RMSNORM_FWD(name)                                               \
    int(name)(void *y, void *rstd, const void *x, const void *w, size_t N, \
              size_t G, size_t C, size_t ldy, size_t ldr, size_t ldx,      \
              double eps, void *stream)
#define PP_RMSNORM_BWD_INPUT(name)                                       \
    int(name)(void *dx, const void *dy, const void *x, const void *rstd, \
              const void *w, size_t N, size_t G, size_t C, size_t lddx,  \
              size_t lddy, size_t ldx, size_t ldr, void *stream)
#define PP_RMSNORM_BWD_WEIGHT(name)                                      \
    int(name)(void *dw, const void *dy, const void *x, const void *rstd, \
              size_t N, size_t G, size_t C, size_t lddy, size_t ldx,     \
              size_t ldr, void *stream)
typedef PP_RMSNORM_FWD(pp_rmsnorm_fwd_fn);
typedef PP_RMSNORM_BWD_INPUT(pp_rmsnorm_bwd_input_fn);
typedef PP_RMSNORM_BWD_WEIGHT(pp_rmsnorm_bwd_weight_fn);

#endif
