/* SPDX-License-Identifier: MIT */
/* emulated_streams - streams and events of the CUDA runtime on the CPU. Every
 * stream has a thread, so that work is asynchronous and streams run in
 * parallel, as far as hardware queues and processors let them. A wait for an
 * event that was not recorded does nothing.
 *
 * What waits for other work on a GPU waits here: a task behind another one of
 * its hardware queue, a kernel while kernels of NCCL hold all processors, the
 * host if a hardware queue is full or code is loaded at its first use (CUDA
 * Programming Guide, lazy loading). README.md lists the environment
 * variables. */
#include "emulated_streams.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda_stream.h"
#include "emulated_counts.h"
#include "emulated_gate.h"
#include "emulated_gpus.h"

enum { MOST_GPUS = 32, MOST_QUEUES = 32, MOST_CODE = 4096 };

struct task {
    struct task *next, *behind; /* of the stream, and of the hardware queue */
    void (*run)(void *arg);
    void *arg;
    enum pp_emulated_task kind;
    int blocks, held; /* held: processors */
    uint64_t number;  /* index of all queued tasks */
};

/* A hardware queue. */
struct line {
    struct task *first, **last;
    int n;
    pthread_cond_t moved;
};

static struct {
    struct line lines[MOST_QUEUES];
    int n_streams, busy; /* busy: processors */
    pthread_cond_t freed;
} gpus[MOST_GPUS];

