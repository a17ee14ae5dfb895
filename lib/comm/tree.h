/* SPDX-License-Identifier: MIT */
/* tree - small data of all ranks to rank 0, and from rank 0 to all, through a
 * binomial tree: a rank exchanges messages with at most log2 of the ranks.
 *
 * The ranks below a rank r are the next ones: all before r + 2^k, if 2^k is the
 * lowest bit of r. So data arrives at rank 0 in the order of the ranks, and
 * sums that rank 0 makes have the same bits whatever the shape. The tree is a
 * star if the transport has connections to rank 0 only.
 *
 * Data travels in PP_DIRECTION_HOST. All functions but the first two are
 * collective. */
#ifndef PP_COMM_TREE_H
#define PP_COMM_TREE_H

#include <stddef.h>

#include "comm/comm.h"

/* Returns the rank above another than 0. */
int pp_tree_parent(const struct pp_comm *c, int rank);

/* Returns the end of the ranks rank, rank + 1 ... that are in its subtree. The
 * first child is the next rank, and another child begins where one ends. */
int pp_tree_end(const struct pp_comm *c, int rank);

/* Replaces bytes at buf by those of rank 0. */
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

/* Calls take at rank 0 for the records of all ranks, in their order. Overwrites
 * the columns. */
int pp_tree_collect(struct pp_comm *c, const struct pp_records *r,
                    pp_take_records_fn *take, void *ctx,
                    struct pp_err *err) PP_MUST_USE;

#endif
