/* SPDX-License-Identifier: MIT */
/* join - the ranks of a job that are processes, on one machine or many: how
 * they find each other, what they tell each other beside the messages of the
 * schedule, and how all of them end when one does.
 *
 * Every rank holds two TCP connections to rank 0. One carries data, when the
 * rank's thread calls; the other is watched by a thread of its own, so that a
 * process that has ended, a machine that has vanished or a rank that gives up
 * is known everywhere whatever the others are waiting for. Rank 0 passes on
 * what it learns, and when it is lost itself everyone knows.
 *
 * Functions return 0, or -1 with *err filled: PP_EXIT_SYSTEM, or PP_EXIT_INPUT
 * where the ranks do not fit together. After an abort all fail with its
 * message. */
#ifndef PP_COMM_RENDEZVOUS_H
#define PP_COMM_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PP_RENDEZVOUS_HOST 64 /* bytes of a machine's name */

struct pp_rendezvous_place {
    int rank, size;      /* rank: -1 where it is not known, to decline */
    int local;           /* among the ranks of its machine; -1: by its name */
    const char *address; /* of rank 0's machine; may be NULL with size 1 */
    int port;
    uint64_t job;        /* the same for the ranks of a job, and others' not */
    const char *version; /* of the program: all ranks have one */
    double seconds;      /* how long to wait for the others at the start */

    /* Why this rank cannot start, or NULL: it joins to say so. */
    const struct pp_err *failure;
    bool *told; /* set where joining fails and rank 0 says why; or NULL */
};

struct pp_rendezvous;

/* Returns when all ranks have come, or as soon as one is known not to: one with
 * a failure, one that does not fit, one whose process has ended. Then it fails
 * at every rank, with that rank's failure; at those that come later too, as
 * long as rank 0 expects them, which it does for a few seconds. A rank that
 * ends without a word before it has come is not known of: place->seconds end
 * the wait. */
int pp_rendezvous_open(const struct pp_rendezvous_place *place,
                       struct pp_rendezvous **out,
                       struct pp_err *err) PP_MUST_USE;

/* Tells rank 0, if it comes in time, that this rank cannot start: with
 * place->failure, from place->address and port on; its number and the size need
 * not be known. */
void pp_rendezvous_decline(const struct pp_rendezvous_place *place);

/* Tells the others that this rank is done, unless there was an abort, and
 * frees. Accepts NULL. */
void pp_rendezvous_close(struct pp_rendezvous *j);

int pp_rendezvous_rank(const struct pp_rendezvous *j);
int pp_rendezvous_size(const struct pp_rendezvous *j);

/* This rank's number among those of its machine. */
int pp_rendezvous_local(const struct pp_rendezvous *j);

/* The name of the machine that rank is on. */
const char *pp_rendezvous_host(const struct pp_rendezvous *j, int rank);

/* all is (size, bytes), in the order of ranks, at every rank. */
int pp_rendezvous_allgather(struct pp_rendezvous *j, const void *mine,
                            void *all, size_t bytes,
                            struct pp_err *err) PP_MUST_USE;

/* Rank 0's *data goes to all; at the others it is malloc'ed. */
int pp_rendezvous_broadcast(struct pp_rendezvous *j, void **data, size_t *bytes,
                            struct pp_err *err) PP_MUST_USE;

/* Between rank 0 and another. */
int pp_rendezvous_send(struct pp_rendezvous *j, int to, const void *buf,
                       size_t bytes, struct pp_err *err) PP_MUST_USE;
int pp_rendezvous_recv(struct pp_rendezvous *j, int from, void *buf,
                       size_t bytes, struct pp_err *err) PP_MUST_USE;

/* Ends the job: every rank's calls fail. Never blocks; the first reason
 * wins. */
void pp_rendezvous_abort(struct pp_rendezvous *j, const char *why);
bool pp_rendezvous_aborted(struct pp_rendezvous *j);

/* Waits some seconds for an abort: of a failure that may be another rank's end,
 * who that was is known a moment later. Whether there was one. */
bool pp_rendezvous_await_abort(struct pp_rendezvous *j);

/* Fails with the reason of the abort, whose origin is the rank that failed or
 * was lost. */
int pp_rendezvous_fail(struct pp_rendezvous *j, struct pp_err *err);

/* The rank whose loss this process has noticed, and aborted for; -1: none. */
int pp_rendezvous_lost(struct pp_rendezvous *j);

/* What the watching thread does besides: look, several times a second, whose
 * failure ends the job with its message when no better reason comes; and
 * aborted, once. NULL ends it. Returns when neither is being called. */
struct pp_rendezvous_watcher {
    int (*look)(void *ctx, struct pp_err *err);
    void (*aborted)(void *ctx);
    void *ctx;
};
void pp_rendezvous_watch(struct pp_rendezvous *j,
                         const struct pp_rendezvous_watcher *w);

#endif
