/* SPDX-License-Identifier: MIT */
/* join_state - what is behind struct pp_rendezvous, private to join.c,
 * join_meet.c and join_watch.c. */
#ifndef PP_COMM_RENDEZVOUS_STATE_H
#define PP_COMM_RENDEZVOUS_STATE_H

#include <pthread.h>

#include "comm/rendezvous.h"

struct pp_rendezvous {
    int rank, size, local;
    char (*hosts)[PP_RENDEZVOUS_HOST]; /* (size) */
    int *data, *monitor; /* (size) sockets, -1 where there is none:
                            rank 0 has one to every other, these to it */
    int stop;            /* eventfd: readable once aborted */
    int wake;            /* eventfd: something for the watching thread */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool aborted, closing;
    bool *gone;        /* (size) has said goodbye, or was lost */
    struct pp_err why; /* of the abort */
    int lost; /* the rank whose loss this one has noticed first; -1: none */
    struct pp_rendezvous_watcher watcher;
    bool told; /* the watcher of the abort */

    bool watched; /* thread runs */
    pthread_t thread;
};

/* Connects the sockets and fills hosts and local. */
int pp_rendezvous_meet(struct pp_rendezvous *j,
                       const struct pp_rendezvous_place *place,
                       struct pp_err *err) PP_MUST_USE;

/* Starts the watching thread; end returns when it has ended. */
int pp_rendezvous_watch_begin(struct pp_rendezvous *j,
                              struct pp_err *err) PP_MUST_USE;
void pp_rendezvous_watch_end(struct pp_rendezvous *j);

/* --- TCP: wire.c --- */

enum pp_wire {
    PP_WIRE_DONE,
    PP_WIRE_STOPPED, /* stop became readable */
    PP_WIRE_LOST     /* errno says why; 0: the other side has closed */
};

/* A socket that listens at the address, or at every address of this machine
 * where that one belongs to something in front of it. */
int pp_wire_listen(const char *address, int port, int *fd,
                   struct pp_err *err) PP_MUST_USE;

/* Connects, and tries again for so many seconds while nobody listens. */
int pp_wire_connect(const char *address, int port, double seconds, int *fd,
                    struct pp_err *err) PP_MUST_USE;

/* Small messages leave at once, and a machine that has vanished is noticed
 * after about a minute. */
void pp_wire_prepare(int fd);

/* All of the bytes. stop is a descriptor, or -1. */
enum pp_wire pp_wire_write(int fd, int stop, const void *data, size_t bytes);
enum pp_wire pp_wire_read(int fd, int stop, void *data, size_t bytes);

#endif
