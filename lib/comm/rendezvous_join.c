/* SPDX-License-Identifier: MIT */
/* rendezvous_join - a rank connects to rank 0, twice, and waits until all ranks
 * have joined. It calls again until time is up if rank 0 does not listen yet,
 * if another program has its port, or if rank 0 closes the connection because
 * too many wait. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/hello.h"
#include "comm/rendezvous_state.h"

/* Seconds in which a rank that cannot start tries to reach rank 0. */
static const double reach_seconds = 30;

/* A rank that has joined waits so much longer than rank 0, which knows who is
 * missing. */
static const double grace_seconds = 1;

/* The result of a call. */
enum outcome {
    PROVEN,    /* rank 0 of this job has answered */
    STOPPED,   /* the other connection has news */
    NOBODY,    /* errno is the reason */
    SILENT,    /* a program accepts the connection, but does not answer */
    NOT_RANKS, /* a program that is not pprun closes it, or says something */
    UNPROVEN   /* rank 0 of another job, or with another secret */
};

/* A connection to be made. */
struct caller {
    const struct pp_rendezvous_place *place;
    struct pp_greeting greeting;
    struct pp_hello hello;
    struct addrinfo *at;
    int fd, stop;
    double until;
};

static enum outcome call_once(struct caller *c)
{
    struct pp_greeting *g = &c->greeting;
    enum pp_wire rc = pp_wire_connect(c->at, c->stop, c->until, &c->fd);
    if (rc)
        return rc == PP_WIRE_STOPPED ? STOPPED : NOBODY;
    pp_greeting_call(g);
    rc = pp_wire_write(c->fd, c->stop, c->until, &g->call, sizeof g->call);
    if (rc == PP_WIRE_DONE)
        rc = pp_wire_read(c->fd, c->stop, c->until, &g->answer,
                          sizeof g->answer);
    if (rc == PP_WIRE_DONE && pp_answer_is_proven(g))
        return PROVEN;
    close(c->fd);
    c->fd = -1;
    if (rc == PP_WIRE_STOPPED || rc == PP_WIRE_LATE)
        return rc == PP_WIRE_STOPPED ? STOPPED : SILENT;
    return rc == PP_WIRE_DONE && pp_answer_has_magic(g) ? UNPROVEN : NOT_RANKS;
}

static bool may_come_up(int error)
{
    return error == ECONNREFUSED || error == ETIMEDOUT || error == EAGAIN ||
           error == EHOSTUNREACH || error == ENETUNREACH ||
           error == ECONNRESET || error == EINTR || error == EINPROGRESS;
}

static int fail_outcome(const struct caller *c, enum outcome outcome, int error,
                        struct pp_err *err)
{
    const char *address = c->place->address;
    int port = c->place->port;
    switch (outcome) {
    case SILENT:
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "%s:%d accepts connections but does not answer: rank 0 "
                       "is stopped, or another program has the port",
                       address, port);
    case NOT_RANKS:
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "another program than rank 0 has the port %s:%d",
                       address, port);
    case UNPROVEN:
        return pp_fail(err, PP_EXIT_INPUT,
                       "rank 0 at %s:%d is of another job, or has another "
                       "secret",
                       address, port);
    default:
        errno = error;
        return pp_fail_errno(err, "rank 0 does not answer at %s:%d", address,
                             port);
    }
}

/* Returns whether the other connection has news. */
static bool has_news(const struct caller *c)
{
    struct pollfd at = {c->stop, POLLIN, 0};
    return poll(&at, 1, 0) > 0;
}

/* Calls until rank 0 answers, and says hello. Returns 1 if the other connection
 * has news before that. */
static int reach_rank_0(struct caller *c, bool is_monitor, struct pp_err *err)
{
    struct timespec pause = {0, 20000000};
    enum outcome outcome;
    for (;;) {
        outcome = call_once(c);
        int error = errno;
        if (outcome == STOPPED || (outcome != PROVEN && has_news(c)))
            return 1;
        if (outcome == PROVEN)
            break;
        /* A rank without the secret cannot report that it has none. */
        if (outcome == UNPROVEN && c->place->failure)
            return fail_outcome(c, outcome, error, err);
        bool over = pp_clock() + (double)pause.tv_nsec / 1e9 >= c->until;
        if (over || (outcome == NOBODY && !may_come_up(error)))
            return fail_outcome(c, outcome, error, err);
        nanosleep(&pause, NULL);
        if (outcome != NOBODY && pause.tv_nsec < 300000000)
            pause.tv_nsec *= 2;
    }
    c->hello.is_monitor = is_monitor;
    pp_hello_prove(&c->greeting, &c->hello);
    enum pp_wire rc =
        pp_wire_write(c->fd, c->stop, c->until, &c->hello, sizeof c->hello);
    return rc == PP_WIRE_STOPPED ? 1 : rc ? fail_outcome(c, SILENT, 0, err) : 0;
}

