/* SPDX-License-Identifier: MIT */
/* gpu - the device that the CUDA kernels are tested on: a GPU (gpu_cuda.c), or
 * the CPU in its place (gpu_emulated.c). */
#ifndef PP_TESTS_GPU_H
#define PP_TESTS_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda_stream.h"

/* Opens the device. NULL, or why there is none. */
const char *gpu_open(void);
const char *gpu_name(void);

/* What kernels are given as their stream. */
struct pp_cuda_stream *gpu_stream(void);

/* Device memory; failure ends the program. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *p);
void gpu_put(void *to, const void *from, size_t bytes);
void gpu_get(void *to, const void *from, size_t bytes); /* after all work */

#endif
