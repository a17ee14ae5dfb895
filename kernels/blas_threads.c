/* SPDX-License-Identifier: MIT */
/* blas_threads for OpenBLAS. */
#include "blas_threads.h"

#include <cblas.h>

void pp_cpu_blas_threads(int n)
{
    openblas_set_num_threads(n);
}
