/* SPDX-License-Identifier: MIT */
#include "schedule/ir/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

int pp_ops_init(struct pp_ops *o, size_t n, size_t n_rows, bool timed,
                struct pp_err *err)
{
    *o = (struct pp_ops){.n_rows = (int)n_rows, .timed = timed};
    if (n > INT32_MAX / 4 || n_rows > INT32_MAX / 4)
        return pp_fail(err, PP_EXIT_INPUT, "%zu actions are too many", n);
    o->row = pp_realloc(NULL, n, sizeof *o->row);
    o->in.first = pp_realloc(NULL, n + 1, sizeof *o->in.first);
    o->time = timed ? pp_realloc(NULL, n, sizeof *o->time) : NULL;
    o->in.first[0] = 0;
    return 0;
}

static void finish_edges(struct pp_op_edges *e)
{
    free(e->first);
    free(e->op);
    free(e->lag);
}

void pp_ops_finish(struct pp_ops *o)
{
    finish_edges(&o->in);
    finish_edges(&o->out);
    free(o->row);
    free(o->time);
    free(o->late);
    free(o->first_order);
    free(o->order);
    *o = (struct pp_ops){0};
}

int pp_ops_grow(struct pp_ops *o, struct pp_err *err)
{
    size_t n = 2 * o->capacity > (size_t)o->n ? 2 * o->capacity : (size_t)o->n;
    if (n >= INT32_MAX / 2)
        return pp_fail(err, PP_EXIT_INPUT, "%zu waits are too many", n);
    o->in.op = pp_realloc(o->in.op, n, sizeof *o->in.op);
    if (o->timed)
        o->in.lag = pp_realloc(o->in.lag, n, sizeof *o->in.lag);
    o->capacity = n;
    return 0;
}

/* Turns the edges round. */
static void fill_out(struct pp_ops *o)
{
    size_t n = (size_t)o->n, n_edges = (size_t)o->in.first[n];
    int32_t *first = pp_calloc(n + 2, sizeof *first);
    o->out.first = first;
    o->out.op = pp_realloc(NULL, n_edges, sizeof *o->out.op);
    o->out.lag =
        o->timed ? pp_realloc(NULL, n_edges, sizeof *o->out.lag) : NULL;
    for (size_t i = 0; i < n_edges; i++)
        first[o->in.op[i] + 2]++;
    for (size_t op = 2; op < n + 2; op++)
        first[op] += first[op - 1];
    for (int32_t op = 0; op < o->n; op++)
        for (int32_t i = o->in.first[op]; i < o->in.first[op + 1]; i++) {
            int32_t at = first[o->in.op[i] + 1]++;
            o->out.op[at] = op;
            if (o->timed)
                o->out.lag[at] = o->in.lag[i];
        }
}

/* Fills first_order. Returns true if order must be filled, too. */
static bool sort_rows(struct pp_ops *o)
{
    bool mixed = false;
    for (int32_t op = 0; op < o->n; op++) {
        o->first_order[o->row[op] + 1]++;
        mixed |= op > 0 && o->row[op] < o->row[op - 1];
    }
    for (int r = 0; r < o->n_rows; r++)
        o->first_order[r + 1] += o->first_order[r];
    return mixed;
}

static void fill_order(struct pp_ops *o)
{
    int32_t *at = pp_calloc((size_t)o->n_rows, sizeof *at);
    o->order = pp_realloc(NULL, (size_t)o->n, sizeof *o->order);
    memcpy(at, o->first_order, (size_t)o->n_rows * sizeof *at);
    for (int32_t op = 0; op < o->n; op++)
        o->order[at[o->row[op]]++] = op;
    free(at);
}

void pp_ops_link(struct pp_ops *o, bool turned)
{
    o->first_order = pp_calloc((size_t)o->n_rows + 1, sizeof *o->first_order);
    if (turned)
        fill_out(o);
    if (sort_rows(o))
        fill_order(o);
}

void pp_paths_init(struct pp_paths *p, const struct pp_ops *o)
{
    size_t n = (size_t)o->n, rows = (size_t)o->n_rows;
    *p = (struct pp_paths){.ops = o};
    p->ran = pp_realloc(NULL, n, sizeof *p->ran);
    p->at = pp_calloc(rows, sizeof *p->at);
    p->clock = pp_calloc(rows, sizeof *p->clock);
    p->queue = pp_calloc(rows, sizeof *p->queue);
    p->waiter = pp_calloc(rows, sizeof *p->waiter);
    p->next = pp_calloc(rows, sizeof *p->next);
    p->queued = pp_calloc(rows, sizeof *p->queued);
    if (o->timed)
        p->start = pp_realloc(NULL, n, sizeof *p->start);
    if (!o->out.first)
        return;
    p->tail = pp_realloc(NULL, n, sizeof *p->tail);
    p->sorted = pp_realloc(NULL, n, sizeof *p->sorted);
}

