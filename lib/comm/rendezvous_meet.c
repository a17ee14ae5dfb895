/* SPDX-License-Identifier: MIT */
/* rendezvous_meet - the start of a job. Rank 0 listens; each other rank
 * connects twice. A rank that cannot start also connects, to report why. Then
 * rank 0 refuses all ranks, also those that connect a little later. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous_state.h"

/* Seconds in which rank 0 refuses late ranks, and in which a rank that cannot
 * start tries to reach rank 0. */
enum { LATE_S = 5, REACH_S = 30 };

/* First message of a rank. All ranks run the same program on the same kind of
 * machine, so numbers have the host's byte order. */
struct hello {
    char magic[8];
    uint64_t job;
    int32_t rank, size, is_monitor;
    int32_t failed; /* exit status if the rank cannot start; see why */
    char version[32];
    char host[PP_RENDEZVOUS_HOST];
    char why[400];
};

/* Answer of rank 0, when all ranks have joined or one is refused. */
struct welcome {
    int32_t refused, local;
    int32_t yours; /* the receiver is the rank that is refused */
    char why[400];
};

/* State of rank 0 while ranks join. */
struct meeting {
    struct pp_rendezvous *j;
    const struct pp_rendezvous_place *place;
    int listener;
    double until;
    int n_accepted; /* connections kept */
    int n_hellos;   /* ranks that sent a hello */
};

static const char magic[8] = "pp-join1";

static void fill_hello(const struct pp_rendezvous_place *p, bool is_monitor,
                       struct hello *h)
{
    *h = (struct hello){.job = p->job,
                        .rank = p->rank,
                        .size = p->size,
                        .is_monitor = is_monitor};
    memcpy(h->magic, magic, sizeof magic);
    snprintf(h->version, sizeof h->version, "%s", p->version);
    if (p->failure) {
        h->failed = (int32_t)p->failure->code;
        snprintf(h->why, sizeof h->why, "%.390s", p->failure->text);
    }
    if (gethostname(h->host, sizeof h->host - 1) != 0)
        snprintf(h->host, sizeof h->host, "unknown");
}

/* Returns whether a hello is from a rank of this job. Others are ignored. */
static bool is_ours(const struct pp_rendezvous_place *p, struct hello *h)
{
    h->host[sizeof h->host - 1] = h->version[sizeof h->version - 1] = '\0';
    h->why[sizeof h->why - 1] = '\0';
    return !memcmp(h->magic, magic, sizeof magic) && h->job == p->job;
}

static void refuse(int fd, const struct pp_err *why, bool yours)
{
    struct welcome w = {.refused = (int32_t)why->code, .yours = yours};
    snprintf(w.why, sizeof w.why, "%.390s", why->text);
    (void)pp_wire_write(fd, -1, &w, sizeof w);
}

/* Keeps the connection of a rank, or fails with the reason why the job cannot
 * begin. */
static int accept_rank(struct meeting *m, const struct hello *h, int fd,
                       struct pp_err *err)
{
    char why[240];
    const struct pp_rendezvous_place *p = m->place;
    struct pp_rendezvous *j = m->j;
    int *at = h->is_monitor ? j->monitor : j->data;
    if (h->failed && h->rank < 0)
        return pp_fail(err, (enum pp_exit)h->failed,
                       "a rank on %s cannot start: %.300s", h->host, h->why);
    if (h->failed)
        return pp_fail(err, (enum pp_exit)h->failed,
                       "rank %d on %s cannot start: %.300s", (int)h->rank,
                       h->host, h->why);
    if (strncmp(h->version, p->version, sizeof h->version - 1))
        snprintf(why, sizeof why, "rank %d on %s is version '%s', not '%s'",
                 (int)h->rank, h->host, h->version, p->version);
    else if (h->size != p->size)
        snprintf(why, sizeof why,
                 "rank %d on %s expects %d ranks, but rank 0 expects %d",
                 (int)h->rank, h->host, (int)h->size, p->size);
    else if (h->rank < 1 || h->rank >= p->size)
        snprintf(why, sizeof why,
                 "rank '%d' on %s is outside a job of %d ranks", (int)h->rank,
                 h->host, p->size);
    else if (at[h->rank] >= 0)
        snprintf(why, sizeof why, "two processes are rank %d, on %s and on %s",
                 (int)h->rank, j->hosts[h->rank], h->host);
    else {
        at[h->rank] = fd;
        memcpy(j->hosts[h->rank], h->host, sizeof h->host);
        m->n_accepted++;
        return 0;
    }
    return pp_fail(err, PP_EXIT_INPUT, "%s", why);
}

