/* SPDX-License-Identifier: MIT */
/* rendezvous - connects the ranks of a job that are processes, on one machine
 * or many. The ranks find each other, exchange control data, and all end when
 * one ends.
 *
 * Every rank has two TCP connections to rank 0. One carries data when the
 * rank's thread calls. A thread of its own watches the other, so that all ranks
 * learn soon that a process has ended, a machine has vanished, a rank is
 * stopped or gives up. Rank 0 passes on what it learns. If rank 0 itself is
 * lost, every rank notices. Another connection carries data between a rank and
 * its parent in the tree (tree.h), through which gathers and broadcasts go.
 *
 * Functions return 0, or -1 with *err filled: PP_EXIT_SYSTEM, or PP_EXIT_INPUT
 * if the ranks do not fit together. After an abort all functions fail with its
 * message. */
#ifndef PP_COMM_RENDEZVOUS_H
#define PP_COMM_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PP_RENDEZVOUS_HOST 64 /* bytes of a machine's name */

/* Callbacks of the watching thread while ranks are connected. Each may be
 * NULL. */
struct pp_rendezvous_observer {
    /* A rank that does not answer for so many seconds, because it is stopped or
     * its machine stalls, is reported once, and again when it answers. A rank
     * that computes for long still answers. 0: never. */
    double seconds;
    bool abort; /* such a rank ends the job */
    void (*say)(void *ctx, const char *text);
    /* Writes the place of this rank in its work, for a report. */
    void (*describe)(void *ctx, char *text, size_t room);
    /* Returns whether this process was asked to stop. Then stop is called at
     * rank 0, which may be waiting for something else than the ranks. */
    bool (*stopping)(void *ctx);
    void (*stop)(void *ctx);
    /* Called once when the job has been aborted, with the reason, before
     * anything is done that may never return. */
    void (*aborted)(void *ctx, const struct pp_err *why);
    void *ctx;
};

struct pp_rendezvous_place {
    int rank, size;      /* rank: -1 if unknown, only to decline */
    int local;           /* index on its machine; -1: found by host name */
    const char *address; /* rank 0's machine; may be NULL if size is 1 */
    int port;
    uint64_t job;       /* number of the job, to reject ranks of other jobs */
    const void *secret; /* known to the ranks of the job only; NULL: none */
    size_t secret_bytes;
    const char *version; /* the program's; the same at all ranks */
    double seconds;      /* longest wait until all have joined, and then for
                            the connections of the tree */

    /* Reason why this rank cannot start, or NULL. It joins to report it. */
    const struct pp_err *failure;
    bool *told; /* set if joining fails and rank 0 prints why; or NULL */

    const struct pp_rendezvous_observer *observer; /* copied; or NULL */
};

struct pp_rendezvous;

/* Returns when all ranks have joined. Fails at every rank as soon as one cannot
 * join, with the reason of that rank: it has a failure, it does not fit, or its
 * process has ended. Ranks that join up to a few seconds later fail with the
 * same reason. If a process ends before it connects, the others wait for
 * place->seconds. */
int pp_rendezvous_open(const struct pp_rendezvous_place *place,
                       struct pp_rendezvous **out,
                       struct pp_err *err) PP_MUST_USE;

/* Tells rank 0 that this rank cannot start, if rank 0 listens in time. Uses
 * failure, address, port and job of place; rank and size may be unknown. */
void pp_rendezvous_decline(const struct pp_rendezvous_place *place);

/* Tells the others that this rank is done, unless the job was aborted, and
 * frees j. Accepts NULL. */
void pp_rendezvous_close(struct pp_rendezvous *j);

int pp_rendezvous_rank(const struct pp_rendezvous *j);
int pp_rendezvous_size(const struct pp_rendezvous *j);

/* Returns the index of this rank on its machine. */
int pp_rendezvous_local(const struct pp_rendezvous *j);

/* Returns the name of the machine of a rank. */
const char *pp_rendezvous_host(const struct pp_rendezvous *j, int rank);

/* Collects bytes from every rank, in rank order, at every rank. all is (size,
 * bytes). */
int pp_rendezvous_allgather(struct pp_rendezvous *j, const void *mine,
                            void *all, size_t bytes,
                            struct pp_err *err) PP_MUST_USE;

struct pp_verdict; /* tree.h */

/* Replaces the verdict of every rank by that of all. */
int pp_rendezvous_judge(struct pp_rendezvous *j, struct pp_verdict *v,
                        struct pp_err *err) PP_MUST_USE;

/* Sends rank 0's *data to all ranks. The other ranks own a malloc'ed copy. */
int pp_rendezvous_broadcast(struct pp_rendezvous *j, void **data, size_t *bytes,
                            struct pp_err *err) PP_MUST_USE;

/* Send and receive one message between rank 0 and another rank, or a rank and
 * its parent. */
int pp_rendezvous_send(struct pp_rendezvous *j, int to, const void *buf,
                       size_t bytes, struct pp_err *err) PP_MUST_USE;
int pp_rendezvous_recv(struct pp_rendezvous *j, int from, void *buf,
                       size_t bytes, struct pp_err *err) PP_MUST_USE;

/* Ends the job: the calls of every rank fail. Never blocks. The first reason
 * wins. */
void pp_rendezvous_abort(struct pp_rendezvous *j, const char *why);
bool pp_rendezvous_aborted(struct pp_rendezvous *j);

/* Waits up to 10 seconds for an abort and returns whether there was one. If a
 * failure may mean that another rank has ended, the abort names that rank a
 * moment later. */
bool pp_rendezvous_await_abort(struct pp_rendezvous *j);

/* Fails with the reason of the abort. Its origin is the rank that failed or was
 * lost (PP_ORIGIN_LOST). */
int pp_rendezvous_fail(struct pp_rendezvous *j, struct pp_err *err);

/* Returns the rank whose loss made this process abort the job, or -1. */
int pp_rendezvous_lost(struct pp_rendezvous *j);

/* Callbacks of the watching thread. It calls look several times a second; a
 * failure of look ends the job with its message unless a better reason arrives.
 * It calls aborted once after an abort. */
struct pp_rendezvous_watcher {
    int (*look)(void *ctx, struct pp_err *err);
    void (*aborted)(void *ctx);
    void *ctx;
};

/* Sets the callbacks, or removes them if w is NULL. Returns when none of the
 * old ones is running. */
void pp_rendezvous_watch(struct pp_rendezvous *j,
                         const struct pp_rendezvous_watcher *w);

#endif
