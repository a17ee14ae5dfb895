/* SPDX-License-Identifier: MIT */
/* linear - y = x W^T + b + r
 *
 *   x  (N, C), ldx           w  (OC, C)
 *   b  (OC) or NULL          r  (N, OC), ldy, or NULL
 *   y  (N, OC), ldy          written
 *
 * Backward is two functions so that a schedule may run them apart (Qi et al.,
 * "Zero Bubble Pipeline Parallelism", ICLR 2024):
 *   bwd_input    dx  = dy W            (N, C)    written
 *   bwd_weight   dw += dy^T x          (OC, C)   accumulated
 *                db += sum over N      (OC)      accumulated, or NULL */
#ifndef PP_KERNELS_LINEAR_H
#define PP_KERNELS_LINEAR_H

#include <stddef.h>

#define PP_LINEAR_FWD(name)                                             \
    int(name)(void *y, const void *x, const void *w, const void *b,     \
              const void *r, size_t N, size_t C, size_t OC, size_t ldy, \
              size_t ldx, void *stream)
#define PP_LINEAR_BWD_INPUT(name)                                          \
    int(name)(void *dx, const void *dy, const void *w, size_t N, size_t C, \
              size_t OC, size_t lddx, size_t lddy, void *stream)
#define PP_LINEAR_BWD_WEIGHT(name)                                         \
    int(name)(void *dw, void *db, const void *dy, const void *x, size_t N, \
              size_t C, size_t OC, size_t lddy, size_t ldx, void *stream)
typedef PP_LINEAR_FWD(pp_linear_fwd_fn);
typedef PP_LINEAR_BWD_INPUT(pp_linear_bwd_input_fn);
typedef PP_LINEAR_BWD_WEIGHT(pp_linear_bwd_weight_fn);

#endif