static int fail_missing(const struct pp_rendezvous *j, struct pp_err *err)
{
    int missing = 0, first = -1;
    for (int r = 1; r < j->size; r++)
        if (j->data[r] < 0 || j->monitor[r] < 0) {
            first = missing++ ? first : r;
        }
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "%d of %d ranks did not join in time, for example rank %d",
                   missing, j->size, first);
}

/* Returns a connection that sent a hello of this job, or -1. */
static int accept_next(struct meeting *m, struct hello *h)
{
    const struct timeval timeout = {.tv_sec = 10};
    int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ssize_t got = recv(fd, h, sizeof *h, MSG_WAITALL);
    if (got == (ssize_t)sizeof *h && is_ours(m->place, h)) {
        m->n_hellos += !h->is_monitor;
        return fd;
    }
    close(fd);
    return -1;
}

/* Returns the index of a rank on its machine. */
static int local_of(const struct pp_rendezvous *j, int rank)
{
    int n = 0;
    for (int r = 0; r < rank; r++)
        n += !strcmp(j->hosts[r], j->hosts[rank]);
    return n;
}

static int fail_lost(int rank, const char *host, struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_SYSTEM, "rank %d on %s is lost: %s", rank, host,
                   errno ? strerror(errno) : "its connection has ended");
}

/* Waits for a connection. Returns 1 if there may be none. Ranks that have
 * joined send nothing while they wait, so an event on their connection means
 * that they have ended. */
static int wait_next(struct meeting *m, struct pollfd *at, struct pp_err *err)
{
    const struct pp_rendezvous *j = m->j;
    double left = m->until - pp_clock();
    if (left <= 0)
        return fail_missing(j, err);
    for (int r = 1; r < j->size; r++)
        at[r] = (struct pollfd){j->data[r], POLLIN, 0};
    at[0] = (struct pollfd){m->listener, POLLIN, 0};
    if (poll(at, (nfds_t)j->size, (int)(left * 1000) + 1) <= 0)
        return 1;
    errno = 0;
    for (int r = 1; r < j->size; r++)
        if (at[r].revents)
            return fail_lost(r, j->hosts[r], err);
    return 0;
}

