/* SPDX-License-Identifier: MIT */
/* rendezvous_abort - the end of a job: its reason, which all ranks are told. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/rendezvous_state.h"

void pp_note_send(int fd, enum pp_note_kind kind, const struct pp_err *why)
{
    struct pp_note n = {.kind = (int32_t)kind};
    if (why)
        n.why = *why;
    ssize_t sent = send(fd, &n, sizeof n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && sent < (ssize_t)sizeof n)
        shutdown(fd, SHUT_WR); /* the rest of a note cannot follow later */
}

void pp_event_signal(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n;
}

void pp_rendezvous_end(struct pp_rendezvous *j, const struct pp_err *why,
                       int lost)
{
    pthread_mutex_lock(&j->lock);
    if (!j->aborted) {
        j->aborted = true;
        j->lost = lost;
        j->why = *why;
        for (int r = 0; r < j->size; r++)
            if (j->monitor[r] >= 0 && !j->gone[r])
                pp_note_send(j->monitor[r], PP_NOTE_ABORT, why);
        if (lost >= 0)
            j->gone[lost] = true;
        pp_event_signal(j->stop);
        pp_event_signal(j->wake);
        pthread_cond_broadcast(&j->changed);
    }
    pthread_mutex_unlock(&j->lock);
}

void pp_rendezvous_abort(struct pp_rendezvous *j, const char *why)
{
    struct pp_err err = {0};
    pp_fail(&err, PP_EXIT_SYSTEM, "rank %d: %.460s", j->rank, why);
    pp_err_set_origin(&err, PP_ORIGIN_RANK, j->rank);
    pp_rendezvous_end(j, &err, -1);
}

bool pp_rendezvous_aborted(struct pp_rendezvous *j)
{
    pthread_mutex_lock(&j->lock);
    bool aborted = j->aborted;
    pthread_mutex_unlock(&j->lock);
    return aborted;
}

int pp_rendezvous_fail(struct pp_rendezvous *j, struct pp_err *err)
{
    pthread_mutex_lock(&j->lock);
    if (err->code == PP_EXIT_OK)
        *err = j->why;
    pthread_mutex_unlock(&j->lock);
    return -1;
}

int pp_rendezvous_lost(struct pp_rendezvous *j)
{
    pthread_mutex_lock(&j->lock);
    int lost = j->lost;
    pthread_mutex_unlock(&j->lock);
    return lost;
}

bool pp_rendezvous_await_abort(struct pp_rendezvous *j)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&j->lock);
    while (!j->aborted &&
           pthread_cond_timedwait(&j->changed, &j->lock, &until) != ETIMEDOUT)
        ;
    bool aborted = j->aborted;
    pthread_mutex_unlock(&j->lock);
    return aborted;
}
