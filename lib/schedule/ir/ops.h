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

#include "schedule/ir/numbering.h"
#include "schedule/ir/schedule.h"

/* The edges of all operations, sorted by operation: op has the edges from
 * first[op] up to first[op + 1]. */
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
    size_t capacity;              /* private: edges of in */
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

/* Private: makes room for more edges. */
int pp_ops_grow(struct pp_ops *o, struct pp_err *err) PP_MUST_USE;

/* Makes the operation that was added last wait for another, which may be added
 * later. An operation that waits for itself never runs. */
static inline int pp_ops_wait(struct pp_ops *o, int32_t on, double lag,
                              struct pp_err *err)
{
    size_t at = (size_t)o->in.first[o->n];
    if (at == o->capacity && pp_ops_grow(o, err))
        return -1;
    o->in.op[at] = on;
    if (o->timed)
        o->in.lag[at] = lag;
    o->in.first[o->n]++;
    return 0;
}

/* Fills first_order and order after the last operation, and out if turned. */
void pp_ops_link(struct pp_ops *o, bool turned);

/* The waits of the actions of a schedule, beside waits for earlier actions of
 * their row. */
enum pp_ops_waits {
    PP_OPS_INPUTS, /* a compute action for its inputs, on any row; messages are
                      no operations */
    PP_OPS_POSTED, /* a compute action for the SENDs that it needs; a SEND for
                      room in its channel */
    PP_OPS_STRICT  /* a RECV for its SEND; a SEND for room in its channel */
};

/* Makes the operations of s: its actions, row by row. Each takes its row. A
 * message is under way after its SEND; at depth 0 the SEND lasts until the
 * message is there, and begins when its RECV is reached. An overlap pair waits
 * as a whole and ends as a whole. Collectives beside the computation have rows
 * of their own, behind the others, and with costs so have the OFFLOADs and the
 * RELOADs of each row. An action whose input or other end is
 * missing never runs. Without costs nothing takes time. Not for PP_OPS_INPUTS:
 * f has the messages of s, and depth is that of each channel. For turned see
 * pp_ops_link. */
int pp_ops_of_schedule(struct pp_ops *o, const struct pp_schedule *s,
                       const struct pp_costs *costs, enum pp_ops_waits waits,
                       const struct pp_fifo *f, int depth, bool turned,
                       struct pp_err *err) PP_MUST_USE;

/* The longest paths of a graph whose rows have an order. */
struct pp_paths {
    const struct pp_ops *ops;
    double worst;  /* largest end of a row, plus late */
    bool *ran;     /* per op: it does not wait for ever */
    double *start; /* per op that ran: head; NULL if nothing takes time */
    /* With out, else NULL: from the end of an op to worst, and the ops that
     * ran, each after everything that it waits for. */
    double *tail;
    int32_t *sorted;
    int32_t *at;   /* per row: the place in the order where it stopped */
    double *clock; /* per row: private */
    int32_t *queue, *waiter, *next;
    bool *queued;
};

/* Makes room for the paths of o, which it borrows. Finish p in all cases. */
void pp_paths_init(struct pp_paths *p, const struct pp_ops *o);
void pp_paths_finish(struct pp_paths *p);

/* Runs each row in an order, which has its operations from first_order[row] on;
 * NULL: in the order of their numbers. Fills worst, ran, start, sorted and at.
 * Returns false if there is a cycle of waits. Takes linear time. */
bool pp_paths_heads(struct pp_paths *p, const int32_t *order);

/* Fills tail, after pp_paths_heads of an order without a cycle. The operations
 * must have out. */
void pp_paths_tails(struct pp_paths *p);

#endif