/* Serves one connection, if one comes in time. */
static int serve_next(struct meeting *m, struct pollfd *at, struct pp_err *err)
{
    struct hello h;
    int rc = wait_next(m, at, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    int fd = accept_next(m, &h);
    if (fd < 0 || accept_rank(m, &h, fd, err) == 0)
        return 0;
    refuse(fd, err, true);
    close(fd);
    return -1;
}

static int welcome_all(struct pp_rendezvous *j, struct pp_err *err)
{
    for (int r = 1; r < j->size; r++) {
        const struct welcome w = {.local = local_of(j, r)};
        if (pp_wire_write(j->data[r], -1, &w, sizeof w) ||
            pp_wire_write(j->data[r], -1, j->hosts,
                          (size_t)j->size * sizeof *j->hosts))
            return fail_lost(r, j->hosts[r], err);
    }
    return 0;
}

/* Tells all joined ranks why the job cannot begin, and then late ranks. If rank
 * 0 did not listen for them, they would wait for it to start. */
static void refuse_rest(struct meeting *m, const struct pp_err *why)
{
    double last = pp_clock() + LATE_S, left;
    struct hello h;
    m->until = last < m->until ? last : m->until;
    for (int r = 1; r < m->j->size; r++)
        if (m->j->data[r] >= 0)
            refuse(m->j->data[r], why, false);
    while (m->n_hellos < m->j->size - 1 && (left = m->until - pp_clock()) > 0) {
        struct pollfd at = {m->listener, POLLIN, 0};
        int fd =
            poll(&at, 1, (int)(left * 1000) + 1) > 0 ? accept_next(m, &h) : -1;
        if (fd < 0)
            continue;
        refuse(fd, why, false);
        close(fd);
    }
}

static int gather_ranks(struct pp_rendezvous *j,
                        const struct pp_rendezvous_place *p, struct pp_err *err)
{
    struct meeting m = {.j = j, .place = p, .until = pp_clock() + p->seconds};
    struct pp_err why = {0};
    int rc = 0;
    if (p->failure) {
        rc = pp_fail(err, p->failure->code, "%s", p->failure->text);
        pp_fail(&why, err->code, "rank 0 on %s cannot start: %.300s",
                j->hosts[0], err->text);
    }
    struct pollfd *at = calloc((size_t)p->size, sizeof *at);
    if (!at || pp_wire_listen(p->address, p->port, &m.listener, err)) {
        free(at);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    while (rc == 0 && m.n_accepted < 2 * (p->size - 1))
        rc = serve_next(&m, at, err);
    if (rc == 0)
        rc = welcome_all(j, err);
    if (rc)
        refuse_rest(&m, why.code ? &why : err);
    close(m.listener);
    free(at);
    return rc;
}

/* The answer shows that it was heard. */
void pp_rendezvous_decline(const struct pp_rendezvous_place *p)
{
    struct pp_err ignored = {0};
    struct welcome w;
    struct hello h;
    double seconds = p->seconds < REACH_S ? p->seconds : REACH_S;
    int fd;
    fill_hello(p, false, &h);
    if (pp_wire_connect(p->address, p->port, seconds, &fd, &ignored) == 0) {
        if (pp_wire_write(fd, -1, &h, sizeof h) == PP_WIRE_DONE)
            (void)pp_wire_read(fd, -1, &w, sizeof w);
        close(fd);
    }
}

static int connect_once(const struct pp_rendezvous_place *p, bool is_monitor,
                        double seconds, int *fd, struct pp_err *err)
{
    struct hello h;
    fill_hello(p, is_monitor, &h);
    if (pp_wire_connect(p->address, p->port, seconds, fd, err))
        return -1;
    return pp_wire_write(*fd, -1, &h, sizeof h) ? fail_lost(0, p->address, err)
                                                : 0;
}

static int join_job(struct pp_rendezvous *j,
                    const struct pp_rendezvous_place *p, struct pp_err *err)
{
    struct welcome w;
    struct pp_err late = {0};
    if (p->failure) {
        pp_rendezvous_decline(p);
        return pp_fail(err, p->failure->code, "%s", p->failure->text);
    }
    /* Rank 0 may have refused a rank meanwhile. Then it no longer listens, but
     * its answer has the reason. */
    if (connect_once(p, false, p->seconds, &j->data[0], err))
        return -1;
    int rc = connect_once(p, true, 0, &j->monitor[0], &late);
    if (pp_wire_read(j->data[0], -1, &w, sizeof w))
        return rc ? pp_fail(err, late.code, "%s", late.text)
                  : fail_lost(0, p->address, err);
    w.why[sizeof w.why - 1] = '\0';
    if (w.refused) {
        if (p->told)
            *p->told = !w.yours;
        return pp_fail(err, (enum pp_exit)w.refused, "%s", w.why);
    }
    j->local = p->local < 0 ? w.local : p->local;
    if (pp_wire_read(j->data[0], -1, j->hosts,
                     (size_t)j->size * sizeof *j->hosts))
        return fail_lost(0, p->address, err);
    return 0;
}

int pp_rendezvous_meet(struct pp_rendezvous *j,
                       const struct pp_rendezvous_place *p, struct pp_err *err)
{
    struct hello own;
    fill_hello(p, false, &own);
    memcpy(j->hosts[p->rank], own.host, sizeof own.host);
    j->local = p->local < 0 ? 0 : p->local;
    if (p->size == 1)
        return p->failure
                   ? pp_fail(err, p->failure->code, "%s", p->failure->text)
                   : 0;
    if (p->rank == 0 ? gather_ranks(j, p, err) : join_job(j, p, err))
        return -1;
    for (int r = 0; r < j->size; r++) {
        if (j->data[r] >= 0)
            pp_wire_prepare(j->data[r], false);
        if (j->monitor[r] >= 0)
            pp_wire_prepare(j->monitor[r], true);
    }
    return 0;
}
