/* SPDX-License-Identifier: MIT */
#include "device_emulated.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cublas.h"
#include "cuda_stream.h"
#include "emulated_blas.h"
#include "emulated_gate.h"

/* Memory of all handles: taken from the front, given back when nobody has any
 * of it. */
#define REGION_BYTES ((size_t)256 << 20)
#define PAGE ((size_t)4096)
static unsigned char *region;
static size_t used, pieces;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void protect(int rights)
{
    if (region && used && mprotect(region, used, rights) != 0)
        abort();
}

void pp_emulated_enter(void)
{
    pthread_mutex_lock(&gate);
    protect(PROT_READ | PROT_WRITE);
}

void pp_emulated_leave(void)
{
    protect(PROT_NONE);
    pthread_mutex_unlock(&gate);
}

static int gemm(void *handle, int op_a, int op_b, int m, int n, int k,
                const void *alpha, const void *a, int type_a, int lda,
                const void *b, int type_b, int ldb, const void *beta, void *c,
                int type_c, int ldc, int compute, int algorithm)
{
    pp_emulated_enter();
    int rc =
        pp_emulated_gemm(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b,
                         type_b, ldb, beta, c, type_c, ldc, compute, algorithm);
    pp_emulated_leave();
    return rc;
}

static const struct pp_cublas cublas = {.gemm = gemm};

struct handle {
    struct pp_device base;
    struct pp_cuda_stream stream;
};

static int emulated_check(int n_ranks, struct pp_err *err)
{
    (void)n_ranks, (void)err;
    return 0;
}

static void *emulated_alloc(struct pp_device *d, size_t bytes)
{
    (void)d;
    pthread_mutex_lock(&gate);
    if (!region) {
        void *p = mmap(NULL, REGION_BYTES, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        region = p == MAP_FAILED ? NULL : p;
    }
    size_t whole = (bytes + PAGE) / PAGE * PAGE;
    unsigned char *p = NULL;
    if (region && whole <= REGION_BYTES - used) {
        p = region + used;
        used += whole;
        pieces++;
    }
    pthread_mutex_unlock(&gate);
    return p;
}

static void emulated_free(struct pp_device *d, void *p)
{
    (void)d;
    pthread_mutex_lock(&gate);
    if (p && --pieces == 0) {
        if (madvise(region, used, MADV_DONTNEED) != 0) /* zero again */
            abort();
        used = 0;
    }
    pthread_mutex_unlock(&gate);
}

static int emulated_open(int rank, struct pp_device **out, struct pp_err *err)
{
    (void)rank;
    struct handle *h = calloc(1, sizeof *h);
    if (!h)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    h->base.ops = &pp_device_emulated;
    h->base.stream = &h->stream;
    h->stream.cublas = &cublas;
    h->stream.partials = emulated_alloc(&h->base, PP_CUDA_PARTIAL_BYTES);
    *out = &h->base;
    return 0;
}

static void emulated_close(struct pp_device *d)
{
    struct handle *h = (struct handle *)d;
    if (h)
        emulated_free(d, h->stream.partials);
    free(h);
}

static int emulated_copy(struct pp_device *d, void *to, const void *from,
                         size_t bytes, struct pp_err *err)
{
    (void)d, (void)err;
    pp_emulated_enter();
    if (bytes)
        memcpy(to, from, bytes);
    pp_emulated_leave();
    return 0;
}

static int emulated_zero(struct pp_device *d, void *p, size_t bytes,
                         struct pp_err *err)
{
    (void)d, (void)err;
    pp_emulated_enter();
    memset(p, 0, bytes);
    pp_emulated_leave();
    return 0;
}

static int emulated_wait(struct pp_device *d, struct pp_err *err)
{
    (void)d, (void)err;
    return 0;
}

const struct pp_device_ops pp_device_emulated = {
    .name = "emulated",
    .check = emulated_check,
    .open = emulated_open,
    .close = emulated_close,
    .alloc = emulated_alloc,
    .free = emulated_free,
    .put = emulated_copy,
    .get = emulated_copy,
    .copy = emulated_copy,
    .zero = emulated_zero,
    .wait = emulated_wait,
};