void pp_paths_finish(struct pp_paths *p)
{
    free(p->ran);
    free(p->start);
    free(p->tail);
    free(p->sorted);
    free(p->at);
    free(p->clock);
    free(p->queue);
    free(p->waiter);
    free(p->next);
    free(p->queued);
    *p = (struct pp_paths){0};
}

static double late_of(const struct pp_ops *o, int row)
{
    return o->late ? o->late[row] : 0;
}

/* Returns an operation that op waits for and that has not run, or -1. Raises
 * *ready to the time at which all have. */
static inline int32_t missing(const struct pp_paths *p, int32_t op,
                              double *ready)
{
    const struct pp_ops *o = p->ops;
    int32_t end = o->in.first[op + 1];
    for (int32_t i = o->in.first[op]; i < end; i++) {
        int32_t from = o->in.op[i];
        if (!p->ran[from])
            return from;
        if (o->timed) {
            double t = p->start[from] + o->time[from] + o->in.lag[i];
            *ready = t > *ready ? t : *ready;
        }
    }
    return -1;
}

/* A ring of rows to try. A row is in it at most once. */
struct ring {
    int first, n;
};

static void push(struct pp_paths *p, struct ring *q, int32_t row)
{
    if (p->queued[row])
        return;
    p->queued[row] = true;
    int at = q->first + q->n++;
    p->queue[at < p->ops->n_rows ? at : at - p->ops->n_rows] = row;
}

/* Has the rows that an operation lets go tried again: with out, as soon as it
 * runs. */
static void wake(struct pp_paths *p, struct ring *q, int32_t op, int32_t row)
{
    const struct pp_ops *o = p->ops;
    for (int32_t i = o->out.first[op]; i < o->out.first[op + 1]; i++) {
        int32_t other = o->row[o->out.op[i]];
        if (other != row)
            push(p, q, other);
    }
}

/* Without out, rows that stopped are tried again when the row that they wait
 * for has moved. */
static void wake_waiters(struct pp_paths *p, struct ring *q, int32_t row)
{
    int32_t waiter = p->waiter[row];
    p->waiter[row] = -1;
    for (; waiter >= 0; waiter = p->next[waiter])
        push(p, q, waiter);
}

/* Runs a row as far as it goes. Returns the number of operations that ran. */
static int32_t run_row(struct pp_paths *p, const int32_t *order, int32_t row,
                       struct ring *q, int32_t n)
{
    const struct pp_ops *o = p->ops;
    int32_t end = o->first_order[row + 1], k = p->at[row], on = -1;
    double clock = p->clock[row];
    for (; k < end; k++) {
        int32_t op = order ? order[k] : k;
        double ready = clock;
        on = missing(p, op, &ready);
        if (on >= 0)
            break;
        p->ran[op] = true;
        if (o->timed) {
            p->start[op] = ready;
            clock = ready + o->time[op];
        }
        if (o->out.first) {
            p->sorted[n] = op;
            wake(p, q, op, row);
        }
        n++;
    }
    if (!o->out.first && k > p->at[row])
        wake_waiters(p, q, row);
    if (on >= 0) {
        p->next[row] = p->waiter[o->row[on]];
        p->waiter[o->row[on]] = row;
    }
    p->at[row] = k;
    p->clock[row] = clock;
    return n;
}

bool pp_paths_heads(struct pp_paths *p, const int32_t *order)
{
    const struct pp_ops *o = p->ops;
    struct ring q = {0};
    int32_t n = 0;
    order = order ? order : o->order;
    memset(p->ran, 0, (size_t)o->n * sizeof *p->ran);
    for (int32_t r = 0; r < o->n_rows; r++) {
        p->at[r] = o->first_order[r];
        p->clock[r] = 0;
        p->queued[r] = false;
        p->waiter[r] = -1;
        push(p, &q, r);
    }
    while (q.n > 0) {
        int32_t row = p->queue[q.first];
        q.first = q.first + 1 < o->n_rows ? q.first + 1 : 0;
        q.n--;
        p->queued[row] = false;
        n = run_row(p, order, row, &q, n);
    }
    p->worst = -INFINITY;
    for (int r = 0; r < o->n_rows; r++)
        p->worst = fmax(p->worst, p->clock[r] + (late_of(o, r)));
    return n == o->n;
}

void pp_paths_tails(struct pp_paths *p)
{
    const struct pp_ops *o = p->ops;
    for (int r = 0; r < o->n_rows; r++)
        p->clock[r] = late_of(o, r);
    for (int32_t k = o->n - 1; k >= 0; k--) {
        int32_t op = p->sorted[k], row = o->row[op];
        double tail = p->clock[row];
        for (int32_t i = o->out.first[op]; i < o->out.first[op + 1]; i++) {
            int32_t to = o->out.op[i];
            double t = o->out.lag[i] + o->time[to] + p->tail[to];
            tail = t > tail ? t : tail;
        }
        p->tail[op] = tail;
        p->clock[row] = tail + o->time[op];
    }
}
