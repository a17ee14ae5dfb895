/* SPDX-License-Identifier: MIT */
/* rendezvous_join - a rank connects to rank 0, twice, and waits until all ranks
 * have joined. It calls again until time is up if rank 0 does not listen yet,
 * if another program has its port, or if rank 0 closes the connection because
 * too many wait. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous_call.h"
#include "comm/rendezvous_state.h"

/* Seconds in which a rank that cannot start tries to reach rank 0. */
static const double reach_seconds = 30;

/* A rank that has joined waits so much longer than rank 0, which knows who is
 * missing. */
static const double grace_seconds = 1;

/* Prepares a call to rank 0. The caller frees *at with freeaddrinfo. */
static int init_caller(struct pp_caller *c, const struct pp_rendezvous_place *p,
                       double seconds, struct addrinfo **at, struct pp_err *err)
{
    double until = pp_clock() + seconds;
    *c = (struct pp_caller){.who = "rank 0",
                            .address = p->address,
                            .port = p->port,
                            .reach = until,
                            .until = until,
                            .stop = -1,
                            .fails = p->failure,
                            .fd = -1};
    *at = NULL;
    if (pp_greeting_init(&c->greeting, p, err) ||
        pp_wire_find(p->address, p->port, at, err))
        return -1;
    c->at = *at;
    pp_hello_fill(p, &c->hello);
    pp_hello_random(c->hello.process, sizeof c->hello.process);
    return 0;
}

/* Connects to rank 0 and says hello. Returns 1 if the other connection has news
 * before that. */
static int reach_rank_0(struct pp_caller *c, struct pp_err *err)
{
    int rc = pp_caller_reach(c, err);
    return rc ? rc : pp_caller_greet(c, err);
}

/* The answer shows that it was heard. */
void pp_rendezvous_decline(const struct pp_rendezvous_place *p)
{
    struct pp_err ignored = {0};
    struct addrinfo *at;
    struct pp_welcome w;
    struct pp_caller c;
    double seconds = p->seconds < reach_seconds ? p->seconds : reach_seconds;
    if (init_caller(&c, p, seconds, &at, &ignored) == 0 &&
        reach_rank_0(&c, &ignored) == 0)
        (void)pp_wire_read(c.fd, -1, c.until, &w, sizeof w);
    if (c.fd >= 0)
        close(c.fd);
    if (at)
        freeaddrinfo(at);
}

/* Fails after the data connection ended or was silent for too long. */
static int fail_wait(const struct pp_caller *c, enum pp_wire rc,
                     struct pp_err *err)
{
    if (rc == PP_WIRE_LATE)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "rank 0 at %s:%d has answered, but does not begin the "
                       "job: it is stopped, or waits for other ranks",
                       c->address, c->port);
    return pp_fail(err, PP_EXIT_SYSTEM, "rank 0 on %s is lost: %s", c->address,
                   errno ? strerror(errno) : "its connection has ended");
}

/* Waits for the welcome. late is why there is no second connection, or NULL:
 * rank 0 may have refused a rank meanwhile. Then it no longer listens, but its
 * answer has the reason. */
static int take_welcome(struct pp_rendezvous *j,
                        const struct pp_rendezvous_place *p,
                        const struct pp_caller *c, const struct pp_err *late,
                        struct pp_err *err)
{
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
    j->tree.parent = w.parent;
    memcpy(j->tree.session, w.session, sizeof w.session);
    rc = pp_wire_read(j->data[0], -1, until, j->hosts,
                      (size_t)j->size * sizeof *j->hosts);
    for (int r = 0; r < j->size; r++)
        pp_clean_text(j->hosts[r], sizeof j->hosts[r]);
    return rc ? fail_wait(c, rc, err) : 0;
}

/* Makes the connection for data. If this rank cannot listen for its children,
 * its hello says so. */
static int join_data(struct pp_rendezvous *j, struct pp_caller *c,
                     struct pp_err *err)
{
    struct pp_err failed = {0};
    int rc = pp_caller_reach(c, err);
    j->data[0] = c->fd;
    if (rc == 0 && pp_rendezvous_listen(j, &c->hello.listens, &failed))
        pp_hello_set_failed(&c->hello, &failed);
    return rc ? rc : pp_caller_greet(c, err);
}

int pp_rendezvous_join(struct pp_rendezvous *j,
                       const struct pp_rendezvous_place *p, struct pp_err *err)
{
    struct pp_err late = {0};
    struct addrinfo *at;
    struct pp_caller c;
    if (p->failure) {
        pp_rendezvous_decline(p);
        return pp_fail(err, p->failure->code, "%s", p->failure->text);
    }
    int rc = init_caller(&c, p, p->seconds, &at, err);
    if (rc == 0)
        rc = join_data(j, &c, err);
    if (rc == 0) {
        c.fd = -1;
        c.stop = j->data[0];
        c.hello.is_monitor = true;
        int second = reach_rank_0(&c, &late);
        j->monitor[0] = c.fd;
        rc = take_welcome(j, p, &c, second < 0 ? &late : NULL, err);
    }
    if (at)
        freeaddrinfo(at);
    return rc;
}
