/* SPDX-License-Identifier: MIT */
/* emulated_nccl - a library with NCCL's functions that the trainer opens. It
 * uses sockets between processes of one machine and the streams of
 * emulated_streams.c.
 *
 * As in non-blocking NCCL, calls return at once, and the operation continues
 * when its state is polled. An operation is in its stream only when the state
 * is success. The calls of a group are one operation, as they are one kernel in
 * NCCL. If another rank has ended, an operation with it never completes until
 * the communicator is aborted; after that the communicator must not be used. A
 * use that is undefined in NCCL ends the test. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "comm/nccl.h"
#include "cuda_runtime_api.h"
#include "emulated_counts.h"
#include "emulated_gate.h"
#include "emulated_gpus.h"
#include "emulated_streams.h"

#define EXPORT __attribute__((visibility("default")))
enum { FLOAT = 7, SUM = 0 };

/* A message of an operation. On its way its size goes before it. */
struct message {
    int peer;
    const void *from; /* NULL: it is received */
    void *to;         /* NULL: it is sent, or its values are added */
    size_t bytes;
    char *data;  /* (bytes), after its size */
    size_t done; /* bytes of both that have left or arrived */
};

/* A sum of floats from all ranks: that of a root's successor first, then
 * around the ranks, the root's last. */
struct sum {
    int root;
    const void *from;
    void *to;
    size_t bytes, first; /* first: of the messages that have the others' */
};

/* The work of one kernel of NCCL. */
struct operation {
    struct comm *comm;
    void *stream;
    struct message *messages;
    struct sum *sums;
    size_t n, n_sums;
};

struct comm {
    int n, rank;
    int listener, *fds; /* fds: (n) to the other ranks */
    struct pp_nccl_id id;
    struct operation *waiting; /* not yet in its stream */
    int polls;                 /* of the state, since the last call */
    int state;
    int blocks; /* of a kernel */
    int gpu;
    bool meets, aborted, ended; /* ended: finalized or aborted */
    pthread_t thread;
    pthread_mutex_t lock;
};

/* The group of this thread. */
static _Thread_local struct {
    int depth;
    struct operation *operation;
} group;

static void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "emulated NCCL: %s\n", what);
    abort();
}

static void *require_memory(void *p)
{
    require(p, "out of memory");
    return p;
}

/* Returns an abstract name, not a file. */
static socklen_t address_of(const struct pp_nccl_id *id, int rank,
                            struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s-%d",
                     id->bytes, rank);
    return (socklen_t)(sizeof a->sun_family + 1 + (size_t)n);
}

EXPORT int ncclGetVersion(int *version)
{
    const char *text = getenv("PP_EMULATED_NCCL_VERSION");
    *version = text ? atoi(text) : 22809;
    return 0;
}

EXPORT int ncclGetUniqueId(struct pp_nccl_id *id)
{
    static int n;
    *id = (struct pp_nccl_id){0};
    snprintf(id->bytes, sizeof id->bytes, "pp-emulated-nccl-%ld-%d",
             (long)getpid(), n++);
    return 0;
}

/* --- the ranks of a communicator connect --- */

static bool is_aborted(struct comm *c)
{
    pthread_mutex_lock(&c->lock);
    bool aborted = c->aborted;
    pthread_mutex_unlock(&c->lock);
    return aborted;
}

/* Waits for a listener that is not there yet. */
static int call_rank(struct comm *c, int rank)
{
    struct sockaddr_un a;
    socklen_t n = address_of(&c->id, rank, &a);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(fd >= 0, "no socket");
    while (connect(fd, (struct sockaddr *)&a, n) != 0) {
        if (is_aborted(c)) {
            close(fd);
            return -1;
        }
        usleep(500);
    }
    return fd;
}

static int answer_rank(struct comm *c)
{
    struct pollfd p = {.fd = c->listener, .events = POLLIN};
    while (poll(&p, 1, 50) <= 0)
        if (is_aborted(c))
            return -1;
    return accept(c->listener, NULL, NULL);
}

