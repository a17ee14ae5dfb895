/* SPDX-License-Identifier: MIT */
/* timed_kernels - a kernel table that times its matrix products. */
#ifndef PP_RUN_TIMING_TIMED_KERNELS_H
#define PP_RUN_TIMING_TIMED_KERNELS_H

#include "kernels.h"

/* The stream of a rank that uses the timed table. One thread uses it. */
struct pp_timed_stream {
    const struct pp_kernels *inner;
    void *stream; /* the stream of inner */
    double product_seconds;
};

/* Returns a copy of inner whose linear_* kernels add their time to their
 * stream, which must be a struct pp_timed_stream. The other kernels of a CPU
 * table ignore the stream. The products inside attention do not count. */
struct pp_kernels pp_timed_kernels(const struct pp_kernels *inner);

#endif
