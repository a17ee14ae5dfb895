/* SPDX-License-Identifier: MIT */
/* join_state - what is behind struct pp_join, private to join.c,
 * join_meet.c and join_watch.c. */
#ifndef PP_COMM_JOIN_STATE_H
#define PP_COMM_JOIN_STATE_H

#include <pthread.h>

#include "comm/join.h"

struct pp_join {
    int rank, size, local;
    char (*hosts)[PP_JOIN_HOST]; /* (size) */
    int *data, *monitor;         /* (size) sockets, -1 where there is none:
                                    rank 0 has one to every other, these to it */
    int stop;                    /* eventfd: readable once aborted */
    int wake; /* eventfd: something for the watching thread */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool aborted, closing;
    bool *gone; /* (size) has said goodbye, or was lost */
    char why[sizeof(((struct pp_err *)0)->text)];
    struct pp_join_watcher watcher;
    bool told; /* the watcher of the abort */

    bool watched; /* thread runs */
    pthread_t thread;
};

/* Connects the sockets and fills hosts and local. */
int pp_join_meet(struct pp_join *j, const struct pp_join_place *place,
                 struct pp_err *err) PP_MUST_USE;

/* Starts the watching thread; end returns when it has ended. */
int pp_join_watch_begin(struct pp_join *j, struct pp_err *err) PP_MUST_USE;
void pp_join_watch_end(struct pp_join *j);

#endif