/* NCCL would cut a message in other parts at each end. */
static int greet(const struct comm *c, int fd)
{
    const int mine[2] = {c->rank, c->blocks};
    int theirs[2];
    if (send(fd, mine, sizeof mine, MSG_NOSIGNAL) < 0 ||
        recv(fd, theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs)
        return -1;
    require(theirs[1] == c->blocks, "two ranks have other numbers of blocks");
    return theirs[0];
}

/* Calls the lower ranks, and answers the higher ones. */
static void *connect_ranks(void *arg)
{
    struct comm *c = arg;
    bool good = true;
    for (int k = 0; k < c->n - 1 && good; k++) {
        int fd = k < c->rank ? call_rank(c, k) : answer_rank(c);
        int peer = fd < 0 ? -1 : greet(c, fd);
        good = peer >= 0;
        require(!good || (peer < c->n && peer != c->rank && c->fds[peer] < 0),
                "two ranks have the same number");
        if (good)
            c->fds[peer] = fd;
        else if (fd >= 0)
            close(fd);
    }
    pthread_mutex_lock(&c->lock);
    c->meets = false;
    c->state = good ? PP_NCCL_SUCCESS : PP_NCCL_REMOTE_ERROR;
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Plays NCCL's bootstrap thread, which connects the ranks of an identifier. It
 * stays for ever if one of them does not connect. */
static void *run_bootstrap(void *arg)
{
    for (;;)
        usleep(100);
    return arg;
}

static pthread_once_t started = PTHREAD_ONCE_INIT;

static void start_bootstrap(void)
{
    pthread_t thread;
    require(pthread_create(&thread, NULL, run_bootstrap, NULL) == 0,
            "no thread");
    pthread_detach(thread);
}

static int open_listener(const struct comm *c)
{
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = address_of(&c->id, c->rank, &a);
    require(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 &&
                listen(fd, c->n) == 0,
            "no socket");
    return fd;
}

/* Blocks of a kernel if nobody limits them. */
enum { BLOCKS = 32 };

EXPORT int ncclCommInitRankConfig(void **comm, int n, struct pp_nccl_id id,
                                  int rank, struct pp_nccl_config *config)
{
    require(n > 1 && rank >= 0 && rank < n && config->size == sizeof *config &&
                config->magic == PP_NCCL_MAGIC && config->blocking == 0,
            "this configuration is not emulated");
    pthread_once(&started, start_bootstrap);
    struct comm *c = require_memory(calloc(1, sizeof *c));
    c->n = n;
    c->rank = rank;
    c->fds = require_memory(calloc((size_t)n, sizeof *c->fds));
    for (int k = 0; k < n; k++)
        c->fds[k] = -1;
    c->blocks =
        config->max_ctas == PP_NCCL_UNDEFINED ? BLOCKS : config->max_ctas;
    c->gpu = pp_emulated_gpu();
    require(c->blocks > 0, "a kernel without blocks");
    c->id = id;
    c->listener = open_listener(c);
    c->meets = true;
    c->state = PP_NCCL_IN_PROGRESS;
    pthread_mutex_init(&c->lock, NULL);
    require(pthread_create(&c->thread, NULL, connect_ranks, c) == 0,
            "no thread");
    pthread_detach(c->thread);
    *comm = c;
    return PP_NCCL_IN_PROGRESS;
}

/* --- an operation in its stream --- */

/* Waits for an abort after another rank has ended. */
static void wait_for_abort(struct comm *c)
{
    pthread_mutex_lock(&c->lock);
    if (!c->ended)
        c->state = PP_NCCL_REMOTE_ERROR;
    while (!c->aborted) {
        pthread_mutex_unlock(&c->lock);
        usleep(1000);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

static void copy_emulated(void *to, const void *from, size_t bytes)
{
    pp_emulated_enter();
    memcpy(to, from, bytes);
    pp_emulated_leave();
}

static size_t whole(const struct message *m)
{
    return sizeof(uint64_t) + m->bytes;
}

static void begin_message(struct message *m)
{
    uint64_t bytes = m->bytes;
    m->data = require_memory(malloc(whole(m)));
    if (!m->from)
        return;
    memcpy(m->data, &bytes, sizeof bytes);
    copy_emulated(m->data + sizeof bytes, m->from, m->bytes);
}

/* Messages between two ranks go one after the other. */
static bool may_go(const struct operation *o, size_t i)
{
    const struct message *m = &o->messages[i];
    for (size_t k = 0; k < i; k++) {
        const struct message *x = &o->messages[k];
        if (x->peer == m->peer && !x->from == !m->from && x->done < whole(x))
            return false;
    }
    return m->done < whole(m);
}

/* Moves what can be moved without waiting. Returns false if the other rank has
 * ended. */
static bool move(const struct comm *c, struct message *m)
{
    int fd = c->fds[m->peer];
    uint64_t bytes;
    /* The size comes by itself, so that what follows it stays in the socket. */
    size_t end = m->done < sizeof bytes ? sizeof bytes : whole(m);
    ssize_t n = m->from
                    ? send(fd, m->data + m->done, whole(m) - m->done,
                           MSG_NOSIGNAL | MSG_DONTWAIT)
                    : recv(fd, m->data + m->done, end - m->done, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    m->done += (size_t)n;
    if (!m->from && m->done == sizeof bytes) {
        memcpy(&bytes, m->data, sizeof bytes);
        require(bytes == m->bytes, "a message is received at another size");
    }
    return true;
}

/* Returns false if a rank has ended before its messages are done. */
static bool move_all(const struct operation *o)
{
    struct pollfd *p = require_memory(calloc(o->n, sizeof *p));
    bool good = true;
    for (nfds_t n = 1; n > 0 && good;) {
        n = 0;
        for (size_t i = 0; i < o->n && good; i++) {
            struct message *m = &o->messages[i];
            while (good && may_go(o, i)) {
                size_t before = m->done;
                good = move(o->comm, m);
                if (m->done == before)
                    break;
            }
            if (may_go(o, i))
                p[n++] = (struct pollfd){.fd = o->comm->fds[m->peer],
                                         .events = m->from ? POLLOUT : POLLIN};
        }
        if (n > 0 && good)
            poll(p, n, 100);
    }
    free(p);
    return good;
}

static void add_up(const struct operation *o, const struct sum *s)
{
    int n = o->comm->n;
    size_t values = s->bytes / sizeof(float);
    float *own = require_memory(malloc(s->bytes)),
          *sum = require_memory(calloc(values, sizeof *sum));
    copy_emulated(own, s->from, s->bytes);
    for (int k = 1; k <= n; k++) {
        int rank = (s->root + k) % n;
        size_t at = (size_t)(rank - (rank > o->comm->rank));
        const char *data = o->messages[s->first + at].data + sizeof(uint64_t);
        const float *x =
            rank == o->comm->rank ? own : (const float *)(const void *)data;
        for (size_t i = 0; i < values; i++)
            sum[i] = k == 1 ? x[i] : sum[i] + x[i];
    }
    copy_emulated(s->to, sum, s->bytes);
    free(own);
    free(sum);
}

static void free_operation(struct operation *o)
{
    for (size_t i = 0; i < o->n; i++)
        free(o->messages[i].data);
    free(o->messages);
    free(o->sums);
    free(o);
}

/* Runs in the stream. */
static void run_operation(void *arg)
{
    struct operation *o = arg;
    pp_emulated_count(PP_WORK_OPERATIONS, 1);
    pp_emulated_count(PP_WORK_MESSAGES, o->n);
    for (size_t i = 0; i < o->n; i++)
        begin_message(&o->messages[i]);
    /* An aborted operation may have left some bytes in the sockets. */
    bool done = !is_aborted(o->comm) && move_all(o);
    for (size_t i = 0; i < o->n && done; i++)
        if (o->messages[i].to)
            copy_emulated(o->messages[i].to,
                          o->messages[i].data + sizeof(uint64_t),
                          o->messages[i].bytes);
    for (size_t i = 0; i < o->n_sums && done; i++)
        add_up(o, &o->sums[i]);
    if (!done)
        wait_for_abort(o->comm);
    free_operation(o);
}

/* --- calls --- */

static int queue_operation(struct operation *o)
{
    struct comm *c = o->comm;
    pthread_mutex_lock(&c->lock);
    int state = c->state;
    pthread_mutex_unlock(&c->lock);
    require(!c->ended && state != PP_NCCL_IN_PROGRESS && !c->waiting,
            "a call before the last one was done");
    if (state != PP_NCCL_SUCCESS) { /* a peer may have ended at any time */
        free_operation(o);
        return state;
    }
    c->waiting = o;
    c->polls = 0;
    c->state = PP_NCCL_IN_PROGRESS;
    return PP_NCCL_IN_PROGRESS;
}

EXPORT int ncclGroupStart(void)
{
    group.depth++;
    return PP_NCCL_SUCCESS;
}

EXPORT int ncclGroupEnd(void)
{
    require(group.depth > 0, "a group ends that has not begun");
    if (--group.depth > 0 || !group.operation)
        return PP_NCCL_SUCCESS;
    struct operation *o = group.operation;
    group.operation = NULL;
    return queue_operation(o);
}

/* Returns the operation of the current group. */
static struct operation *operation_of(void *comm, void *stream)
{
    struct operation *o = group.operation;
    if (!o) {
        int priority = 0;
        cudaStreamGetPriority(stream, &priority);
        require(priority < 0, "a message that waits behind products");
        o = group.operation = require_memory(calloc(1, sizeof *o));
        o->comm = comm;
        o->stream = stream;
    }
    require(o->comm == comm && o->stream == stream,
            "a group of several communicators or streams");
    return o;
}

static void add_message(struct operation *o, struct message m)
{
    require(m.bytes > 0 && m.peer >= 0 && m.peer < o->comm->n &&
                m.peer != o->comm->rank,
            "a message that is not emulated");
    o->messages = require_memory(realloc(o->messages, (o->n + 1) * sizeof m));
    o->messages[o->n++] = m;
}

static int add_transfer(struct message m, int type, void *comm, void *stream)
{
    require(type == PP_NCCL_INT8, "a message that is not emulated");
    ncclGroupStart();
    add_message(operation_of(comm, stream), m);
    return ncclGroupEnd();
}

EXPORT int ncclSend(const void *from, size_t n, int type, int peer, void *comm,
                    void *stream)
{
    return add_transfer((struct message){peer, from, NULL, n}, type, comm,
                        stream);
}

EXPORT int ncclRecv(void *to, size_t n, int type, int peer, void *comm,
                    void *stream)
{
    return add_transfer((struct message){peer, NULL, to, n}, type, comm,
                        stream);
}

/* Adds a sum to the group; root -1: all ranks get it. */
static int add_sum(const void *from, void *to, size_t n, int type, int op,
                   int root, void *comm, void *stream)
{
    require(type == FLOAT && op == SUM, "a sum that is not emulated");
    ncclGroupStart();
    struct operation *o = operation_of(comm, stream);
    struct comm *c = comm;
    size_t bytes = n * sizeof(float);
    const struct sum sum = {root < 0 ? 0 : root, from, to, bytes, o->n};
    bool takes = root < 0 || root == c->rank;
    for (int k = 0; k < c->n && takes; k++)
        if (k != c->rank)
            add_message(o, (struct message){k, NULL, NULL, bytes});
    for (int k = 0; k < c->n; k++)
        if (k != c->rank && (root < 0 || root == k))
            add_message(o, (struct message){k, from, NULL, bytes});
    if (takes) {
        o->sums =
            require_memory(realloc(o->sums, (o->n_sums + 1) * sizeof *o->sums));
        o->sums[o->n_sums++] = sum;
    }
    return ncclGroupEnd();
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t n, int type, int op,
                         void *comm, void *stream)
{
    return add_sum(from, to, n, type, op, -1, comm, stream);
}

EXPORT int ncclReduce(const void *from, void *to, size_t n, int type, int op,
                      int root, void *comm, void *stream)
{
    return add_sum(from, to, n, type, op, root, comm, stream);
}

EXPORT int ncclCommGetAsyncError(void *comm, int *state)
{
    struct comm *c = comm;
    pthread_mutex_lock(&c->lock);
    require(!c->aborted, "an aborted communicator is used");
    /* A thread of NCCL launches, so the caller does not wait for room. */
    if (c->waiting && ++c->polls >= 3 &&
        pp_emulated_has_room(c->waiting->stream)) {
        pp_emulated_give(c->waiting->stream, PP_TASK_MESSAGE, c->blocks,
                         run_operation, c->waiting);
        c->waiting = NULL;
        c->state = PP_NCCL_SUCCESS;
    }
    *state = c->state;
    pthread_mutex_unlock(&c->lock);
    return 0;
}

EXPORT int ncclCommFinalize(void *comm)
{
    struct comm *c = comm;
    pthread_mutex_lock(&c->lock);
    require(!c->ended && !c->waiting, "not ready to be finalized");
    c->ended = true;
    pthread_mutex_unlock(&c->lock);
    return 0;
}

EXPORT int ncclCommDestroy(void *comm)
{
    struct comm *c = comm;
    require(c->ended && !c->aborted && !c->meets, "destroyed before its end");
    for (int k = 0; k < c->n; k++)
        if (c->fds[k] >= 0)
            close(c->fds[k]);
    close(c->listener);
    pthread_mutex_destroy(&c->lock);
    free(c->fds);
    free(c);
    return 0;
}

/* Waits for all work of the device, because NCCL frees memory. Does not free c,
 * so that a later use is detected. */
EXPORT int ncclCommAbort(void *comm)
{
    struct comm *c = comm;
    const char *when = getenv("PP_EMULATED_ABORT");
    while (when && !strcmp(when, "never"))
        pause();
    pthread_mutex_lock(&c->lock);
    require(!c->aborted, "aborted twice");
    c->aborted = c->ended = true;
    for (int k = 0; k < c->n; k++)
        if (c->fds[k] >= 0)
            shutdown(c->fds[k], SHUT_RDWR);
    pthread_mutex_unlock(&c->lock);
    pp_emulated_await_gpu(c->gpu);
    return 0;
}

EXPORT const char *ncclGetErrorString(int error)
{
    return error == PP_NCCL_REMOTE_ERROR
               ? "remote process exited or there was a network error"
               : "emulated error";
}

EXPORT const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "";
}
