/* SPDX-License-Identifier: MIT */
/* emulated_nccl - a library with NCCL's functions that the trainer opens. It
 * uses sockets between processes of one machine and the streams of
 * emulated_streams.c.
 *
 * As in non-blocking NCCL, calls return at once, and the operation continues
 * when its state is polled. A message is in its stream only when the state is
 * success. If the other side has ended, a message never completes until the
 * communicator is aborted; after that the communicator must not be used. A use
 * that is undefined in NCCL ends the test. */
#include <errno.h>
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
enum { MOST = 256 };

struct message {
    struct comm *comm;
    void *to;         /* NULL: sent; both: a sum of floats, of both ranks */
    const void *from; /* NULL: received */
    size_t bytes;
    void *stream;
};

struct comm {
    int fd, rank;
    struct pp_nccl_id id;
    struct message *waiting; /* not yet in its stream */
    int polls;               /* of the state, since the last call */
    int state;
    int blocks; /* of a kernel */
    int gpu;
    bool meets, aborted, ended; /* ended: finalized or aborted */
    pthread_t thread;
    pthread_mutex_t lock;
};

/* Sockets that wait for the other rank of an identifier made here. */
static struct {
    struct pp_nccl_id id;
    int fd;
} listeners[MOST];
static int n_listeners;

static void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "emulated NCCL: %s\n", what);
    abort();
}

static socklen_t address_of(const struct pp_nccl_id *id, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(a->sun_path + 1, id->bytes, 64); /* an abstract name, not a file */
    return (socklen_t)(sizeof a->sun_family + 65);
}

EXPORT int ncclGetVersion(int *version)
{
    const char *text = getenv("PP_EMULATED_NCCL_VERSION");
    *version = text ? atoi(text) : 22809;
    return 0;
}

EXPORT int ncclGetUniqueId(struct pp_nccl_id *id)
{
    struct sockaddr_un a;
    require(n_listeners < MOST, "too many identifiers");
    *id = (struct pp_nccl_id){0};
    snprintf(id->bytes, sizeof id->bytes, "pp-emulated-nccl-%ld-%d",
             (long)getpid(), n_listeners);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = address_of(id, &a);
    require(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 &&
                listen(fd, 1) == 0,
            "no socket");
    listeners[n_listeners].id = *id;
    listeners[n_listeners++].fd = fd;
    return 0;
}

