/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous_call.h"

#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous_state.h"

/* The result of a call. */
enum outcome {
    PROVEN,    /* the right rank of this job has answered */
    STOPPED,   /* there is a reason to give up */
    NOBODY,    /* errno is the reason */
    SILENT,    /* a program accepts the connection, but does not answer */
    NOT_RANKS, /* a program that is not pprun closes it, or says something */
    UNPROVEN   /* a rank of another job, or with another secret */
};

static enum outcome call_once(struct pp_caller *c)
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

static int fail_outcome(const struct pp_caller *c, enum outcome outcome,
                        int error, struct pp_err *err)
{
    switch (outcome) {
    case SILENT:
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "%s:%d accepts connections but does not answer: %s is "
                       "stopped, or another program has the port",
                       c->address, c->port, c->who);
    case NOT_RANKS:
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "another program than %s has the port %s:%d", c->who,
                       c->address, c->port);
    case UNPROVEN:
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s at %s:%d is of another job, or has another secret",
                       c->who, c->address, c->port);
    default:
        errno = error;
        return pp_fail_errno(err, "%s does not answer at %s:%d", c->who,
                             c->address, c->port);
    }
}

/* Returns whether there is a reason to give up. */
static bool is_stopped(const struct pp_caller *c)
{
    struct pollfd at = {c->stop, POLLIN, 0};
    return poll(&at, 1, 0) > 0;
}

int pp_caller_reach(struct pp_caller *c, struct pp_err *err)
{
    struct timespec pause = {0, 20000000};
    enum outcome known = SILENT;
    for (;;) {
        enum outcome outcome = call_once(c);
        int error = errno;
        /* Time ends the last call: what an earlier one found counts. */
        if (outcome == NOT_RANKS || outcome == UNPROVEN)
            known = outcome;
        if (outcome == SILENT)
            outcome = known;
        if (outcome == PROVEN)
            return 0;
        if (outcome == STOPPED || is_stopped(c))
            return 1;
        /* A rank without the secret cannot report that it has none. */
        if (outcome == UNPROVEN && c->fails)
            return fail_outcome(c, outcome, error, err);
        double until = outcome == NOBODY ? c->reach : c->until;
        bool over = pp_clock() + (double)pause.tv_nsec / 1e9 >= until;
        if (over || (outcome == NOBODY && !may_come_up(error)))
            return fail_outcome(c, outcome, error, err);
        nanosleep(&pause, NULL);
        if (outcome != NOBODY && pause.tv_nsec < 300000000)
            pause.tv_nsec *= 2;
    }
}

int pp_caller_greet(struct pp_caller *c, struct pp_err *err)
{
    pp_hello_prove(&c->greeting, &c->hello);
    enum pp_wire rc =
        pp_wire_write(c->fd, c->stop, c->until, &c->hello, sizeof c->hello);
    return rc == PP_WIRE_STOPPED ? 1 : rc ? fail_outcome(c, SILENT, 0, err) : 0;
}
