/* SPDX-License-Identifier: MIT */
/* rendezvous_guests - connections to a rank that listens, before they have said
 * hello. All are served at once, so that connections of other programs, which
 * say nothing or something else, delay nobody. Private to rendezvous*.c. */
#ifndef PP_COMM_RENDEZVOUS_GUESTS_H
#define PP_COMM_RENDEZVOUS_GUESTS_H

#include <poll.h>

#include "comm/hello.h"

struct pp_guest;

struct pp_guests {
    int listener;                /* -1: none. Belongs to this */
    struct pp_greeting greeting; /* with the key that they must prove */
    int n_strange;        /* turned away: other programs, jobs or secrets */
    struct pp_guest **at; /* (max), oldest first */
    int n, max;
};

/* Makes room for so many ranks at a time, and for strangers besides. If there
 * are more, the oldest one is turned away: a rank calls again. The caller sets
 * the other members before, and frees all with pp_guests_finish also after a
 * failure. */
int pp_guests_init(struct pp_guests *g, int n_ranks,
                   struct pp_err *err) PP_MUST_USE;
void pp_guests_finish(struct pp_guests *g);

/* Fills the 1 + n descriptors to poll. at has room for 1 + max. */
void pp_guests_list(const struct pp_guests *g, struct pollfd *at);

/* Takes the hello of a rank, and its connection. Fails if no others are to be
 * served. */
typedef int pp_guest_fn(void *ctx, const struct pp_hello *h, int fd,
                        struct pp_err *err);

/* Serves the connections that have something to say. at is from pp_guests_list,
 * and was polled. Fails also if the process may open no descriptor for one more
 * connection. */
int pp_guests_serve(struct pp_guests *g, const struct pollfd *at,
                    pp_guest_fn *take, void *ctx,
                    struct pp_err *err) PP_MUST_USE;

#endif
