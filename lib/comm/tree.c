/* SPDX-License-Identifier: MIT */
#include "comm/tree.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

int pp_tree_parent(int rank)
{
    return rank & (rank - 1);
}

int pp_tree_end(int rank, int size)
{
    int n = rank & -rank, left = size - rank;
    return rank == 0 || n > left ? size : rank + n;
}

int pp_tree_n_children(int rank, int size)
{
    int n = 0, below = pp_tree_end(rank, size) - rank;
    while (1 << n < below)
        n++;
    return n;
}

/* The last child has the most ranks below it, so it is first to hear. */
static int send_down(const struct pp_tree_links *l, const void *buf,
                     size_t bytes, struct pp_err *err)
{
    for (int k = pp_tree_n_children(l->rank, l->size) - 1; k >= 0; k--)
        if (l->send(l->ctx, l->rank + (1 << k), buf, bytes, err))
            return -1;
    return 0;
}

int pp_tree_gather(const struct pp_tree_links *l, const void *mine, void *all,
                   size_t bytes, struct pp_err *err)
{
    int rank = l->rank, end = pp_tree_end(rank, l->size);
    int parent = pp_tree_parent(rank);
    char *to = all;
    size_t total = (size_t)l->size * bytes;
    if (bytes > 0)
        memcpy(to + (size_t)rank * bytes, mine, bytes);
    for (int k = rank + 1, next; k < end; k = next) {
        next = pp_tree_end(k, l->size);
        if (l->receive(l->ctx, k, to + (size_t)k * bytes,
                       (size_t)(next - k) * bytes, err))
            return -1;
    }
    if (rank > 0 && (l->send(l->ctx, parent, to + (size_t)rank * bytes,
                             (size_t)(end - rank) * bytes, err) ||
                     l->receive(l->ctx, parent, all, total, err)))
        return -1;
    return send_down(l, all, total, err);
}

int pp_tree_spread(const struct pp_tree_links *l, void *buf, size_t bytes,
                   struct pp_err *err)
{
    if (l->rank > 0 &&
        l->receive(l->ctx, pp_tree_parent(l->rank), buf, bytes, err))
        return -1;
    return send_down(l, buf, bytes, err);
}

/* Children have higher ranks than their parent, each lower ones than the next.
 */
int pp_tree_judge(const struct pp_tree_links *l, struct pp_verdict *v,
                  struct pp_err *err)
{
    int n_children = pp_tree_n_children(l->rank, l->size);
    for (int k = 0; k < n_children; k++) {
        struct pp_verdict other;
        if (l->receive(l->ctx, l->rank + (1 << k), &other, sizeof other, err))
            return -1;
        if (v->rank < 0)
            *v = other;
    }
    if (l->rank > 0 &&
        l->send(l->ctx, pp_tree_parent(l->rank), v, sizeof *v, err))
        return -1;
    if (pp_tree_spread(l, v, sizeof *v, err))
        return -1;
    if (v->rank != l->rank)
        v->err.setting = NULL; /* a pointer in that rank's memory */
    return 0;
}

static int send_over_comm(void *ctx, int to, const void *buf, size_t bytes,
                          struct pp_err *err)
{
    return pp_comm_send_host(ctx, to, buf, bytes, err);
}

static int receive_over_comm(void *ctx, int from, void *buf, size_t bytes,
                             struct pp_err *err)
{
    return pp_comm_receive(ctx, from, PP_DIRECTION_HOST, buf, bytes, err);
}

struct pp_tree_links pp_tree_links_of(struct pp_comm *c)
{
    return (struct pp_tree_links){c->rank, c->size, send_over_comm,
                                  receive_over_comm, c};
}

int pp_tree_broadcast(struct pp_comm *c, void *buf, size_t bytes,
                      struct pp_err *err)
{
    const struct pp_tree_links l = pp_tree_links_of(c);
    return pp_tree_spread(&l, buf, bytes, err);
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
    int to = pp_tree_parent(x->comm->rank);
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

/* Passes on the own records but the last part, which goes with the records of
 * the children. */
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
    int end = pp_tree_end(c->rank, c->size);
    if (pass_own(&x, err))
        return -1;
    for (int k = c->rank + 1; k < end; k = pp_tree_end(k, c->size)) {
        bool more = true;
        while (more)
            if (receive_part(&x, k, &more, err))
                return -1;
    }
    return pass_on(&x, 0, x.held, false, err);
}
