/* SPDX-License-Identifier: MIT */
/* emulated_runtime - memory and copies of the CUDA runtime on the CPU, for the
 * tests.
 *
 * Device memory is protected except in kernels and copies, so that host code
 * that accesses it ends the test. A copy reads host memory when it runs. Only
 * page-locked memory may be copied asynchronously, because CUDA does not define
 * whether other memory has been read when the call returns. README.md lists the
 * environment variables. */
#include "cuda_runtime_api.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "emulated_counts.h"
#include "emulated_gate.h"
#include "emulated_gpus.h"
#include "emulated_streams.h"

#define REGION_BYTES ((size_t)2 << 30)
#define PAGE ((size_t)4096)
/* Every kernel changes the protection of all memory, which takes most of the
 * time if the pages are small. */
#define HUGE_PAGE ((size_t)2 << 20)

/* Page-locked memory. */
struct locked {
    struct locked *next;
    char *at;
    size_t bytes;
};

/* Memory of all handles. Allocations are consecutive; it is reused when all are
 * freed. */
static unsigned char *region;
static size_t used, pieces;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static struct locked *all_locked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Replaces the function of the C library. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    const char *earlier = getenv("PP_EMULATED_CLOCK");
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_MONOTONIC && earlier)
        t->tv_sec += atoi(earlier);
    return rc;
}

/* Returns the bytes of the huge pages that have been allocated from. */
static size_t used_pages(void)
{
    return (used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

static void protect(int rights)
{
    if (region && used && mprotect(region, used_pages(), rights) != 0)
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

static void *require_memory(void *p)
{
    if (!p)
        abort();
    return p;
}

/* Returns protected memory, in huge pages if the kernel has them; NULL if there
 * is none. */
static void *open_region(void)
{
    char *p = mmap(NULL, REGION_BYTES + HUGE_PAGE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    p += HUGE_PAGE - (uintptr_t)p % HUGE_PAGE;
    madvise(p, REGION_BYTES, MADV_HUGEPAGE);
    return p;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    size_t whole = (bytes + PAGE) / PAGE * PAGE;
    const char *limit = getenv("PP_EMULATED_BYTES");
    size_t room = limit ? (size_t)atol(limit) : REGION_BYTES;
    *p = NULL;
    pthread_mutex_lock(&gate);
    if (!region)
        region = open_region();
    if (region && used + whole <= room) {
        *p = region + used;
        used += whole;
        pieces++;
    }
    pthread_mutex_unlock(&gate);
    return pp_emulated_keep_error(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Waits for all queued work, as on a GPU. */
cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    pp_emulated_await_gpu(pp_emulated_gpu());
    pthread_mutex_lock(&gate);
    if (--pieces == 0) {
        if (madvise(region, used_pages(), MADV_DONTNEED) != 0)
            abort();
        used = 0;
    }
    pthread_mutex_unlock(&gate);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    struct locked *l = require_memory(malloc(sizeof *l));
    (void)flags;
    *p = require_memory(malloc(bytes));
    *l = (struct locked){all_locked, *p, bytes};
    pp_emulated_count(PP_WORK_LOCKED, bytes);
    pthread_mutex_lock(&lock);
    l->next = all_locked;
    all_locked = l;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    pthread_mutex_lock(&lock);
    for (struct locked **at = &all_locked; *at; at = &(*at)->next)
        if ((*at)->at == p) {
            struct locked *l = *at;
            *at = l->next;
            free(l);
            break;
        }
    pthread_mutex_unlock(&lock);
    free(p);
    return cudaSuccess;
}

static bool on_device(const void *p)
{
    uintptr_t at = (uintptr_t)p, first = (uintptr_t)region;
    return region && at >= first && at < first + REGION_BYTES;
}

static bool is_locked(const void *p)
{
    uintptr_t at = (uintptr_t)p;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (struct locked *l = all_locked; l && !found; l = l->next)
        found = at >= (uintptr_t)l->at && at < (uintptr_t)l->at + l->bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

struct copy {
    void *to;
    const void *from; /* NULL: writes the byte value */
    size_t bytes;
    int value;
};

static void run_copy(void *arg)
{
    struct copy *c = arg;
    pp_emulated_enter();
    if (c->from)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, c->value, c->bytes);
    pp_emulated_leave();
    free(c);
}

/* Queues a copy, or a write of a byte value. */
static void queue_copy(cudaStream_t s, struct copy c)
{
    struct copy *queued = require_memory(malloc(sizeof *queued));
    *queued = c;
    pp_emulated_count(PP_WORK_COPIES, 1);
    pp_emulated_count(PP_WORK_BYTES, c.bytes);
    pp_emulated_give(s, PP_TASK_COPY, 0, run_copy, queued);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    queue_copy(s, (struct copy){.to = p, .bytes = bytes, .value = value});
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    bool from_device = on_device(from), to_device = on_device(to);
    if ((kind == cudaMemcpyHostToDevice && (from_device || !to_device)) ||
        (kind == cudaMemcpyDeviceToHost && (!from_device || to_device)))
        return cudaErrorInvalidValue;
    if (bytes == 0)
        return cudaSuccess;
    if (!from_device && !is_locked(from))
        pp_emulated_refuse_call("a copy from memory that is not page-locked");
    queue_copy(s, (struct copy){.to = to, .from = from, .bytes = bytes});
    if (!to_device && !is_locked(to))
        pp_emulated_await_stream(s);
    return cudaSuccess;
}
