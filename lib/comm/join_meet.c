/* SPDX-License-Identifier: MIT */
/* join_meet - rank 0 listens, and the others come to it, each twice. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/join_state.h"
#include "comm/wire.h"

/* What one who comes says. Ranks run the same program on the same kind of
 * machine: numbers are its own. */
struct hello {
    char magic[8];
    uint64_t job;
    int32_t rank, size, is_monitor;
    char version[32];
    char host[PP_JOIN_HOST];
};

/* The answer, when all have come or one cannot stay. */
struct welcome {
    int32_t refused, local;
    char why[240];
};

static const char magic[8] = "pp-join1";

static void say_hello(const struct pp_join_place *p, bool is_monitor,
                      struct hello *h)
{
    *h = (struct hello){.job = p->job,
                        .rank = p->rank,
                        .size = p->size,
                        .is_monitor = is_monitor};
    memcpy(h->magic, magic, sizeof magic);
    snprintf(h->version, sizeof h->version, "%s", p->version);
    if (gethostname(h->host, sizeof h->host - 1) != 0)
        snprintf(h->host, sizeof h->host, "unknown");
}

/* Whether it is one of ours; what is not is left alone. */
static bool is_ours(const struct pp_join_place *p, struct hello *h)
{
    h->host[sizeof h->host - 1] = h->version[sizeof h->version - 1] = '\0';
    return !memcmp(h->magic, magic, sizeof magic) && h->job == p->job;
}

static int refuse(int fd, enum pp_exit code, const char *why,
                  struct pp_err *err)
{
    struct welcome w = {.refused = (int32_t)code};
    snprintf(w.why, sizeof w.why, "%.230s", why);
    (void)pp_wire_write(fd, -1, &w, sizeof w);
    return pp_fail(err, code, "%s", why);
}

/* Takes the rank's connection, or says why the job cannot begin. */
static int take(struct pp_join *j, const struct pp_join_place *p,
                const struct hello *h, int fd, struct pp_err *err)
{
    char why[240];
    int *at = h->is_monitor ? j->monitor : j->data;
    if (strncmp(h->version, p->version, sizeof h->version - 1))
        snprintf(why, sizeof why, "rank %d on %s is version '%s', not '%s'",
                 (int)h->rank, h->host, h->version, p->version);
    else if (h->size != p->size)
        snprintf(why, sizeof why,
                 "rank %d on %s is one of %d ranks, and rank 0 one of %d",
                 (int)h->rank, h->host, (int)h->size, p->size);
    else if (h->rank < 1 || h->rank >= p->size)
        snprintf(why, sizeof why, "rank '%d' on %s is not one of %d",
                 (int)h->rank, h->host, p->size);
    else if (at[h->rank] >= 0)
        snprintf(why, sizeof why, "two are rank %d, on %s and on %s",
                 (int)h->rank, j->hosts[h->rank], h->host);
    else {
        at[h->rank] = fd;
        memcpy(j->hosts[h->rank], h->host, sizeof h->host);
        return 0;
    }
    return refuse(fd, PP_EXIT_INPUT, why, err);
}

static int fail_missing(const struct pp_join *j, struct pp_err *err)
{
    int missing = 0, first = -1;
    for (int r = 1; r < j->size; r++)
        if (j->data[r] < 0 || j->monitor[r] < 0) {
            first = missing++ ? first : r;
        }
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "%d of %d ranks have not come, rank %d among them", missing,
                   j->size, first);
}

/* One connection, if it comes in time. *n counts those taken. */
static int take_next(struct pp_join *j, const struct pp_join_place *p,
                     int listener, double until, int *n, struct pp_err *err)
{
    const struct timeval patience = {.tv_sec = 10};
    struct pollfd at = {listener, POLLIN, 0};
    double left = until - pp_clock();
    if (left <= 0)
        return fail_missing(j, err);
    if (poll(&at, 1, (int)(left * 1000) + 1) <= 0)
        return 0;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return 0;
    struct hello h;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ssize_t got = recv(fd, &h, sizeof h, MSG_WAITALL);
    if (got != (ssize_t)sizeof h || !is_ours(p, &h)) {
        close(fd);
        return 0;
    }
    int rc = take(j, p, &h, fd, err);
    if (rc)
        close(fd);
    else
        ++*n;
    return rc;
}

/* This rank's number among those of the same machine. */
static int local_of(const struct pp_join *j, int rank)
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

static int welcome_all(struct pp_join *j, struct pp_err *err)
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

/* Those who have come learn why there will be no job. */
static void dismiss(struct pp_join *j, const struct pp_err *why)
{
    struct pp_err ignored = {0};
    for (int r = 1; r < j->size; r++)
        if (j->data[r] >= 0)
            refuse(j->data[r], why->code, why->text, &ignored);
}

static int receive_all(struct pp_join *j, const struct pp_join_place *p,
                       struct pp_err *err)
{
    int listener, n = 0, rc = 0;
    double until = pp_clock() + p->seconds;
    if (pp_wire_listen(p->address, p->port, &listener, err))
        return -1;
    while (rc == 0 && n < 2 * (p->size - 1))
        rc = take_next(j, p, listener, until, &n, err);
    close(listener);
    if (rc == 0)
        rc = welcome_all(j, err);
    if (rc)
        dismiss(j, err);
    return rc;
}

static int come_once(const struct pp_join_place *p, bool is_monitor,
                     double seconds, int *fd, struct pp_err *err)
{
    struct hello h;
    say_hello(p, is_monitor, &h);
    if (pp_wire_connect(p->address, p->port, seconds, fd, err))
        return -1;
    return pp_wire_write(*fd, -1, &h, sizeof h) ? fail_lost(0, p->address, err)
                                                : 0;
}

static int come(struct pp_join *j, const struct pp_join_place *p,
                struct pp_err *err)
{
    struct welcome w;
    struct pp_err late = {0};
    /* Rank 0 may have refused someone in between: then it does not listen any
     * more, and has said why. */
    if (come_once(p, false, p->seconds, &j->data[0], err))
        return -1;
    int rc = come_once(p, true, 0, &j->monitor[0], &late);
    if (pp_wire_read(j->data[0], -1, &w, sizeof w))
        return rc ? pp_fail(err, late.code, "%s", late.text)
                  : fail_lost(0, p->address, err);
    w.why[sizeof w.why - 1] = '\0';
    if (w.refused)
        return pp_fail(err, (enum pp_exit)w.refused, "%s", w.why);
    j->local = p->local < 0 ? w.local : p->local;
    if (pp_wire_read(j->data[0], -1, j->hosts,
                     (size_t)j->size * sizeof *j->hosts))
        return fail_lost(0, p->address, err);
    return 0;
}

int pp_join_meet(struct pp_join *j, const struct pp_join_place *p,
                 struct pp_err *err)
{
    struct hello own;
    say_hello(p, false, &own);
    memcpy(j->hosts[p->rank], own.host, sizeof own.host);
    j->local = p->local < 0 ? 0 : p->local;
    if (p->size == 1)
        return 0;
    if (p->rank == 0 ? receive_all(j, p, err) : come(j, p, err))
        return -1;
    for (int r = 0; r < j->size; r++) {
        if (j->data[r] >= 0)
            pp_wire_prepare(j->data[r]);
        if (j->monitor[r] >= 0)
            pp_wire_prepare(j->monitor[r]);
    }
    return 0;
}
