/* SPDX-License-Identifier: MIT */
/* emulated_runtime - the CUDA runtime on the CPU, for the tests. Every stream
 * has a thread, so that work is asynchronous and streams run in parallel.
 *
 * Device memory is protected except in kernels and copies, so that host code
 * that accesses it ends the test. A copy reads host memory when it runs. Only
 * page-locked memory may be copied asynchronously, because CUDA does not define
 * whether other memory has been read when the call returns. A wait for an event
 * that was not recorded does nothing. README.md lists the environment
 * variables. */
#include "cuda_runtime_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda_stream.h"
#include "emulated_counts.h"
#include "emulated_gate.h"
#include "emulated_gpus.h"

#define REGION_BYTES ((size_t)2 << 30)
#define PAGE ((size_t)4096)
/* Every kernel changes the protection of all memory, which takes most of the
 * time if the pages are small. */
#define HUGE_PAGE ((size_t)2 << 20)

struct task {
    struct task *next;
    void (*run)(void *arg);
    void *arg;
    bool is_kernel;
    uint64_t number; /* index of all queued tasks */
};

struct CUstream_st {
    struct CUstream_st *next; /* all streams ever opened: events outlive them */
    pthread_t thread, owner;  /* owner: the thread that opened it */
    int gpu;                  /* of the owner */
    pthread_cond_t has_task;  /* or is closed */
    pthread_cond_t task_done;
    struct task *first, **last;
    struct task *running;
    uint64_t n_queued, n_done;
    uint64_t awaited; /* least n_done that a thread waits for, 0: none */
    unsigned jitter;  /* state of the random delays, 0: none */
    bool closed;
};

/* The first n tasks of a stream. */
struct point {
    struct CUstream_st *stream; /* NULL: nothing */
    uint64_t n;
};

struct CUevent_st {
    struct point at;
    int gpu;
    bool is_timed;
    double seconds; /* when the stream reached it, with is_timed */
};

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

static struct CUstream_st *streams;
static struct locked *all_locked;
static unsigned n_streams;
static uint64_t n_queued, n_passed;
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

/* Delays a stream at random times. The caller has the lock. */
static void fall_behind(struct CUstream_st *s)
{
    if (!s->jitter || rand_r(&s->jitter) % 8 != 0)
        return;
    pthread_mutex_unlock(&lock);
    usleep((unsigned)rand_r(&s->jitter) % 2000);
    pthread_mutex_lock(&lock);
}

/* Waits until n tasks of a stream are done. The caller has the lock. A thread
 * that waits for many tasks wakes when the last one is done. */
static void wait_until_done(struct CUstream_st *s, uint64_t n)
{
    while (s->n_done < n) {
        if (!s->awaited || n < s->awaited)
            s->awaited = n;
        pthread_cond_wait(&s->task_done, &lock);
    }
}

static bool is_older(const struct task *a, const struct task *b)
{
    return a && a->is_kernel && a->number < b->number;
}

/* Returns whether another stream of the same rank has an earlier kernel that is
 * not done. */
static bool passes(const struct CUstream_st *s, const struct task *t)
{
    for (const struct CUstream_st *o = streams; t->is_kernel && o; o = o->next)
        if (o != s && !o->closed && pthread_equal(o->owner, s->owner) &&
            (is_older(o->running, t) || is_older(o->first, t)))
            return true;
    return false;
}

uint64_t pp_emulated_passed(void)
{
    pthread_mutex_lock(&lock);
    uint64_t n = n_passed;
    pthread_mutex_unlock(&lock);
    return n;
}

