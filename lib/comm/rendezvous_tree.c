/* SPDX-License-Identifier: MIT */
/* rendezvous_tree - connects every rank to its parent in the tree (tree.h),
 * when all have joined. Children of rank 0 have a connection to it already.
 *
 * A rank listens before it joins, so its children reach it when they are
 * welcome. It calls its own parent before it serves them: the calls begin at
 * rank 0's children and go down. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous_call.h"
#include "comm/rendezvous_guests.h"
#include "comm/rendezvous_state.h"
#include "comm/tree.h"

_Static_assert(offsetof(struct sockaddr_in, sin_port) ==
                   offsetof(struct sockaddr_in6, sin6_port),
               "the port of both families is at one place");

/* Seconds in which a rank tries to reach a parent that does not accept its
 * connection. */
static const double reach_seconds = 30;

/* The byte that accepts a child. */
static const char accepted = 'a';

int pp_rendezvous_listen(struct pp_rendezvous *j, union pp_address *at,
                         struct pp_err *err)
{
    return pp_tree_n_children(j->rank, j->size) == 0
               ? 0
               : pp_wire_listen_beside(j->data[0], at, &j->tree.listener, err);
}

/* --- the parent --- */

/* Writes the address of the parent, and fills its members of a call. An
 * address of a link has the number of this machine's interface to it. */
static void find_parent(struct pp_rendezvous *j, struct addrinfo *at,
                        struct pp_caller *c, char *text, size_t room)
{
    union pp_address *a = &j->tree.parent, own = {0};
    bool v6 = a->any.sa_family == AF_INET6;
    socklen_t n = sizeof own;
    char ip[INET6_ADDRSTRLEN] = "";
    if (v6 && IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr) &&
        getsockname(j->data[0], &own.any, &n) == 0)
        a->v6.sin6_scope_id = own.v6.sin6_scope_id;
    inet_ntop(a->any.sa_family,
              v6 ? (const void *)&a->v6.sin6_addr : &a->v4.sin_addr, ip,
              sizeof ip);
    snprintf(text, room, "%s%s%s", v6 ? "[" : "", ip, v6 ? "]" : "");
    *at = (struct addrinfo){.ai_family = a->any.sa_family,
                            .ai_socktype = SOCK_STREAM,
                            .ai_addr = &a->any,
                            .ai_addrlen = v6 ? sizeof a->v6 : sizeof a->v4};
    c->address = text;
    c->port = ntohs(a->v6.sin6_port);
    c->at = at;
}

/* Calls the parent until it accepts. Returns 1 if the job has ended. */
static int reach_parent(struct pp_caller *c, struct pp_err *err)
{
    static const struct timespec pause = {0, 20000000};
    for (;;) {
        char got = 0;
        int rc = pp_caller_reach(c, err);
        if (rc == 0)
            rc = pp_caller_greet(c, err);
        if (rc)
            return rc;
        enum pp_wire end = pp_wire_read(c->fd, c->stop, c->until, &got, 1);
        if (end == PP_WIRE_DONE && got == accepted)
            return 0;
        close(c->fd);
        c->fd = -1;
        if (end == PP_WIRE_STOPPED)
            return 1;
        if (pp_clock() >= c->until)
            return pp_fail(err, PP_EXIT_SYSTEM, "%s does not accept this rank",
                           c->who);
        nanosleep(&pause, NULL);
    }
}

static int connect_parent(struct pp_rendezvous *j,
                          const struct pp_rendezvous_place *p,
                          struct pp_err *err)
{
    int parent = pp_tree_parent(j->rank);
    double now = pp_clock();
    struct addrinfo at;
    char text[INET6_ADDRSTRLEN + 2];
    struct pp_caller c = {.reach = now + fmin(p->seconds, reach_seconds),
                          .until = now + p->seconds,
                          .stop = j->stop,
                          .fd = -1};
    if (j->rank == 0 || parent == 0)
        return 0;
    snprintf(c.who, sizeof c.who, "rank %d on %s", parent, j->hosts[parent]);
    find_parent(j, &at, &c, text, sizeof text);
    if (pp_greeting_init(&c.greeting, p, err))
        return -1;
    pp_greeting_of_parent(&c.greeting, j->tree.session, parent);
    pp_hello_fill(p, &c.hello);
    int rc = reach_parent(&c, err);
    j->data[parent] = c.fd;
    return rc;
}

/* --- the children --- */

/* Returns the first child that is not connected, or -1. */
static int missing_child(const struct pp_rendezvous *j)
{
    for (int k = 0; k < pp_tree_n_children(j->rank, j->size); k++)
        if (j->data[j->rank + (1 << k)] < 0)
            return j->rank + (1 << k);
    return -1;
}

static int take_child(void *ctx, const struct pp_hello *h, int fd,
                      struct pp_err *err)
{
    struct pp_rendezvous *j = ctx;
    bool is_child = h->rank > j->rank && h->rank < j->size &&
                    pp_tree_parent(h->rank) == j->rank;
    (void)err;
    if (!is_child || j->data[h->rank] >= 0 ||
        pp_wire_write(fd, j->stop, INFINITY, &accepted, 1))
        close(fd);
    else
        j->data[h->rank] = fd;
    return 0;
}

/* Serves connections until every child has one. Returns 1 if the job has
 * ended. */
static int serve_children(struct pp_rendezvous *j, struct pp_guests *g,
                          struct pollfd *at, double seconds, struct pp_err *err)
{
    double until = pp_clock() + seconds;
    for (int child; (child = missing_child(j)) >= 0;) {
        double left = until - pp_clock();
        if (left <= 0)
            return pp_fail(err, PP_EXIT_SYSTEM,
                           "rank %d on %s has not connected to rank %d on %s",
                           child, j->hosts[child], j->rank, j->hosts[j->rank]);
        at[0] = (struct pollfd){j->stop, POLLIN, 0};
        pp_guests_list(g, at + 1);
        if (poll(at, (nfds_t)(2 + g->n),
                 left < 1e6 ? (int)(left * 1000) + 1 : -1) <= 0)
            continue;
        if (at[0].revents)
            return 1;
        if (pp_guests_serve(g, at + 1, take_child, j, err))
            return -1;
    }
    return 0;
}

static int connect_children(struct pp_rendezvous *j,
                            const struct pp_rendezvous_place *p,
                            struct pp_err *err)
{
    struct pp_guests g = {.listener = j->tree.listener};
    struct pollfd *at = NULL;
    int rc = -1;
    j->tree.listener = -1;
    if (g.listener < 0)
        return 0;
    if (pp_greeting_init(&g.greeting, p, err) ||
        pp_guests_init(&g, pp_tree_n_children(j->rank, j->size), err))
        goto out;
    pp_greeting_of_parent(&g.greeting, j->tree.session, j->rank);
    at = calloc((size_t)(2 + g.max), sizeof *at);
    rc = at ? serve_children(j, &g, at, p->seconds, err)
            : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
out:
    pp_guests_finish(&g);
    free(at);
    return rc;
}

int pp_rendezvous_connect_tree(struct pp_rendezvous *j,
                               const struct pp_rendezvous_place *p,
                               struct pp_err *err)
{
    struct pp_err failed = {0};
    int rc = connect_parent(j, p, &failed);
    if (rc == 0)
        rc = connect_children(j, p, &failed);
    if (rc == 0)
        return 0;
    /* If the other rank is lost, rank 0 has ended the job meanwhile. */
    if (rc < 0)
        pp_rendezvous_abort(j, failed.text);
    return pp_rendezvous_fail(j, err);
}
