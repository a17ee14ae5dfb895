/* SPDX-License-Identifier: MIT */
/* swiglu - y = silu(gate) up
 *
 *   gu   (N, 2C)   gate in columns 0..C-1, up in C..2C-1
 *   y    (N, C)    written
 *   dgu  (N, 2C)   written */
#ifndef PP_KERNELS_SWIGLU_H
#define PP_KERNELS_SWIGLU_H

#include <stddef.h>

#define PP_SWIGLU_FWD(name) \
    int(name)(void *y, const void *gu, size_t N, size_t C, void *stream)
#define PP_SWIGLU_BWD(name)                                                  \
    int(name)(void *dgu, const void *dy, const void *gu, size_t N, size_t C, \
              void *stream)
typedef PP_SWIGLU_FWD(pp_swiglu_fwd_fn);
typedef PP_SWIGLU_BWD(pp_swiglu_bwd_fn);

#endif
