/* SPDX-License-Identifier: MIT */
/* rendezvous_state - the members of struct pp_rendezvous and the TCP functions.
 * Private to rendezvous*.c and wire.c. */
#ifndef PP_COMM_RENDEZVOUS_STATE_H
#define PP_COMM_RENDEZVOUS_STATE_H

#include <pthread.h>

#include "comm/rendezvous.h"

struct pp_rendezvous {
    int rank, size, local;
    char (*hosts)[PP_RENDEZVOUS_HOST]; /* (size) */
    int *data, *monitor; /* (size) sockets, -1 if none. Rank 0 has one to every
                            other rank; the others have one to rank 0 */
    int stop;            /* eventfd: readable after an abort */
    int wake;            /* eventfd: wakes the watching thread */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool aborted, closing;
    bool *gone;        /* (size) the rank said goodbye, or was lost */
    struct pp_err why; /* reason of the abort */
    int lost;          /* rank whose loss caused the abort here; -1: none */
    struct pp_rendezvous_watcher watcher;
    bool told; /* the watcher knows of the abort */

    bool watched; /* the thread runs */
    pthread_t thread;
};

/* Connects the sockets and fills hosts and local. */
int pp_rendezvous_meet(struct pp_rendezvous *j,
                       const struct pp_rendezvous_place *place,
                       struct pp_err *err) PP_MUST_USE;

/* watch_begin starts the watching thread. watch_end returns when it has
 * ended. */
int pp_rendezvous_watch_begin(struct pp_rendezvous *j,
                              struct pp_err *err) PP_MUST_USE;
void pp_rendezvous_watch_end(struct pp_rendezvous *j);

/* --- wire.c: TCP --- */

enum pp_wire {
    PP_WIRE_DONE,
    PP_WIRE_STOPPED, /* stop became readable */
    PP_WIRE_LOST     /* errno is the reason; 0: the other side has closed */
};

/* Opens a socket that listens at the address. If the address is not one of this
 * machine, such as that of a gateway, it listens at all of the machine's. */
int pp_wire_listen(const char *address, int port, int *fd,
                   struct pp_err *err) PP_MUST_USE;

/* Connects. Retries for the given seconds while nobody listens. */
int pp_wire_connect(const char *address, int port, double seconds, int *fd,
                    struct pp_err *err) PP_MUST_USE;

/* Sets options: small messages leave at once, and the loss of a machine is
 * noticed after about a minute. */
void pp_wire_prepare(int fd);

/* Write or read all of the bytes. They return PP_WIRE_STOPPED when the
 * descriptor stop becomes readable; stop may be -1. */
enum pp_wire pp_wire_write(int fd, int stop, const void *data, size_t bytes);
enum pp_wire pp_wire_read(int fd, int stop, void *data, size_t bytes);

#endif
