/* SPDX-License-Identifier: MIT */
/* timed - a kernel table that clocks its matrix products. */
#ifndef PP_RUN_TIMING_TIMED_KERNELS_H
#define PP_RUN_TIMING_TIMED_KERNELS_H

#include "kernels.h"

/* The stream of a rank whose table is timed. One thread uses it. */
struct pp_timed_stream {
    const struct pp_kernels *inner;
    void *stream; /* handed on */
    double product_seconds;
};

/* A copy of inner whose linear_* add their time to the stream, which must be a
 * struct pp_timed_stream; other kernels of a CPU table ignore it. Attention's
 * products are inside attention and are not counted. */
struct pp_kernels pp_timed_kernels(const struct pp_kernels *inner);

#endif
