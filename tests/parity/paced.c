/* SPDX-License-Identifier: MIT */
/* paced - actions and messages of fixed times, to compare a run with its
 * simulation.
 *
 * The program pprun_paced is a pprun with this table of the executor's steps
 * (pp_exec_ops) instead of that of lib/run/execute/exec_ops.c. An action sleeps
 * for its time besides its work, so that many ranks fit on few cores. A message
 * arrives a fixed time after its send, or at depth 0 after its receive is
 * posted too: until then it holds its place in the channel, and its receiver
 * waits. At other depths its sender goes on. A copy to or from the host ends a
 * fixed time after it has begun.
 *
 * PP_PACED holds the seconds of F, I, W, a message and perhaps a copy.
 * PP_PACED_TIMES names a file of zeros for the times of sends, which ranks
 * share, as threads or as processes of one machine. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "run/execute/exec_impl.h"
#include "run/execute/sync.h"

enum { MOST_RANKS = 16, MOST_MESSAGES = 2048 };

/* When the messages of each channel were sent, by their number. */
struct send_times {
    _Atomic double at[MOST_RANKS][MOST_RANKS][2][MOST_MESSAGES];
};

static struct send_times *sends;
static const struct pp_transport *real_ops;
static double seconds_of[5]; /* F, I, W, message, copy */

/* The state of this rank. */
static _Thread_local const struct pp_exec *exec;
static _Thread_local size_t sent[MOST_RANKS][2], posted[MOST_RANKS][2];
static _Thread_local struct pp_action now;
static _Thread_local double awake, work[PP_N_OPS];

static void stop(const char *why)
{
    fprintf(stderr, "pprun_paced: %s\n", why);
    exit(2);
}

static void sleep_until(double at)
{
    const struct timespec t = {(time_t)at,
                               (long)((at - (double)(time_t)at) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
        ;
}

/* --- the transport --- */

static bool is_paced(enum pp_direction direction)
{
    return direction <= PP_DIRECTION_BACKWARD;
}

static _Atomic double *time_of(int from, int to, enum pp_direction direction,
                               size_t n)
{
    if (n >= MOST_MESSAGES)
        stop("too many messages");
    return &sends->at[from][to][direction][n];
}

/* Sleeps until the first n messages of a channel have arrived. */
static void await_arrival(int from, int to, enum pp_direction direction,
                          size_t n)
{
    if (n == 0)
        return;
    const _Atomic double *at = time_of(from, to, direction, n - 1);
    while (*at == 0) /* the sender sets it in a moment */
        sched_yield();
    sleep_until(*at + seconds_of[3]);
}

static int paced_send(struct pp_comm *c, int to, enum pp_direction direction,
                      const void *buf, size_t bytes, struct pp_err *err)
{
    if (!is_paced(direction))
        return real_ops->send(c, to, direction, buf, bytes, err);
    size_t n = sent[to][direction]++;
    bool rendezvous = exec->schedule->channel_depth == 0;
    _Atomic double *at = time_of(c->rank, to, direction, n);
    if (!rendezvous)
        *at = pp_clock();
    int rc = real_ops->send(c, to, direction, buf, bytes, err);
    if (rendezvous) {
        *at = pp_clock();
        await_arrival(c->rank, to, direction, n + 1);
    }
    return rc;
}

/* The executor waits for a free place of the channel here before it sends. */
static int paced_send_wait(struct pp_comm *c, int to,
                           enum pp_direction direction, int keep,
                           struct pp_err *err)
{
    int rc = real_ops->send_wait(c, to, direction, keep, err);
    if (is_paced(direction) && sent[to][direction] > (size_t)keep)
        await_arrival(c->rank, to, direction,
                      sent[to][direction] - (size_t)keep);
    return rc;
}

static int paced_recv(struct pp_comm *c, int from, enum pp_direction direction,
                      void *buf, size_t bytes, struct pp_err *err)
{
    if (is_paced(direction))
        posted[from][direction]++;
    return real_ops->recv(c, from, direction, buf, bytes, err);
}

static int paced_recv_wait(struct pp_comm *c, int from,
                           enum pp_direction direction, int keep,
                           struct pp_err *err)
{
    int rc = real_ops->recv_wait(c, from, direction, keep, err);
    if (is_paced(direction))
        await_arrival(from, c->rank, direction,
                      posted[from][direction] - (size_t)keep);
    return rc;
}

static void read_settings(void)
{
    const char *text = getenv("PP_PACED"), *path = getenv("PP_PACED_TIMES");
    double *s = seconds_of;
    if (!text || sscanf(text, "%lf,%lf,%lf,%lf,%lf", &s[0], &s[1], &s[2], &s[3],
                        &s[4]) < 4)
        stop("PP_PACED: four times, or five");
    int fd = path ? open(path, O_RDWR) : -1;
    if (fd < 0 || ftruncate(fd, sizeof *sends))
        stop("PP_PACED_TIMES: no file");
    sends =
        mmap(NULL, sizeof *sends, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (sends == MAP_FAILED)
        stop("PP_PACED_TIMES: cannot be mapped");
}

/* The ranks share the table, and the program closes their handles after their
 * threads have ended. */
static void replace_transport(struct pp_comm *c)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct pp_transport paced;
    if (c->size > MOST_RANKS)
        stop("too many ranks");
    pthread_mutex_lock(&lock);
    if (!real_ops) {
        read_settings();
        real_ops = c->ops;
        paced = *real_ops;
        paced.send = paced_send;
        paced.send_wait = paced_send_wait;
        paced.recv = paced_recv;
        paced.recv_wait = paced_recv_wait;
    }
    c->ops = &paced;
    pthread_mutex_unlock(&lock);
}

/* --- the executor --- */

static int paced_run(struct pp_exec *e, const struct pp_pass *p,
                     struct pp_err *err)
{
    if (!exec) {
        prctl(PR_SET_TIMERSLACK, 1UL); /* nanoseconds */
        replace_transport(e->env->comm);
    }
    exec = e;
    return pp_exec_run(e, p, err);
}

static double time_of_action(enum pp_op op)
{
    return op == PP_F   ? seconds_of[0]
           : op == PP_I ? seconds_of[1]
           : op == PP_W ? seconds_of[2]
                        : seconds_of[1] + seconds_of[2];
}

/* Sleeps, and leaves the time that the last such action worked after it. It
 * runs when the action has its messages and its recorded time has begun. */
static int paced_view(struct pp_batch *b, const struct pp_packed *p,
                      const struct pp_batch_part *part,
                      struct pp_host_microbatch *host, struct pp_err *err)
{
    sleep_until(pp_clock() + time_of_action(now.op) - work[now.op]);
    awake = pp_clock();
    return pp_batch_view(b, p, part, host, err);
}

static int paced_compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    now = a;
    int rc = pp_exec_compute(ctx, a, err);
    work[a.op] = pp_clock() - awake;
    return rc;
}

/* It runs on a thread of its own. */
static int paced_copy(const struct pp_exec *e, struct pp_device *on,
                      struct pp_action a, struct pp_err *err)
{
    double start = pp_clock();
    prctl(PR_SET_TIMERSLACK, 1UL);
    int rc = pp_host_copy(e, on, a, err);
    sleep_until(start + seconds_of[4]);
    return rc;
}

const struct pp_exec_ops pp_exec_ops = {
    .run = paced_run,
    .view = paced_view,
    .score = pp_score_rows,
    .player = {paced_compute, pp_exec_send, pp_exec_receive, pp_exec_sync},
    .copy = paced_copy,
    .gather = pp_sync_gather,
};