static void *run_stream(void *arg)
{
    struct CUstream_st *s = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first && !s->closed)
            pthread_cond_wait(&s->has_task, &lock);
        struct task *t = s->first;
        if (!t)
            break;
        s->first = t->next;
        if (!s->first)
            s->last = &s->first;
        s->running = t;
        fall_behind(s);
        n_passed += passes(s, t);
        pthread_mutex_unlock(&lock);
        t->run(t->arg);
        pthread_mutex_lock(&lock);
        s->running = NULL;
        free(t);
        if (++s->n_done == s->awaited) {
            s->awaited = 0;
            pthread_cond_broadcast(&s->task_done);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void queue_task(struct CUstream_st *s, void (*run)(void *), void *arg,
                       bool is_kernel)
{
    struct task *t = require_memory(malloc(sizeof *t));
    *t = (struct task){.run = run, .arg = arg, .is_kernel = is_kernel};
    pthread_mutex_lock(&lock);
    t->number = n_queued++;
    *s->last = t;
    s->last = &t->next;
    s->n_queued++;
    pthread_cond_signal(&s->has_task);
    pthread_mutex_unlock(&lock);
}

static void queue(struct CUstream_st *s, void (*run)(void *), void *arg)
{
    queue_task(s, run, arg, false);
}

void pp_emulated_queue(void *stream, void (*run)(void *), void *arg)
{
    if (cudaGetLastError() != cudaSuccess)
        pp_emulated_refuse_call(
            "a launch is taken to have failed where an older call did");
    struct CUstream_st *s =
        require_memory(((struct pp_cuda_stream *)stream)->stream);
    if (s->gpu != pp_emulated_gpu())
        pp_emulated_refuse_call("a launch in a stream of another GPU");
    pp_emulated_count(PP_WORK_KERNELS, 1);
    queue_task(s, run, arg, true);
}

static void wait_for(struct point p)
{
    pthread_mutex_lock(&lock);
    if (p.stream)
        wait_until_done(p.stream, p.n);
    pthread_mutex_unlock(&lock);
}

/* The same for a call of the host. */
static void wait_by_host(struct point p)
{
    wait_for(p);
    pp_emulated_count(PP_WORK_HOST_WAITS, 1);
}

static struct point end_of_stream(struct CUstream_st *s)
{
    pthread_mutex_lock(&lock);
    struct point p = {s, s->n_queued};
    pthread_mutex_unlock(&lock);
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

void pp_emulated_await_device(void)
{
    pthread_mutex_lock(&lock);
    for (struct CUstream_st *s = streams; s; s = s->next)
        wait_until_done(s, s->n_queued);
    pthread_mutex_unlock(&lock);
}

/* Waits for all queued work, as on a GPU. */
cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    pp_emulated_await_device();
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
    queue(s, run_copy, queued);
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
        wait_by_host(end_of_stream(s));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    struct CUstream_st *s = require_memory(calloc(1, sizeof *s));
    const char *seed = getenv("PP_EMULATED_JITTER");
    (void)flags;
    s->last = &s->first;
    s->owner = pthread_self();
    s->gpu = pp_emulated_gpu();
    pthread_cond_init(&s->has_task, NULL);
    pthread_cond_init(&s->task_done, NULL);
    pthread_mutex_lock(&lock);
    s->jitter = seed ? (unsigned)atoi(seed) * 1000 + ++n_streams : 0;
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    if (pthread_create(&s->thread, NULL, run_stream, s) != 0)
        abort();
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    pthread_mutex_lock(&lock);
    s->closed = true;
    pthread_cond_signal(&s->has_task);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    wait_by_host(end_of_stream(s));
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    pthread_mutex_lock(&lock);
    bool is_done = s->n_done == s->n_queued;
    pthread_mutex_unlock(&lock);
    return pp_emulated_keep_error(is_done ? cudaSuccess : cudaErrorNotReady);
}

static void run_wait(void *arg)
{
    struct point *p = arg;
    wait_for(*p);
    free(p);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    struct point *p = require_memory(malloc(sizeof *p));
    (void)flags;
    pthread_mutex_lock(&lock);
    *p = e->at;
    pthread_mutex_unlock(&lock);
    queue(s, run_wait, p);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t run, void *arg)
{
    queue(s, run, arg);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    *e = require_memory(calloc(1, sizeof **e));
    (*e)->gpu = pp_emulated_gpu();
    (*e)->is_timed = flags == cudaEventDefault;
    return flags == cudaEventDefault || flags == cudaEventDisableTiming
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

/* Waits for the recording of a timed event. */
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    if (e->is_timed)
        wait_for(e->at);
    free(e);
    return cudaSuccess;
}

static void run_timed(void *arg)
{
    struct CUevent_st *e = arg;
    e->seconds = pp_clock();
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (e->gpu != s->gpu)
        pp_emulated_refuse_call("an event of one GPU in a stream of another");
    if (e->is_timed)
        queue(s, run_timed, e);
    struct point p = end_of_stream(s);
    pthread_mutex_lock(&lock);
    e->at = p;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static bool is_done(const struct CUevent_st *e)
{
    pthread_mutex_lock(&lock);
    bool done = e->at.stream && e->at.stream->n_done >= e->at.n;
    pthread_mutex_unlock(&lock);
    return done;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    wait_by_host(e->at);
    return cudaSuccess;
}

/* Sets *ms to milliseconds as a float, as CUDA does. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->is_timed || !to->is_timed)
        return pp_emulated_keep_error(cudaErrorInvalidValue);
    if (!is_done(from) || !is_done(to))
        return pp_emulated_keep_error(cudaErrorNotReady);
    *ms = (float)(1e3 * (to->seconds - from->seconds));
    return cudaSuccess;
}
