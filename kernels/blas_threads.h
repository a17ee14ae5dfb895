/* SPDX-License-Identifier: MIT */
/* blas_threads - how many threads the BLAS may use, for the whole process.
 *
 * Ranks that are threads of one process each want one: more of them changes
 * the last bits of a product with some of OpenBLAS's kernels. */
#ifndef PP_KERNELS_BLAS_THREADS_H
#define PP_KERNELS_BLAS_THREADS_H

/* n > 0. Call once, before the first product. */
void pp_cpu_blas_threads(int n);

#endif
