/* SPDX-License-Identifier: MIT */
/* elementwise - operations on whole tensors.
 *
 *   add           y = a + b       n elements; y may be a or b
 *   add_gradient  y = a + b       the same for accumulated values
 *   copy          y = x           (N, C), ldy, ldx
 *   zero          y = 0           n elements
 *   sum_squares   *out = sum x^2  of accumulated values, in double, in an order
 *                                 that depends on n only. The CPU adds blocks
 * of 1024 in ascending order, each with dot_rows of real.h. */
#ifndef PP_KERNELS_ELEMENTWISE_H
#define PP_KERNELS_ELEMENTWISE_H

#include <stddef.h>

#define PP_ADD(name) \
    int(name)(void *y, const void *a, const void *b, size_t n, void *stream)
#define PP_COPY(name)                                                 \
    int(name)(void *y, const void *x, size_t N, size_t C, size_t ldy, \
              size_t ldx, void *stream)
#define PP_ZERO(name) int(name)(void *y, size_t n, void *stream)
#define PP_SUM_SQUARES(name) \
    int(name)(double *out, const void *x, size_t n, void *stream)
typedef PP_ADD(pp_add_fn);
typedef PP_COPY(pp_copy_fn);
typedef PP_ZERO(pp_zero_fn);
typedef PP_SUM_SQUARES(pp_sum_squares_fn);

#endif
