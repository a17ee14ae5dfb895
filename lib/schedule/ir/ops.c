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
    o->row = pp_calloc(n, sizeof *o->row, err);
    o->in.first = pp_calloc(n + 1, sizeof *o->in.first, err);
    o->time = timed ? pp_calloc(n, sizeof *o->time, err) : NULL;
    return o->row && o->in.first && (o->time || !timed) ? 0 : -1;
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

int pp_ops_wait(struct pp_ops *o, int32_t on, double lag, struct pp_err *err)
{
    size_t at = (size_t)o->in.first[o->n];
    if (at == o->capacity[0] &&
        (at > INT32_MAX / 4
             ? pp_fail(err, PP_EXIT_INPUT, "%zu waits are too many", at)
             : pp_array_reserve(&o->in.op, &o->capacity[0], at + 1,
                                sizeof *o->in.op, err)))
        return -1;
    if (o->timed && at == o->capacity[1] &&
        pp_array_reserve(&o->in.lag, &o->capacity[1], at + 1, sizeof *o->in.lag,
                         err))
        return -1;
    o->in.op[at] = on;
    if (o->timed)
        o->in.lag[at] = lag;
    o->in.first[o->n]++;
    return 0;
}

/* Turns the edges round. */
static void fill_out(struct pp_ops *o)
{
    int32_t *first = o->out.first;
    for (int32_t i = 0; i < o->in.first[o->n]; i++)
        first[o->in.op[i] + 2]++;
    for (int32_t op = 2; op < o->n + 2; op++)
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

static int fill_order(struct pp_ops *o, struct pp_err *err)
{
    int32_t *at = pp_calloc((size_t)o->n_rows, sizeof *at, err);
    o->order = pp_calloc((size_t)o->n, sizeof *o->order, err);
    if (!at || !o->order) {
        free(at);
        return -1;
    }
    memcpy(at, o->first_order, (size_t)o->n_rows * sizeof *at);
    for (int32_t op = 0; op < o->n; op++)
        o->order[at[o->row[op]]++] = op;
    free(at);
    return 0;
}

int pp_ops_link(struct pp_ops *o, struct pp_err *err)
{
    size_t n = (size_t)o->n, n_edges = (size_t)o->in.first[n];
    o->out.first = pp_calloc(n + 2, sizeof *o->out.first, err);
    o->out.op = pp_calloc(n_edges, sizeof *o->out.op, err);
    o->out.lag = o->timed ? pp_calloc(n_edges, sizeof *o->out.lag, err) : NULL;
    o->first_order =
        pp_calloc((size_t)o->n_rows + 1, sizeof *o->first_order, err);
    if (!o->out.first || !o->out.op || (o->timed && !o->out.lag) ||
        !o->first_order)
        return -1;
    fill_out(o);
    return sort_rows(o) ? fill_order(o, err) : 0;
}

int pp_paths_init(struct pp_paths *p, const struct pp_ops *o,
                  struct pp_err *err)
{
    size_t n = (size_t)o->n, rows = (size_t)o->n_rows;
    *p = (struct pp_paths){.ops = o};
    p->start = pp_calloc(n, sizeof *p->start, err);
    p->tail = pp_calloc(n, sizeof *p->tail, err);
    p->sorted = pp_calloc(n, sizeof *p->sorted, err);
    p->at = pp_calloc(rows, sizeof *p->at, err);
    p->clock = pp_calloc(rows, sizeof *p->clock, err);
    p->queue = pp_calloc(rows, sizeof *p->queue, err);
    p->queued = pp_calloc(rows, sizeof *p->queued, err);
    return p->start && p->tail && p->sorted && p->at && p->clock && p->queue &&
                   p->queued
               ? 0
               : -1;
}

void pp_paths_finish(struct pp_paths *p)
{
    free(p->start);
    free(p->tail);
    free(p->sorted);
    free(p->at);
    free(p->clock);
    free(p->queue);
    free(p->queued);
    *p = (struct pp_paths){0};
}

static double time_of(const struct pp_ops *o, int32_t op)
{
    return o->timed ? o->time[op] : 0;
}

static double late_of(const struct pp_ops *o, int row)
{
    return o->late ? o->late[row] : 0;
}

/* Reports if everything that op waits for has run; raises *ready to the time at
 * which that is. */
static inline bool inputs_done(const struct pp_paths *p, int32_t op,
                               double *ready)
{
    const struct pp_ops *o = p->ops;
    for (int32_t i = o->in.first[op]; i < o->in.first[op + 1]; i++) {
        int32_t from = o->in.op[i];
        if (p->start[from] < 0)
            return false;
        if (o->timed) {
            double t = p->start[from] + o->time[from] + o->in.lag[i];
            *ready = t > *ready ? t : *ready;
        }
    }
    return true;
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

/* Runs a row as far as it goes. Returns the number of operations that ran. */
static int32_t run_row(struct pp_paths *p, const int32_t *order, int32_t row,
                       struct ring *q, int32_t n)
{
    const struct pp_ops *o = p->ops;
    int32_t end = o->first_order[row + 1], k = p->at[row];
    double clock = p->clock[row];
    for (; k < end; k++) {
        int32_t op = order ? order[k] : k;
        double ready = clock;
        if (!inputs_done(p, op, &ready))
            break;
        p->start[op] = ready;
        p->sorted[n++] = op;
        clock = ready + time_of(o, op);
        for (int32_t i = o->out.first[op]; i < o->out.first[op + 1]; i++) {
            int32_t other = o->row[o->out.op[i]];
            if (other != row)
                push(p, q, other);
        }
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
    for (int32_t op = 0; op < o->n; op++)
        p->start[op] = -1;
    for (int32_t r = 0; r < o->n_rows; r++) {
        p->at[r] = o->first_order[r];
        p->clock[r] = 0;
        p->queued[r] = false;
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
