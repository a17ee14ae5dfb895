/* SPDX-License-Identifier: MIT */
/* rendezvous_watch - the thread that notices lost ranks and tells the others.
 *
 * The watched connections carry notes: a kind and an error, or a text. When the
 * job ends early, each side shuts down writing and then reads until the other
 * side has shut down too. A connection that is closed with unread data is
 * reset, and the reason would be lost. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous_state.h"

enum { LOOK_MS = 100, GRACE_MS = 1000, LINGER_S = 5 };

static void set_gone(struct pp_rendezvous *j, int rank)
{
    pthread_mutex_lock(&j->lock);
    j->gone[rank] = true;
    pthread_mutex_unlock(&j->lock);
}

static void report_lost(struct pp_rendezvous *j, int rank)
{
    struct pp_err err = {0};
    pp_fail(&err, PP_EXIT_SYSTEM, "rank %d on %s is lost: %s", rank,
            j->hosts[rank], errno ? strerror(errno) : "its process has ended");
    pp_err_set_origin(&err, PP_ORIGIN_RANK, rank);
    pp_err_set_origin(&err, PP_ORIGIN_LOST, 0);
    set_gone(j, rank);
    pp_rendezvous_end(j, &err, rank);
}

static void take_note(struct pp_rendezvous *j, int rank, struct pp_note *n)
{
    pp_clean_text(n->why.text, sizeof n->why.text);
    n->why.setting = NULL; /* a pointer in the sender's memory */
    n->why.code = pp_hello_status((int32_t)n->why.code);
    switch (n->kind) {
    case PP_NOTE_BEAT:
        pp_beat_heard(j, rank, n->why.text);
        return;
    case PP_NOTE_STOP:
        if (j->observer.stop)
            j->observer.stop(j->observer.ctx);
        return;
    case PP_NOTE_ABORT:
        pp_rendezvous_end(j, &n->why, -1);
        break;
    default: /* goodbye */
        break;
    }
    set_gone(j, rank);
}

/* Reads what has arrived of a note of a rank. It does not wait for the rest:
 * beats to the other ranks must go on. */
static void read_note(struct pp_rendezvous *j, int rank)
{
    struct pp_rendezvous_peer *p = &j->peers[rank];
    ssize_t n = recv(j->monitor[rank], (char *)&p->note + p->note_bytes,
                     sizeof p->note - p->note_bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        /* A process that ends with beats unread resets the connection. */
        errno = n < 0 && errno != ECONNRESET ? errno : 0;
        report_lost(j, rank);
        return;
    }
    p->note_bytes += (size_t)n;
    if (p->note_bytes < sizeof p->note)
        return;
    p->note_bytes = 0;
    take_note(j, rank, &p->note);
}

/* Waits for notes. Returns whether there was any event. */
static bool poll_notes(struct pp_rendezvous *j, struct pollfd *at, int ms)
{
    for (int r = 0; r < j->size; r++)
        at[r] = (struct pollfd){j->gone[r] ? -1 : j->monitor[r], POLLIN, 0};
    at[j->size] = (struct pollfd){j->wake, POLLIN, 0};
    if (poll(at, (nfds_t)j->size + 1, ms) <= 0)
        return false;
    for (int r = 0; r < j->size; r++)
        if (at[r].revents)
            read_note(j, r);
    if (at[j->size].revents) {
        uint64_t n;
        ssize_t got = read(j->wake, &n, sizeof n);
        (void)got;
    }
    return true;
}

/* Tells the observer of an abort, once. */
static void tell_abort(struct pp_rendezvous *j)
{
    struct pp_err why = {0};
    if (j->abort_told || !pp_rendezvous_aborted(j))
        return;
    (void)pp_rendezvous_fail(j, &why);
    j->abort_told = true;
    if (j->observer.aborted)
        j->observer.aborted(j->observer.ctx, &why);
}

/* Calls the watcher with the lock held, so that it cannot be removed while it
 * runs. Returns whether *failure was filled. */
static bool call_watcher(struct pp_rendezvous *j, struct pp_err *failure)
{
    bool failed = false;
    pthread_mutex_lock(&j->lock);
    const struct pp_rendezvous_watcher *w = &j->watcher;
    if (j->aborted && w->aborted && !j->told) {
        j->told = true;
        w->aborted(w->ctx);
    } else if (!j->aborted && w->look) {
        failed = w->look(w->ctx, failure) != 0;
    }
    pthread_mutex_unlock(&j->lock);
    return failed;
}

