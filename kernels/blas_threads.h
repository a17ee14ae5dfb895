/* SPDX-License-Identifier: MIT */
/* blas_threads - how many threads the BLAS may use, for the whole process.
 *
 * Ranks that are threads of one process each want one: more of them changes
 * the last bits of a product with some of OpenBLAS's kernels. */
#ifndef PP_KERNELS_BLAS_THREADS_H
#define PP_KERNELS_BLAS_THREADS_H

#include <stdbool.h>
#include <stddef.h>

/* n > 0. Call once, before the first product. */
void pp_cpu_blas_threads(int n);

/* Whether the process may still map what n threads need for their products,
 * *bytes in all. OpenBLAS, when it is refused, asks again for ever. */
bool pp_cpu_blas_has_room(int n, size_t *bytes);

#endif
