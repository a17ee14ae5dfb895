/* SPDX-License-Identifier: MIT */
/* rope - rotary position embedding, half-split: element i pairs with i + HD/2.
 *
 *   x         (N, G, HD), ldx            updated in place; G heads of each row
 *   cos, sin  (max position, HD / 2)     tables of the accumulator's type
 *   position  (N)                        row of the tables for each token
 * direction +1 rotates (forward), -1 rotates back (the gradient). */
#ifndef PP_KERNELS_ROPE_H
#define PP_KERNELS_ROPE_H

#include <stddef.h>
#include <stdint.h>

#define PP_ROPE(name)                                                 \
    int(name)(void *x, const void *cos, const void *sin,              \
              const int32_t *position, size_t N, size_t G, size_t HD, \
              size_t ldx, int direction, void *stream)
typedef PP_ROPE(pp_rope_fn);

#endif
