/* SPDX-License-Identifier: MIT */
/* join_watch - the thread that learns who is lost, and passes it on.
 *
 * On the watched connections travel notes of one letter and a text. When the
 * job ends early each side closes for writing and reads until the other has
 * done so, as a connection that is closed with something unread is reset, and
 * the reason would be lost with it. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/join_state.h"
#include "comm/wire.h"

enum { ABORT = 'A', GOODBYE = 'B' };
enum { LOOK_MS = 100, GRACE_MS = 1000, LINGER_S = 5 };

struct note {
    char kind;
    char text[sizeof(((struct pp_err *)0)->text)];
};

/* Never blocks: a rank that does not read its notes is past telling. */
static void tell(int fd, char kind, const char *text)
{
    struct note n = {.kind = kind};
    snprintf(n.text, sizeof n.text, "%s", text);
    ssize_t sent = send(fd, &n, sizeof n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

static void ring(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n;
}

/* The job ends, and everyone who is told by this rank is. */
static void abort_with(struct pp_join *j, const char *why)
{
    pthread_mutex_lock(&j->lock);
    if (!j->aborted) {
        j->aborted = true;
        snprintf(j->why, sizeof j->why, "%s", why);
        for (int r = 0; r < j->size; r++)
            if (j->monitor[r] >= 0 && !j->gone[r])
                tell(j->monitor[r], ABORT, why);
        ring(j->stop);
        ring(j->wake);
        pthread_cond_broadcast(&j->changed);
    }
    pthread_mutex_unlock(&j->lock);
}

void pp_join_abort(struct pp_join *j, const char *why)
{
    char text[sizeof j->why];
    snprintf(text, sizeof text, "rank %d: %.460s", j->rank, why);
    abort_with(j, text);
}

static void lose(struct pp_join *j, int rank)
{
    char text[sizeof j->why];
    snprintf(text, sizeof text, "rank %d on %s is lost: %s", rank,
             j->hosts[rank], errno ? strerror(errno) : "its process has ended");
    j->gone[rank] = true;
    abort_with(j, text);
}

/* One note of rank. */
static void hear(struct pp_join *j, int rank)
{
    struct note n;
    if (pp_wire_read(j->monitor[rank], -1, &n, sizeof n) != PP_WIRE_DONE) {
        lose(j, rank);
        return;
    }
    n.text[sizeof n.text - 1] = '\0';
    if (n.kind == ABORT)
        abort_with(j, n.text);
    j->gone[rank] = true;
}

/* Waits for notes. Returns whether there was something. */
static bool listen_for(struct pp_join *j, struct pollfd *at, int ms)
{
    for (int r = 0; r < j->size; r++)
        at[r] = (struct pollfd){j->gone[r] ? -1 : j->monitor[r], POLLIN, 0};
    at[j->size] = (struct pollfd){j->wake, POLLIN, 0};
    if (poll(at, (nfds_t)j->size + 1, ms) <= 0)
        return false;
    for (int r = 0; r < j->size; r++)
        if (at[r].revents)
            hear(j, r);
    if (at[j->size].revents) {
        uint64_t n;
        ssize_t got = read(j->wake, &n, sizeof n);
        (void)got;
    }
    return true;
}

/* The watcher's part, with the lock held so that it can be taken away. */
static void ask_watcher(struct pp_join *j, struct pp_err *failure)
{
    pthread_mutex_lock(&j->lock);
    const struct pp_join_watcher *w = &j->watcher;
    if (j->aborted && w->aborted && !j->told) {
        j->told = true;
        w->aborted(w->ctx);
    } else if (!j->aborted && w->look && w->look(w->ctx, failure)) {
        /* judged by the caller */
    }
    pthread_mutex_unlock(&j->lock);
}

static bool is_over(struct pp_join *j)
{
    pthread_mutex_lock(&j->lock);
    bool over = j->closing;
    pthread_mutex_unlock(&j->lock);
    return over;
}

static bool looks(struct pp_join *j)
{
    pthread_mutex_lock(&j->lock);
    bool has = j->watcher.look && !j->aborted;
    pthread_mutex_unlock(&j->lock);
    return has;
}

/* A failure seen by the watcher may be another rank's end: who that was is
 * known here a moment later. */
static void judge(struct pp_join *j, struct pollfd *at, struct pp_err *failure)
{
    double until = pp_clock() + GRACE_MS / 1000.0;
    while (!pp_join_aborted(j) && !is_over(j) && pp_clock() < until)
        listen_for(j, at, LOOK_MS);
    if (!pp_join_aborted(j))
        pp_join_abort(j, failure->text);
    *failure = (struct pp_err){0};
}

/* Says goodbye, or after an abort waits until all have heard of it. */
static void leave(struct pp_join *j)
{
    double until = pp_clock() + LINGER_S;
    bool aborted = pp_join_aborted(j);
    for (int r = 0; r < j->size; r++) {
        int fd = j->monitor[r];
        if (fd < 0)
            continue;
        if (!aborted && !j->gone[r])
            tell(fd, GOODBYE, "");
        shutdown(fd, SHUT_WR);
    }
    for (int r = 0; aborted && r < j->size; r++) {
        char rest[sizeof(struct note)];
        struct pollfd at = {j->monitor[r], POLLIN, 0};
        for (double left; at.fd >= 0 && (left = until - pp_clock()) > 0;)
            if (poll(&at, 1, (int)(left * 1000) + 1) <= 0 ||
                recv(at.fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
                break;
    }
}

static void *watch(void *arg)
{
    struct pp_join *j = arg;
    struct pp_err failure = {0};
    struct pollfd *at = calloc((size_t)j->size + 1, sizeof *at);
    if (!at)
        abort_with(j, "out of memory");
    while (at && !is_over(j)) {
        listen_for(j, at, looks(j) ? LOOK_MS : -1);
        ask_watcher(j, &failure);
        if (failure.code)
            judge(j, at, &failure);
    }
    leave(j);
    free(at);
    return NULL;
}

int pp_join_watch_begin(struct pp_join *j, struct pp_err *err)
{
    int rc = pthread_create(&j->thread, NULL, watch, j);
    if (rc)
        return pp_fail(err, PP_EXIT_SYSTEM, "cannot start a thread: %s",
                       strerror(rc));
    j->watched = true;
    return 0;
}

void pp_join_watch_end(struct pp_join *j)
{
    pthread_mutex_lock(&j->lock);
    j->closing = true;
    pthread_mutex_unlock(&j->lock);
    ring(j->wake);
    if (j->watched)
        pthread_join(j->thread, NULL);
    j->watched = false;
}

void pp_join_watch(struct pp_join *j, const struct pp_join_watcher *w)
{
    pthread_mutex_lock(&j->lock);
    j->watcher = w ? *w : (struct pp_join_watcher){0};
    j->told = false;
    pthread_mutex_unlock(&j->lock);
    ring(j->wake);
}
