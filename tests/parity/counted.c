/* SPDX-License-Identifier: MIT */
/* counted - a pprun whose clock counts operations, to compare the time of a run
 * with the time that a plan says, to the last digit and on any machine.
 *
 * Every rank has a clock of its own, which only matrix products and messages
 * move: a multiplication and addition takes a nanosecond, and so does a byte of
 * a message, one message of a channel after the other; messages of control are
 * free. A rank that waits for another takes over its time. The program
 * pprun_counted has its own products, clock_gettime and table of the executor's
 * steps (pp_exec_ops), and its ranks are threads. */
#include <cblas.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "run/execute/exec_impl.h"
#include "run/execute/sync.h"

enum { MOST_RANKS = 4, MOST_MESSAGES = 4096 };

/* When each message of a channel arrives, and its receive was posted. */
struct times {
    _Atomic long arrives, posted;
};

static struct times messages[MOST_RANKS][MOST_RANKS][PP_N_DIRECTIONS]
                            [MOST_MESSAGES];
static const struct pp_transport *real_ops;

/* Each rank is a thread. */
static _Thread_local long now_ns; /* 0: the clock of the machine */
static _Thread_local size_t n_sent[MOST_RANKS][PP_N_DIRECTIONS],
    n_posted[MOST_RANKS][PP_N_DIRECTIONS];

int clock_gettime(clockid_t id, struct timespec *t)
{
    if (id != CLOCK_MONOTONIC || !now_ns)
        return (int)syscall(SYS_clock_gettime, id, t);
    *t = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
    return 0;
}

/* --- products --- */

void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta,
                 enum CBLAS_TRANSPOSE tb, int M, int N, int K, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta,
                 float *c, int ldc)
{
    (void)order; /* by rows */
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += (ta == CblasNoTrans ? a[i * lda + k] : a[k * lda + i]) *
                       (tb == CblasNoTrans ? b[k * ldb + j] : b[j * ldb + k]);
            float *to = &c[i * ldc + j];
            *to = alpha * sum + (beta != 0 ? beta * *to : 0);
        }
    now_ns += now_ns ? (long)M * N * K : 0;
}

/* --- the transport --- */

static void wait_until(long ns)
{
    now_ns = now_ns < ns ? ns : now_ns;
}

static struct times *times_of(int from, int to, enum pp_direction direction,
                              size_t n)
{
    if (n >= MOST_MESSAGES) {
        fprintf(stderr, "pprun_counted: too many messages\n");
        exit(2);
    }
    return &messages[from][to][direction][n];
}

static int counted_send(struct pp_comm *c, int to, enum pp_direction direction,
                        const void *buf, size_t bytes, struct pp_err *err)
{
    size_t n = n_sent[to][direction]++;
    long starts = n ? times_of(c->rank, to, direction, n - 1)->arrives : 0;
    starts = starts < now_ns ? now_ns : starts;
    times_of(c->rank, to, direction, n)->arrives =
        starts + (direction == PP_DIRECTION_HOST ? 0 : (long)bytes);
    return real_ops->send(c, to, direction, buf, bytes, err);
}

/* A message leaves when it has arrived and its receive is posted. */
static int counted_send_wait(struct pp_comm *c, int to,
                             enum pp_direction direction, int keep,
                             struct pp_err *err)
{
    int rc = real_ops->send_wait(c, to, direction, keep, err);
    size_t n = n_sent[to][direction];
    if (rc || n <= (size_t)keep)
        return rc;
    const struct times *t =
        times_of(c->rank, to, direction, n - (size_t)keep - 1);
    wait_until(t->arrives);
    wait_until(t->posted);
    return 0;
}

static int counted_recv(struct pp_comm *c, int from,
                        enum pp_direction direction, void *buf, size_t bytes,
                        struct pp_err *err)
{
    times_of(from, c->rank, direction, n_posted[from][direction]++)->posted =
        now_ns;
    return real_ops->recv(c, from, direction, buf, bytes, err);
}

static int counted_recv_wait(struct pp_comm *c, int from,
                             enum pp_direction direction, int keep,
                             struct pp_err *err)
{
    int rc = real_ops->recv_wait(c, from, direction, keep, err);
    size_t n = n_posted[from][direction];
    if (!rc && n > (size_t)keep)
        wait_until(
            times_of(from, c->rank, direction, n - (size_t)keep - 1)->arrives);
    return rc;
}

/* Sets all clocks to the latest. */
static int agree(struct pp_comm *c, struct pp_err *err)
{
    long all[MOST_RANKS];
    int rc = real_ops->allgather(c, &now_ns, all, sizeof now_ns, err);
    for (int k = 0; k < c->size && !rc; k++)
        wait_until(all[k]);
    return rc;
}

static int counted_allgather(struct pp_comm *c, const void *mine, void *all,
                             size_t bytes, struct pp_err *err)
{
    return agree(c, err) || real_ops->allgather(c, mine, all, bytes, err) ? -1
                                                                          : 0;
}

static int counted_barrier(struct pp_comm *c, struct pp_err *err)
{
    return agree(c, err) || real_ops->barrier(c, err) ? -1 : 0;
}

static void replace_transport(struct pp_comm *c)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct pp_transport counted;
    pthread_mutex_lock(&lock);
    if (!real_ops) {
        counted = *(real_ops = c->ops);
        counted.send = counted_send;
        counted.send_wait = counted_send_wait;
        counted.recv = counted_recv;
        counted.recv_wait = counted_recv_wait;
        counted.allgather = counted_allgather;
        counted.barrier = counted_barrier;
    }
    c->ops = &counted;
    pthread_mutex_unlock(&lock);
}

/* --- the executor --- */

/* Starts the clock of the rank before its first pass, so that its first step
 * has no time. No message is under way then. */
static int counted_run(struct pp_exec *e, const struct pp_pass *p,
                       struct pp_err *err)
{
    if (!now_ns) {
        now_ns = 1000000000;
        replace_transport(e->env->comm);
    }
    return pp_exec_run(e, p, err);
}

const struct pp_exec_ops pp_exec_ops = {
    .run = counted_run,
    .view = pp_batch_view,
    .score = pp_score_rows,
    .player = {pp_exec_compute, pp_exec_send, pp_exec_receive, pp_exec_sync},
    .copy = pp_host_copy,
    .gather = pp_sync_gather,
};
