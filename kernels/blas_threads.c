/* SPDX-License-Identifier: MIT */
/* blas_threads - the threads of OpenBLAS and their memory. */
#include <cblas.h>
#include <sys/mman.h>

#include "kernels.h"

/* BUFFER_SIZE of OpenBLAS, 128 MiB, and as much for the stack and the heap that
 * a new thread maps. */
#define WORKSPACE ((size_t)256 << 20)

void pp_blas_set_threads(int n)
{
    openblas_set_num_threads(n);
}

bool pp_blas_has_memory(int n, size_t *bytes)
{
    *bytes = (size_t)n * WORKSPACE;
    void *p = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p != MAP_FAILED && munmap(p, *bytes) == 0;
}
