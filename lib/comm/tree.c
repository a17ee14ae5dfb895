/* SPDX-License-Identifier: MIT */
#include "comm/tree.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static int lowest_bit(int rank)
{
    return rank & -rank;
}

int pp_tree_parent(const struct pp_comm *c, int rank)
{
    return c->ops->star ? 0 : rank - lowest_bit(rank);
}

int pp_tree_end(const struct pp_comm *c, int rank)
{
    if (rank == 0)
        return c->size;
    int n = c->ops->star ? 1 : lowest_bit(rank), left = c->size - rank;
    return rank + (n < left ? n : left);
}

/* Returns the last child of a rank, or the rank itself without children. */
static int last_child(const struct pp_comm *c, int rank)
{
    int last = rank, end = pp_tree_end(c, rank);
    for (int k = rank + 1; k < end; k = pp_tree_end(c, k))
        last = k;
    return last;
}

/* The child before another one. */
static int child_before(const struct pp_comm *c, int rank, int child)
{
    return c->ops->star ? child - 1 : rank + (child - rank) / 2;
}

/* The last child has the most ranks below it, so it is first to hear. */
int pp_tree_broadcast(struct pp_comm *c, void *buf, size_t bytes,
                      struct pp_err *err)
{
    if (c->rank > 0 && pp_comm_receive(c, pp_tree_parent(c, c->rank),
                                       PP_DIRECTION_HOST, buf, bytes, err))
        return -1;
    for (int k = last_child(c, c->rank); k > c->rank;
         k = child_before(c, c->rank, k))
        if (pp_comm_send_host(c, k, buf, bytes, err))
            return -1;
    return 0;
}

enum { N_COLUMNS = 2 };

/* The beginning of a message of records. */
struct part_head {
    uint64_t n, more; /* more: another message of this rank follows */
};

/* The records that a rank passes on. */
struct relay {
    struct pp_comm *comm;
    const struct pp_records *records;
    pp_take_records_fn *take;
    void *ctx;
    size_t held; /* records at the beginning of the columns */
};

static void *record_at(const struct pp_record_column *c, size_t i)
{
    return (char *)c->at + i * c->bytes;
}

/* Passes records on to the parent, or takes them at rank 0. */
static int pass_on(const struct relay *x, size_t first, size_t n, bool more,
                   struct pp_err *err)
{
    const struct part_head head = {n, more};
    if (x->comm->rank == 0) {
        x->take(x->ctx, first, n);
        return 0;
    }
    int to = pp_tree_parent(x->comm, x->comm->rank);
    if (pp_comm_send_host(x->comm, to, &head, sizeof head, err))
        return -1;
    for (int k = 0; n > 0 && k < N_COLUMNS; k++) {
        const struct pp_record_column *c = &x->records->columns[k];
        if (c->bytes && pp_comm_send_host(x->comm, to, record_at(c, first),
                                          n * c->bytes, err))
            return -1;
    }
    return 0;
}

/* Passes on the own records but the last part, which goes with those of the
 * children. */
static int pass_own(struct relay *x, struct pp_err *err)
{
    const struct pp_records *r = x->records;
    size_t first = 0;
    for (; r->n - first > r->part; first += r->part)
        if (pass_on(x, first, r->part, true, err))
            return -1;
    x->held = r->n - first;
    for (int k = 0; first > 0 && k < N_COLUMNS; k++) {
        const struct pp_record_column *c = &r->columns[k];
        if (c->bytes)
            memmove(c->at, record_at(c, first), x->held * c->bytes);
    }
    return 0;
}

/* Receives a message of a child, after the records that are held. */
static int receive_part(struct relay *x, int child, bool *more,
                        struct pp_err *err)
{
    struct part_head head;
    if (pp_comm_receive(x->comm, child, PP_DIRECTION_HOST, &head, sizeof head,
                        err))
        return -1;
    if (x->held + head.n > x->records->part) {
        if (pass_on(x, 0, x->held, true, err))
            return -1;
        x->held = 0;
    }
    for (int k = 0; head.n > 0 && k < N_COLUMNS; k++) {
        const struct pp_record_column *c = &x->records->columns[k];
        if (c->bytes &&
            pp_comm_receive(x->comm, child, PP_DIRECTION_HOST,
                            record_at(c, x->held), head.n * c->bytes, err))
            return -1;
    }
    x->held += head.n;
    *more = head.more;
    return 0;
}

int pp_tree_collect(struct pp_comm *c, const struct pp_records *r,
                    pp_take_records_fn *take, void *ctx, struct pp_err *err)
{
    struct relay x = {c, r, take, ctx, 0};
    int end = pp_tree_end(c, c->rank);
    if (pass_own(&x, err))
        return -1;
    for (int k = c->rank + 1; k < end; k = pp_tree_end(c, k)) {
        bool more = true;
        while (more)
            if (receive_part(&x, k, &more, err))
                return -1;
    }
    return pass_on(&x, 0, x.held, false, err);
}
