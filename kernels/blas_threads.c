/* SPDX-License-Identifier: MIT */
/* blas_threads for OpenBLAS. */
#include "blas_threads.h"

#include <cblas.h>
#include <sys/mman.h>

/* OpenBLAS's BUFFER_SIZE of 128 MiB, and as much for the stack and the heap
 * that a thread maps when it starts. */
#define WORKSPACE ((size_t)256 << 20)

void pp_cpu_blas_threads(int n)
{
    openblas_set_num_threads(n);
}

bool pp_cpu_blas_has_room(int n, size_t *bytes)
{
    *bytes = (size_t)n * WORKSPACE;
    void *p = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p != MAP_FAILED && munmap(p, *bytes) == 0;
}
