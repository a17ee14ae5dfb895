/* SPDX-License-Identifier: MIT */
/* tree - small data of all ranks to rank 0, and from rank 0 to all, through a
 * binomial tree: a rank exchanges messages with at most log2 of the ranks.
 *
 * The ranks below a rank r are the next ones: all before r + 2^k, if 2^k is the
 * lowest bit of r. So data arrives at rank 0 in the order of the ranks, and
 * sums that rank 0 makes have the same bits whatever the shape.
 *
 * All functions but the first three are collective. */
#ifndef PP_COMM_TREE_H
#define PP_COMM_TREE_H

#include <stddef.h>

#include "comm/comm.h"

/* Returns the rank above another than 0. */
int pp_tree_parent(int rank);

/* Returns the end of the ranks rank, rank + 1 ... that are in its subtree. The
 * first child is the next rank, and another child begins where one ends. */
int pp_tree_end(int rank, int size);

/* Returns the number of children. Child k is rank + 2^k. */
int pp_tree_n_children(int rank, int size);

/* The means to send messages to the parent and the children, and to receive
 * theirs. A buffer is free when its function has returned. */
struct pp_tree_links {
    int rank, size;
    int (*send)(void *ctx, int to, const void *buf, size_t bytes,
                struct pp_err *err);
    int (*receive)(void *ctx, int from, void *buf, size_t bytes,
                   struct pp_err *err);
    void *ctx;
};

/* Collects bytes from every rank, in rank order, at every rank. all is (size,
 * bytes). */
int pp_tree_gather(const struct pp_tree_links *l, const void *mine, void *all,
                   size_t bytes, struct pp_err *err) PP_MUST_USE;

/* Replaces the bytes at buf by rank 0's. */
int pp_tree_spread(const struct pp_tree_links *l, void *buf, size_t bytes,
                   struct pp_err *err) PP_MUST_USE;

/* The lowest rank that has failed, or -1, and its error. */
struct pp_verdict {
    int rank;
    struct pp_err err;
};

/* Replaces the verdict of every rank, its own, by that of all. Returns -1 if
 * messages fail. */
int pp_tree_judge(const struct pp_tree_links *l, struct pp_verdict *v,
                  struct pp_err *err) PP_MUST_USE;

/* Returns the means of messages of PP_DIRECTION_HOST. */
struct pp_tree_links pp_tree_links_of(struct pp_comm *c);

/* Does what pp_tree_spread does, with these. */
int pp_tree_broadcast(struct pp_comm *c, void *buf, size_t bytes,
                      struct pp_err *err) PP_MUST_USE;

/* Records on their way to rank 0. A record has an element in each column. */
struct pp_records {
    size_t n;    /* of this rank */
    size_t part; /* most of one message, the same on every rank */
    struct pp_record_column {
        void *at;     /* room for n and for part elements */
        size_t bytes; /* of an element; 0: there is no such column */
    } columns[2];
};

/* Takes records first .. first + n - 1 of the columns. */
typedef void pp_take_records_fn(void *ctx, size_t first, size_t n);

/* Calls take at rank 0 for the records of all ranks, in their order. Sends them
 * in PP_DIRECTION_HOST and overwrites the columns. */
int pp_tree_collect(struct pp_comm *c, const struct pp_records *r,
                    pp_take_records_fn *take, void *ctx,
                    struct pp_err *err) PP_MUST_USE;

#endif
