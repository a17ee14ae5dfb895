/* SPDX-License-Identifier: MIT */
/* mpi_receives - the posted receives of a rank.
 *
 * A receive begins in MPI only when its message is there. So sizes are compared
 * first, and a receive without a message can be dropped. Nothing here waits. */
#ifndef PP_COMM_MPI_RECEIVES_H
#define PP_COMM_MPI_RECEIVES_H

#include "comm/mpi.h"

struct pp_mpi_receive {
    void *buf;
    size_t bytes, sent_bytes; /* sent_bytes: of the message, once found */
    void *spare; /* takes a message of another size instead of buf */
    uintptr_t request;
};

/* The other end of a channel of this rank; lists are sorted by rank, then tag.
 */
struct pp_mpi_end {
    int rank, tag;
};

/* Compares two, for qsort and bsearch. */
int pp_mpi_end_order(const void *a, const void *b);

/* A channel from another rank. Receives are first posted, then begun, then
 * received. */
struct pp_mpi_inbox {
    struct pp_mpi_end from;          /* first, for bsearch */
    struct pp_mpi_receive *receives; /* ring */
    size_t ring;
    size_t posted, begun, received;
    size_t awaited; /* receives that the rank has waited for */
    bool found;     /* message number `begun` is there */
    size_t bytes;   /* its size */
    uintptr_t message;
    int failure; /* MPI's code; the channel then stops */
};

struct pp_mpi_receives {
    const struct pp_mpi *mpi;
    size_t most;                  /* bytes of one block */
    struct pp_mpi_inbox *inboxes; /* (n_inboxes) in the order of their ends */
    struct pp_mpi_receive *all;   /* (n) of all inboxes */
    struct pp_mpi_inbox **active; /* (n_active) with posted receives */
    size_t n_active, n_inboxes, n;
};

/* Makes inboxes for messages of n_from ends, with room for n receives each. */
int pp_mpi_receives_init(struct pp_mpi_receives *r,
                         const struct pp_mpi_end *from, size_t n_from, size_t n,
                         struct pp_err *err) PP_MUST_USE;

/* Returns the inbox of an end, or NULL. */
struct pp_mpi_inbox *pp_mpi_receives_inbox(const struct pp_mpi_receives *r,
                                           struct pp_mpi_end from);

/* Accepts a zeroed struct. */
void pp_mpi_receives_finish(struct pp_mpi_receives *r);

/* Posts a receive. There is room. */
void pp_mpi_receives_post(struct pp_mpi_receives *r, struct pp_mpi_inbox *in,
                          void *buf, size_t bytes);

/* Looks for the message of the next receive that has not begun. Returns MPI's
 * code. */
int pp_mpi_receives_find(const struct pp_mpi_receives *r,
                         struct pp_mpi_inbox *in) PP_MUST_USE;

/* Begins the receives whose messages are there, and ends the receives that are
 * done. A failure is kept in its inbox. receives is a struct pp_mpi_receives.
 */
void pp_mpi_receives_advance(void *receives);

#endif