static bool is_closing(struct pp_rendezvous *j)
{
    pthread_mutex_lock(&j->lock);
    bool over = j->closing;
    pthread_mutex_unlock(&j->lock);
    return over;
}

static bool has_look(struct pp_rendezvous *j)
{
    pthread_mutex_lock(&j->lock);
    bool has = j->watcher.look && !j->aborted;
    pthread_mutex_unlock(&j->lock);
    return has;
}

/* Aborts after a failure of the watcher. If the cause is that another rank has
 * ended, that rank is known a moment later: also a silent rank, if the rank
 * that ended has counted its silence a little ahead of this one. */
static void abort_after_grace(struct pp_rendezvous *j, struct pollfd *at,
                              struct pp_err *failure)
{
    double until = pp_clock() + GRACE_MS / 1000.0;
    while (!pp_rendezvous_aborted(j) && !is_closing(j) && pp_clock() < until) {
        poll_notes(j, at, LOOK_MS);
        pp_beat_tick(j);
    }
    if (!pp_rendezvous_aborted(j))
        pp_rendezvous_abort(j, failure->text);
    *failure = (struct pp_err){0};
}

/* Says goodbye, or after an abort waits until all ranks have read of it, but
 * not for ranks that do not answer. */
static void leave_job(struct pp_rendezvous *j)
{
    double until = pp_clock() + LINGER_S;
    bool aborted = pp_rendezvous_aborted(j);
    for (int r = 0; r < j->size; r++) {
        int fd = j->monitor[r];
        if (fd < 0)
            continue;
        if (!aborted && !j->gone[r])
            pp_note_send(fd, PP_NOTE_GOODBYE, NULL);
        shutdown(fd, SHUT_WR);
    }
    for (int r = 0; aborted && r < j->size; r++) {
        char rest[sizeof(struct pp_note)];
        struct pollfd at = {j->peers[r].stalled ? -1 : j->monitor[r], POLLIN,
                            0};
        for (double left; at.fd >= 0 && (left = until - pp_clock()) > 0;)
            if (poll(&at, 1, (int)(left * 1000) + 1) <= 0 ||
                recv(at.fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
                break;
    }
}

static void *watch_ranks(void *arg)
{
    struct pp_rendezvous *j = arg;
    struct pp_err failure = {0};
    int wait_ms = (int)(1000 * pp_beat_wait(j)) + 1;
    struct pollfd *at = calloc((size_t)j->size + 1, sizeof *at);
    if (!at)
        pp_rendezvous_abort(j, "out of memory");
    while (at && !is_closing(j)) {
        poll_notes(j, at, has_look(j) && wait_ms > LOOK_MS ? LOOK_MS : wait_ms);
        pp_beat_tick(j);
        tell_abort(j);
        if (call_watcher(j, &failure))
            abort_after_grace(j, at, &failure);
    }
    tell_abort(j);
    leave_job(j);
    free(at);
    return NULL;
}

int pp_rendezvous_watch_begin(struct pp_rendezvous *j, struct pp_err *err)
{
    int rc = pthread_create(&j->thread, NULL, watch_ranks, j);
    if (rc)
        return pp_fail(err, PP_EXIT_SYSTEM, "cannot start a thread: %s",
                       strerror(rc));
    j->watched = true;
    return 0;
}

void pp_rendezvous_watch_end(struct pp_rendezvous *j)
{
    pthread_mutex_lock(&j->lock);
    j->closing = true;
    pthread_mutex_unlock(&j->lock);
    pp_event_signal(j->wake);
    if (j->watched)
        pthread_join(j->thread, NULL);
    j->watched = false;
}

void pp_rendezvous_watch(struct pp_rendezvous *j,
                         const struct pp_rendezvous_watcher *w)
{
    pthread_mutex_lock(&j->lock);
    j->watcher = w ? *w : (struct pp_rendezvous_watcher){0};
    j->told = false;
    pthread_mutex_unlock(&j->lock);
    pp_event_signal(j->wake);
}
