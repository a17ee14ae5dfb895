/* SPDX-License-Identifier: MIT */
/* rendezvous_state - the members of struct pp_rendezvous and the TCP functions.
 * Private to rendezvous*.c and wire.c. */
#ifndef PP_COMM_RENDEZVOUS_STATE_H
#define PP_COMM_RENDEZVOUS_STATE_H

#include <math.h>
#include <netdb.h>
#include <pthread.h>

#include "comm/hello.h"

#define PP_RENDEZVOUS_AT 80 /* bytes of the place of a rank */

enum pp_note_kind {
    PP_NOTE_ABORT = 'A', /* the job ends; has the reason */
    PP_NOTE_GOODBYE,     /* the sender is done */
    PP_NOTE_BEAT,        /* the sender is alive; has its place as text */
    PP_NOTE_STOP         /* the sender was asked to stop */
};

/* A message of the watched connections. */
struct pp_note {
    int32_t kind; /* enum pp_note_kind */
    struct pp_err why;
};

/* The state of another rank, for the watching thread. */
struct pp_rendezvous_peer {
    struct pp_note note; /* being received */
    size_t note_bytes;   /* of it that have arrived */
    double quiet;   /* seconds since its last beat in which this process ran */
    int unanswered; /* beats sent since */
    bool stalled;   /* it was quiet for too long */
    char at[PP_RENDEZVOUS_AT];          /* its place, "" if unknown */
    char observer_at[PP_RENDEZVOUS_AT]; /* the place of this rank at that time,
                                           if it reports the other rank */
};

struct pp_rendezvous {
    int rank, size, local;
    char (*hosts)[PP_RENDEZVOUS_HOST]; /* (size) */
    int *data, *monitor; /* (size) sockets, -1 if none. Rank 0 has both to
                            every other rank; the others have both to rank 0,
                            and data to their parent and children */
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

    /* Only the watching thread uses these. */
    struct pp_rendezvous_observer observer;
    struct pp_rendezvous_peer *peers; /* (size) */
    double beat_last, beat_next;      /* times of ticks and of the next beat */
    bool stop_sent, abort_told;       /* the observer knows of the abort */

    /* Another rank than 0 has these to find its parent and children. */
    struct {
        int listener; /* -1: no children, or all are connected */
        union pp_address parent;
        unsigned char session[PP_NONCE_BYTES];
    } tree;

    bool watched; /* the thread runs */
    pthread_t thread;
};

/* Connect the sockets, and fill hosts and local: rank 0 (rendezvous_gather.c)
 * and the other ranks (rendezvous_join.c). */
int pp_rendezvous_gather(struct pp_rendezvous *j,
                         const struct pp_rendezvous_place *place,
                         struct pp_err *err) PP_MUST_USE;
int pp_rendezvous_join(struct pp_rendezvous *j,
                       const struct pp_rendezvous_place *place,
                       struct pp_err *err) PP_MUST_USE;

/* --- rendezvous_abort.c: the end of a job --- */

/* Sends a note and never blocks: a rank that does not read its notes cannot be
 * told. why may be NULL. */
void pp_note_send(int fd, enum pp_note_kind kind, const struct pp_err *why);

/* Ends the job here, and tells all ranks that this one is connected to. lost is
 * the rank whose loss is the reason, or -1. */
void pp_rendezvous_end(struct pp_rendezvous *j, const struct pp_err *why,
                       int lost);

/* Makes an eventfd readable. */
void pp_event_signal(int fd);

/* --- rendezvous_tree.c: the connections of the tree --- */

/* Listens for the children of this rank, if it has any, at its address in its
 * connection to rank 0. */
int pp_rendezvous_listen(struct pp_rendezvous *j, union pp_address *at,
                         struct pp_err *err) PP_MUST_USE;

/* Connects this rank to its parent, and waits for its children. The watching
 * thread runs. After a failure the job is aborted. */
int pp_rendezvous_connect_tree(struct pp_rendezvous *j,
                               const struct pp_rendezvous_place *place,
                               struct pp_err *err) PP_MUST_USE;

/* --- rendezvous_watch.c --- */

/* watch_begin starts the watching thread. watch_end returns when it has
 * ended. */
int pp_rendezvous_watch_begin(struct pp_rendezvous *j,
                              struct pp_err *err) PP_MUST_USE;
void pp_rendezvous_watch_end(struct pp_rendezvous *j);

/* --- rendezvous_beat.c --- */

/* Returns the seconds that the watching thread may sleep between ticks. */
double pp_beat_wait(const struct pp_rendezvous *j);

/* Sends beats that are due and reports ranks that have become silent. */
void pp_beat_tick(struct pp_rendezvous *j);

/* Takes a beat of a rank. */
void pp_beat_heard(struct pp_rendezvous *j, int rank, const char *at);

/* --- wire.c: TCP --- */

enum pp_wire {
    PP_WIRE_DONE,
    PP_WIRE_STOPPED, /* stop became readable */
    PP_WIRE_LATE,    /* time is up */
    PP_WIRE_LOST     /* errno is the reason; 0: the other side has closed */
};

/* Opens a socket that listens at the address; accept does not block. If the
 * address is not one of this machine, such as that of a gateway, it listens at
 * all of the machine's. */
int pp_wire_listen(const char *address, int port, int *fd,
                   struct pp_err *err) PP_MUST_USE;

/* Opens a socket that listens at any free port of the local address of a
 * connection. *at: where. */
int pp_wire_listen_beside(int connection, union pp_address *at, int *fd,
                          struct pp_err *err) PP_MUST_USE;

/* Looks up an address. The caller frees *out with freeaddrinfo. */
int pp_wire_find(const char *address, int port, struct addrinfo **out,
                 struct pp_err *err) PP_MUST_USE;

/* Connects to the first of the addresses that accepts, once. */
enum pp_wire pp_wire_connect(const struct addrinfo *a, int stop, double until,
                             int *fd);

/* Sets options: small messages leave at once, and the loss of a machine is
 * noticed after about a minute. If data waits to be sent to that machine, as
 * beats do, this needs has_beats. It would also end a connection whose receiver
 * does not read for a minute. */
void pp_wire_prepare(int fd, bool has_beats);

/* Write or read all of the bytes. They return PP_WIRE_STOPPED when the
 * descriptor stop becomes readable, and PP_WIRE_LATE at the time until. stop
 * may be -1, and until INFINITY. */
enum pp_wire pp_wire_write(int fd, int stop, double until, const void *data,
                           size_t bytes);
enum pp_wire pp_wire_read(int fd, int stop, double until, void *data,
                          size_t bytes);

#endif