struct CUstream_st {
    struct CUstream_st *next; /* all streams ever opened: events outlive them */
    pthread_t thread, owner;  /* owner: the thread that opened it */
    int gpu;                  /* of the owner */
    int priority;             /* 0, or below it to go first */
    struct line *line;
    pthread_cond_t has_task; /* or is closed */
    pthread_cond_t task_done;
    struct task *first, **last;
    struct task *running; /* or about to begin */
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

static struct CUstream_st *streams;
static unsigned n_streams;
static uint64_t n_queued, n_passed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void *require_memory(void *p)
{
    if (!p)
        abort();
    return p;
}

/* --- a stream's thread; functions that wait have the lock --- */

/* Delays a stream at random times. */
static void fall_behind(struct CUstream_st *s)
{
    if (!s->jitter || rand_r(&s->jitter) % 8 != 0)
        return;
    pthread_mutex_unlock(&lock);
    usleep((unsigned)rand_r(&s->jitter) % 2000);
    pthread_mutex_lock(&lock);
}

/* Waits until n tasks of a stream are done. A thread that waits for many tasks
 * wakes when the last one is done. */
static void wait_until_done(struct CUstream_st *s, uint64_t n)
{
    while (s->n_done < n) {
        if (!s->awaited || n < s->awaited)
            s->awaited = n;
        pthread_cond_wait(&s->task_done, &lock);
    }
}

static bool is_kernel(const struct task *t)
{
    return t->kind == PP_TASK_KERNEL;
}

static bool is_older(const struct task *a, const struct task *b)
{
    return a && is_kernel(a) && a->number < b->number;
}

/* Returns whether another stream of the same rank has an earlier kernel that is
 * not done. */
static bool passes(const struct CUstream_st *s, const struct task *t)
{
    for (const struct CUstream_st *o = streams; is_kernel(t) && o; o = o->next)
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

static void leave_line(struct line *l)
{
    l->first = l->first->behind;
    if (!l->first)
        l->last = &l->first;
    l->n--;
    pthread_cond_broadcast(&l->moved);
}

/* Returns when a task may run. */
static void begin(struct CUstream_st *s, struct task *t)
{
    int *busy = &gpus[s->gpu].busy;
    int most = pp_emulated_processors();
    while (s->line->first != t)
        pthread_cond_wait(&s->line->moved, &lock);
    while (t->blocks > 0 && *busy >= most)
        pthread_cond_wait(&gpus[s->gpu].freed, &lock);
    t->held = t->blocks < most - *busy ? t->blocks : most - *busy;
    *busy += t->held;
    if (t->kind != PP_TASK_WAIT)
        leave_line(s->line);
}

static void end(struct CUstream_st *s, struct task *t)
{
    if (t->kind == PP_TASK_WAIT)
        leave_line(s->line);
    gpus[s->gpu].busy -= t->held;
    if (t->held)
        pthread_cond_broadcast(&gpus[s->gpu].freed);
    if (++s->n_done == s->awaited) {
        s->awaited = 0;
        pthread_cond_broadcast(&s->task_done);
    }
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
        begin(s, t);
        n_passed += passes(s, t);
        pthread_mutex_unlock(&lock);
        t->run(t->arg);
        pthread_mutex_lock(&lock);
        s->running = NULL;
        end(s, t);
        free(t);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* --- work for a stream --- */

static bool has_room(const struct line *l)
{
    return l->n < setting("PP_EMULATED_LAUNCHES", 1024);
}

void pp_emulated_give(cudaStream_t s, enum pp_emulated_task kind, int blocks,
                      void (*run)(void *), void *arg)
{
    struct line *l = s->line;
    struct task *t = require_memory(malloc(sizeof *t));
    *t = (struct task){.run = run, .arg = arg, .kind = kind, .blocks = blocks};
    pthread_mutex_lock(&lock);
    while (!has_room(l))
        pthread_cond_wait(&l->moved, &lock);
    t->number = n_queued++;
    *l->last = t;
    l->last = &t->behind;
    l->n++;
    *s->last = t;
    s->last = &t->next;
    s->n_queued++;
    pthread_cond_signal(&s->has_task);
    pthread_mutex_unlock(&lock);
}

bool pp_emulated_has_room(cudaStream_t s)
{
    pthread_mutex_lock(&lock);
    bool room = has_room(s->line);
    pthread_mutex_unlock(&lock);
    return room;
}

/* Returns whether a GPU has not had this code before. */
static bool is_new(const void *code, int gpu)
{
    static const void *known[MOST_CODE];
    static uint32_t loaded[MOST_CODE]; /* bits of GPUs */
    size_t i = (uintptr_t)code / 16 % MOST_CODE;
    pthread_mutex_lock(&lock);
    while (known[i] && known[i] != code)
        i = (i + 1) % MOST_CODE;
    known[i] = code;
    bool fresh = !(loaded[i] >> gpu & 1);
    loaded[i] |= 1u << gpu;
    pthread_mutex_unlock(&lock);
    return fresh;
}

void pp_emulated_queue(void *stream, const void *code, void (*run)(void *),
                       void *arg)
{
    if (cudaGetLastError() != cudaSuccess)
        pp_emulated_refuse_call(
            "a launch is taken to have failed where an older call did");
    struct CUstream_st *s =
        require_memory(((struct pp_cuda_stream *)stream)->stream);
    const char *loading = getenv("CUDA_MODULE_LOADING");
    if (s->gpu != pp_emulated_gpu())
        pp_emulated_refuse_call("a launch in a stream of another GPU");
    if (is_new(code, s->gpu) && !(loading && !strcmp(loading, "EAGER")))
        pp_emulated_await_gpu(s->gpu);
    pp_emulated_count(PP_WORK_KERNELS, 1);
    pp_emulated_give(s, PP_TASK_KERNEL, 1, run, arg);
}

/* --- waiting --- */

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

void pp_emulated_await_stream(cudaStream_t s)
{
    wait_by_host(end_of_stream(s));
}

void pp_emulated_await_gpu(int gpu)
{
    pthread_mutex_lock(&lock);
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s->gpu == gpu)
            wait_until_done(s, s->n_queued);
    pthread_mutex_unlock(&lock);
}

/* --- streams --- */

/* Gives a stream its hardware queue. The caller has the lock. */
static struct line *choose_line(int gpu)
{
    int n = setting("CUDA_DEVICE_MAX_CONNECTIONS", 8);
    n = n < 1 ? 1 : n > MOST_QUEUES ? MOST_QUEUES : n;
    struct line *l = &gpus[gpu].lines[gpus[gpu].n_streams++ % n];
    if (!l->last) {
        l->last = &l->first;
        pthread_cond_init(&l->moved, NULL);
    }
    if (gpus[gpu].n_streams == 1)
        pthread_cond_init(&gpus[gpu].freed, NULL);
    return l;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority)
{
    *priority = s->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags,
                                         int priority)
{
    struct CUstream_st *s = require_memory(calloc(1, sizeof *s));
    int seed = setting("PP_EMULATED_JITTER", -1);
    (void)flags;
    s->last = &s->first;
    s->owner = pthread_self();
    s->gpu = pp_emulated_gpu();
    s->priority = priority;
    pthread_cond_init(&s->has_task, NULL);
    pthread_cond_init(&s->task_done, NULL);
    pthread_mutex_lock(&lock);
    n_streams++;
    s->jitter = seed < 0 ? 0 : (unsigned)seed * 1000 + n_streams;
    s->line = choose_line(s->gpu);
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
    pp_emulated_await_stream(s);
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
    pp_emulated_give(s, PP_TASK_WAIT, 0, run_wait, p);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t run, void *arg)
{
    pp_emulated_give(s, PP_TASK_WAIT, 0, run, arg);
    return cudaSuccess;
}

/* --- events --- */

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
        pp_emulated_give(s, PP_TASK_COPY, 0, run_timed, e);
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
