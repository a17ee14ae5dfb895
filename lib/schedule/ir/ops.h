/* SPDX-License-Identifier: MIT */
/* ops - operations, the rows that they occupy and what they wait for.
 *
 * One graph for the checker, the simulator, the search and the bounds. An
 * operation takes time on one row; a row runs its operations one after the
 * other, in an order. A row is a pipeline rank, or whatever else runs one thing
 * at a time: the collectives of a rank, or a stream of messages. An edge says
 * that an operation waits for another to end, and for how long after that. */
#ifndef PP_SCHEDULE_IR_OPS_H
#define PP_SCHEDULE_IR_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The edges of all operations, sorted by operation: op has those from first[op]
 * up to first[op + 1]. */
struct pp_op_edges {
    int32_t *first; /* n + 1 */
    int32_t *op;    /* the operation at the other end */
    double *lag;    /* from the end of the one to the start of the other */
};

struct pp_ops {
    int32_t n;
    int n_rows;
    int32_t *row; /* per op */
    double *time; /* per op */
    double *late; /* per row: added to its end in worst; NULL: nothing */
    struct pp_op_edges in, out;
    /* The operations of each row, in the order of their numbers. order is NULL
     * if the rows follow each other in that order. */
    int32_t *first_order, *order; /* n_rows + 1; n */
    bool timed;                   /* false: time and lag are NULL, and 0 */
    size_t capacity[2];           /* private: of in.op and in.lag */
};

/* Makes room for n operations on rows. If not timed, nothing takes time. Finish
 * o in all cases, also after a failure. */
int pp_ops_init(struct pp_ops *o, size_t n, size_t n_rows, bool timed,
                struct pp_err *err) PP_MUST_USE;
void pp_ops_finish(struct pp_ops *o);

/* Adds the next operation. */
static inline void pp_ops_add(struct pp_ops *o, int32_t row, double time)
{
    o->row[o->n] = row;
    if (o->timed)
        o->time[o->n] = time;
    o->in.first[o->n + 1] = o->in.first[o->n];
    o->n++;
}

/* Makes the operation that was added last wait for another, which may be added
 * later. An operation that waits for itself never runs. */
int pp_ops_wait(struct pp_ops *o, int32_t on, double lag,
                struct pp_err *err) PP_MUST_USE;

/* Fills out, first_order and order, after the last operation. */
int pp_ops_link(struct pp_ops *o, struct pp_err *err) PP_MUST_USE;

/* The longest paths of a graph whose rows have an order. */
struct pp_paths {
    const struct pp_ops *ops;
    double worst;    /* largest end of a row, plus late */
    double *start;   /* per op: head; negative if it cannot run */
    double *tail;    /* per op: from its end to worst */
    int32_t *sorted; /* ops that run, each after everything that it waits for */
    int32_t *at;     /* per row: the place in the order where it stopped */
    double *clock;   /* per row: private */
    int32_t *queue;
    bool *queued;
};

/* Makes room for the paths of o, which it borrows. Finish p in all cases. */
int pp_paths_init(struct pp_paths *p, const struct pp_ops *o,
                  struct pp_err *err) PP_MUST_USE;
void pp_paths_finish(struct pp_paths *p);

/* Runs each row in an order, which has its operations from first_order[row] on;
 * NULL: in the order of their numbers. Fills worst, start, sorted and at.
 * Returns false if there is a cycle of waits. Takes linear time. */
bool pp_paths_heads(struct pp_paths *p, const int32_t *order);

/* Fills tail, after pp_paths_heads of an order without a cycle. */
void pp_paths_tails(struct pp_paths *p);

#endif
