/* SPDX-License-Identifier: MIT */
/* rendezvous_call - a rank calls rank 0 or its parent, until it answers and
 * proves that it is of this job. Private to rendezvous*.c. */
#ifndef PP_COMM_RENDEZVOUS_CALL_H
#define PP_COMM_RENDEZVOUS_CALL_H

#include <netdb.h>

#include "comm/hello.h"

/* A connection to be made. */
struct pp_caller {
    char who[96];        /* of errors: "rank 0" */
    const char *address; /* likewise */
    int port;
    const struct addrinfo *at;
    double reach; /* until then it calls again if nobody listens */
    double until; /* until then it waits for an answer, and calls again if the
                     connection ends */
    int stop;     /* it gives up when this descriptor is readable; -1: none */
    bool fails;   /* this rank cannot start, and calls to report it */
    struct pp_greeting greeting; /* with the key */
    struct pp_hello hello;
    int fd; /* result; -1: no connection */
};

/* Connects, and sets fd. Returns 1 if stop is readable. */
int pp_caller_reach(struct pp_caller *c, struct pp_err *err) PP_MUST_USE;

/* Proves and sends c->hello. Returns 1 if stop is readable. */
int pp_caller_greet(struct pp_caller *c, struct pp_err *err) PP_MUST_USE;

#endif
