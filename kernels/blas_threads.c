/* SPDX-License-Identifier: MIT */
/* blas_threads - the threads of OpenBLAS and their memory. */
#include <cblas.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "kernels.h"
#include "blas_places.h"

/* BUFFER_SIZE of OpenBLAS, 128 MiB, and as much for the stack and the heap that
 * a new thread maps. */
#define WORKSPACE ((size_t)256 << 20)

/* A process has one OpenBLAS, and every product takes a buffer of it. OpenBLAS
 * has two buffers for each thread that it was built for, often 64 threads, and
 * crashes if none is left. So the process has one count of products. */
enum { MOST_PRODUCTS = 128 };

static struct {
    atomic_int left, waiting;
    pthread_mutex_t lock;
    pthread_cond_t freed;
} product_places = {MOST_PRODUCTS, 0, PTHREAD_MUTEX_INITIALIZER,
                    PTHREAD_COND_INITIALIZER};

static bool take_place(void)
{
    int n = product_places.left;
    while (n > 0)
        if (atomic_compare_exchange_weak(&product_places.left, &n, n - 1))
            return true;
    return false;
}

/* Either this sees a place that is given back, or who gives it back sees this
 * wait. */
void pp_blas_begin(void)
{
    if (take_place())
        return;
    pthread_mutex_lock(&product_places.lock);
    product_places.waiting++;
    while (!take_place())
        pthread_cond_wait(&product_places.freed, &product_places.lock);
    product_places.waiting--;
    pthread_mutex_unlock(&product_places.lock);
}

void pp_blas_end(void)
{
    product_places.left++;
    if (product_places.waiting == 0)
        return;
    pthread_mutex_lock(&product_places.lock);
    pthread_cond_signal(&product_places.freed);
    pthread_mutex_unlock(&product_places.lock);
}

void pp_blas_set_threads(int n)
{
    openblas_set_num_threads(n);
}

bool pp_blas_has_memory(int n, size_t *bytes)
{
    *bytes = (size_t)(n < MOST_PRODUCTS ? n : MOST_PRODUCTS) * WORKSPACE;
    void *p = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p != MAP_FAILED && munmap(p, *bytes) == 0;
}
