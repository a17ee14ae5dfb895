/* SPDX-License-Identifier: MIT */
/* gpu - the device of the kernel tests: a GPU (gpu_cuda.c) or the emulated
 * device (gpu_emulated.c). */
#ifndef PP_TESTS_GPU_H
#define PP_TESTS_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda_stream.h"

/* Opens the device. Returns NULL, or the reason why there is none. */
const char *gpu_open(void);
const char *gpu_name(void);

/* Returns the stream argument of kernels. */
struct pp_cuda_stream *gpu_stream(void);

/* Allocates device memory. Ends the program on failure. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *p);
void gpu_put(void *to, const void *from, size_t bytes);
void gpu_get(void *to, const void *from, size_t bytes); /* after all work */

#endif