static int connect_peer(const struct comm *c)
{
    struct sockaddr_un a;
    if (c->rank == 0) {
        for (int i = 0; i < n_listeners; i++)
            if (!memcmp(&listeners[i].id, &c->id, sizeof c->id))
                return accept(listeners[i].fd, NULL, NULL);
        require(false, "rank 0 has not made this identifier");
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = address_of(&c->id, &a);
    return connect(fd, (struct sockaddr *)&a, n) == 0 ? fd : -1;
}

/* NCCL would cut a message in other parts at each end. */
static bool have_same_blocks(const struct comm *c, int fd)
{
    int theirs;
    if (send(fd, &c->blocks, sizeof c->blocks, MSG_NOSIGNAL) < 0 ||
        recv(fd, &theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs)
        return false;
    require(theirs == c->blocks, "two ranks have other numbers of blocks");
    return true;
}

static void *connect_ends(void *arg)
{
    struct comm *c = arg;
    int fd = connect_peer(c);
    if (fd >= 0 && !have_same_blocks(c, fd)) {
        close(fd);
        fd = -1;
    }
    pthread_mutex_lock(&c->lock);
    c->fd = fd;
    c->meets = false;
    c->state = fd >= 0 ? PP_NCCL_SUCCESS : PP_NCCL_REMOTE_ERROR;
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

/* Blocks of a kernel if nobody limits them. */
enum { BLOCKS = 32 };

EXPORT int ncclCommInitRankConfig(void **comm, int n, struct pp_nccl_id id,
                                  int rank, struct pp_nccl_config *config)
{
    require(n == 2 && config->size == sizeof *config &&
                config->magic == PP_NCCL_MAGIC && config->blocking == 0,
            "this configuration is not emulated");
    pthread_once(&started, start_bootstrap);
    struct comm *c = calloc(1, sizeof *c);
    require(c, "out of memory");
    c->rank = rank;
    c->blocks =
        config->max_ctas == PP_NCCL_UNDEFINED ? BLOCKS : config->max_ctas;
    c->gpu = pp_emulated_gpu();
    require(c->blocks > 0, "a kernel without blocks");
    c->id = id;
    c->fd = -1;
    c->meets = true;
    c->state = PP_NCCL_IN_PROGRESS;
    pthread_mutex_init(&c->lock, NULL);
    require(pthread_create(&c->thread, NULL, connect_ends, c) == 0,
            "no thread");
    pthread_detach(c->thread);
    *comm = c;
    return PP_NCCL_IN_PROGRESS;
}

/* Waits for an abort after the other side has ended. */
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

static bool transfer_bytes(struct comm *c, void *data, size_t bytes, bool out)
{
    for (char *at = data; bytes > 0;) {
        ssize_t n = out ? send(c->fd, at, bytes, MSG_NOSIGNAL)
                        : recv(c->fd, at, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            wait_for_abort(c);
            return false;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static void copy_emulated(void *to, const void *from, size_t bytes)
{
    pp_emulated_enter();
    memcpy(to, from, bytes);
    pp_emulated_leave();
}

/* Rank 0 sends first, so that no rank waits for room in a socket. */
static void add_both(struct comm *c, const struct message *m, float *theirs)
{
    void *own = malloc(m->bytes);
    require(own, "out of memory");
    copy_emulated(own, m->from, m->bytes);
    bool done = true;
    for (int turn = 0; turn < 2 && done; turn++)
        done = turn == c->rank ? transfer_bytes(c, own, m->bytes, true)
                               : transfer_bytes(c, theirs, m->bytes, false);
    for (size_t i = 0; i < m->bytes / sizeof *theirs; i++)
        theirs[i] += ((const float *)own)[i];
    if (done)
        copy_emulated(m->to, theirs, m->bytes);
    free(own);
}

/* Runs in the stream. */
static void run_message(void *arg)
{
    struct message *m = arg;
    struct comm *c = m->comm;
    uint64_t bytes = m->bytes;
    void *data = malloc(m->bytes);
    require(data, "out of memory");
    pp_emulated_count(PP_WORK_MESSAGES, 1);
    if (m->from && m->to) {
        add_both(c, m, data);
    } else if (m->from) {
        copy_emulated(data, m->from, m->bytes);
        if (transfer_bytes(c, &bytes, sizeof bytes, true))
            transfer_bytes(c, data, m->bytes, true);
    } else if (transfer_bytes(c, &bytes, sizeof bytes, false)) {
        require(bytes == m->bytes, "a message is received at another size");
        if (transfer_bytes(c, data, m->bytes, false))
            copy_emulated(m->to, data, m->bytes);
    }
    free(data);
    free(m);
}

static int queue_message(struct comm *c, struct message what)
{
    pthread_mutex_lock(&c->lock);
    int state = c->state;
    pthread_mutex_unlock(&c->lock);
    require(!c->ended && state != PP_NCCL_IN_PROGRESS && !c->waiting,
            "a call before the last one was done");
    if (state != PP_NCCL_SUCCESS) /* the peer may have ended at any time */
        return state;
    require(what.bytes > 0, "a message that is not emulated");
    c->waiting = malloc(sizeof *c->waiting);
    require(c->waiting, "out of memory");
    *c->waiting = what;
    c->polls = 0;
    c->state = PP_NCCL_IN_PROGRESS;
    return PP_NCCL_IN_PROGRESS;
}

static void require_bytes_to_peer(const struct comm *c, int type, int peer)
{
    require(type == PP_NCCL_INT8 && peer == 1 - c->rank,
            "a message that is not emulated");
}

EXPORT int ncclSend(const void *from, size_t n, int type, int peer, void *comm,
                    void *stream)
{
    require_bytes_to_peer(comm, type, peer);
    return queue_message(comm, (struct message){comm, NULL, from, n, stream});
}

EXPORT int ncclRecv(void *to, size_t n, int type, int peer, void *comm,
                    void *stream)
{
    require_bytes_to_peer(comm, type, peer);
    return queue_message(comm, (struct message){comm, to, NULL, n, stream});
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t n, int type, int op,
                         void *comm, void *stream)
{
    enum { FLOAT = 7, SUM = 0 };
    require(type == FLOAT && op == SUM, "a sum that is not emulated");
    return queue_message(
        comm, (struct message){comm, to, from, n * sizeof(float), stream});
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
                         run_message, c->waiting);
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
    close(c->fd);
    pthread_mutex_destroy(&c->lock);
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
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_RDWR);
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