static int init_caller(struct caller *c, const struct pp_rendezvous_place *p,
                       double seconds, struct pp_err *err)
{
    *c = (struct caller){
        .place = p, .fd = -1, .stop = -1, .until = pp_clock() + seconds};
    if (pp_greeting_init(&c->greeting, p, err))
        return -1;
    pp_hello_fill(p, &c->hello);
    pp_hello_random(c->hello.process, sizeof c->hello.process);
    return pp_wire_find(p->address, p->port, &c->at, err);
}

/* The answer shows that it was heard. */
void pp_rendezvous_decline(const struct pp_rendezvous_place *p)
{
    struct pp_err ignored = {0};
    struct pp_welcome w;
    struct caller c;
    double seconds = p->seconds < reach_seconds ? p->seconds : reach_seconds;
    if (init_caller(&c, p, seconds, &ignored) == 0 &&
        reach_rank_0(&c, false, &ignored) == 0)
        (void)pp_wire_read(c.fd, -1, c.until, &w, sizeof w);
    if (c.fd >= 0)
        close(c.fd);
    if (c.at)
        freeaddrinfo(c.at);
}

/* Fails after the data connection ended or was silent for too long. */
static int fail_wait(const struct caller *c, enum pp_wire rc,
                     struct pp_err *err)
{
    const struct pp_rendezvous_place *p = c->place;
    if (rc == PP_WIRE_LATE)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "rank 0 at %s:%d has answered, but does not begin the "
                       "job: it is stopped, or waits for other ranks",
                       p->address, p->port);
    return pp_fail(err, PP_EXIT_SYSTEM, "rank 0 on %s is lost: %s", p->address,
                   errno ? strerror(errno) : "its connection has ended");
}

/* Waits for the welcome. late is why there is no second connection, or NULL:
 * rank 0 may have refused a rank meanwhile. Then it no longer listens, but its
 * answer has the reason. */
static int take_welcome(struct pp_rendezvous *j, struct caller *c,
                        const struct pp_err *late, struct pp_err *err)
{
    const struct pp_rendezvous_place *p = c->place;
    struct pp_welcome w;
    double until = c->until + grace_seconds;
    enum pp_wire rc = pp_wire_read(j->data[0], -1, until, &w, sizeof w);
    if (rc)
        return late ? pp_fail(err, late->code, "%s", late->text)
                    : fail_wait(c, rc, err);
    pp_clean_text(w.why, sizeof w.why);
    if (w.refused) {
        if (p->told)
            *p->told = !w.yours;
        return pp_fail(err, pp_hello_status(w.refused), "%s", w.why);
    }
    j->local = p->local < 0 ? w.local : p->local;
    rc = pp_wire_read(j->data[0], -1, until, j->hosts,
                      (size_t)j->size * sizeof *j->hosts);
    for (int r = 0; r < j->size; r++)
        pp_clean_text(j->hosts[r], sizeof j->hosts[r]);
    return rc ? fail_wait(c, rc, err) : 0;
}

int pp_rendezvous_join(struct pp_rendezvous *j,
                       const struct pp_rendezvous_place *p, struct pp_err *err)
{
    struct pp_err late = {0};
    struct caller c;
    if (p->failure) {
        pp_rendezvous_decline(p);
        return pp_fail(err, p->failure->code, "%s", p->failure->text);
    }
    int rc = init_caller(&c, p, p->seconds, err);
    if (rc == 0)
        rc = reach_rank_0(&c, false, err);
    j->data[0] = c.fd;
    if (rc == 0) {
        c.fd = -1;
        c.stop = j->data[0];
        int second = reach_rank_0(&c, true, &late);
        j->monitor[0] = c.fd;
        rc = take_welcome(j, &c, second < 0 ? &late : NULL, err);
    }
    if (c.at)
        freeaddrinfo(c.at);
    return rc;
}
