/* SPDX-License-Identifier: MIT */
/* Repairs the sequence and the times of an order after a move. */
#include "schedule/search/moves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int row_of(const struct pp_search_problem *j, int32_t op)
{
    return j->ops.row[op];
}

/* Returns the op before another in its row, or -1. */
static int32_t row_before(const struct pp_moves *v, int32_t op)
{
    int32_t k = v->place[op];
    return k > v->problem->ops.first_order[row_of(v->problem, op)]
               ? v->order[k - 1]
               : -1;
}

/* Returns the op after another in its row, or -1. */
static int32_t row_after(const struct pp_moves *v, int32_t op)
{
    const struct pp_search_problem *j = v->problem;
    int32_t k = v->place[op] + 1;
    return k < j->ops.first_order[row_of(j, op) + 1] ? v->order[k] : -1;
}

/* Sets the start of an op. Returns whether it changed. */
static bool find_start(struct pp_moves *v, int32_t op)
{
    const struct pp_search_problem *j = v->problem;
    int32_t before = row_before(v, op);
    double old = v->at.start[op];
    double start = before < 0 ? 0 : v->at.start[before] + j->ops.time[before];
    for (int32_t i = j->ops.in.first[op]; i < j->ops.in.first[op + 1]; i++) {
        int32_t from = j->ops.in.op[i];
        double t = v->at.start[from] + j->ops.time[from] + j->ops.in.lag[i];
        start = t > start ? t : start;
    }
    v->at.start[op] = start;
    return start != old;
}

/* Sets the tail of an op. Returns whether it changed. */
static bool find_tail(struct pp_moves *v, int32_t op)
{
    const struct pp_search_problem *j = v->problem;
    int32_t after = row_after(v, op);
    double old = v->at.tail[op];
    double tail = after < 0 ? j->ops.late[row_of(j, op)]
                            : j->ops.time[after] + v->at.tail[after];
    for (int32_t i = j->ops.out.first[op]; i < j->ops.out.first[op + 1]; i++) {
        int32_t to = j->ops.out.op[i];
        double t = j->ops.out.lag[i] + j->ops.time[to] + v->at.tail[to];
        tail = t > tail ? t : tail;
    }
    v->at.tail[op] = tail;
    return tail != old;
}

/* Shifts the ops of a row. */
static void shift(struct pp_moves *v, struct pp_move m)
{
    int32_t *order = v->order, op = order[m.from];
    int32_t by = m.to < m.from ? -1 : 1;
    for (int32_t k = m.from; k != m.to; k += by) {
        order[k] = order[k + by];
        v->place[order[k]] = k;
    }
    order[m.to] = op;
    v->place[op] = m.to;
}

/* Reports whether the moved op, x, has passed op. */
static bool is_passed(const struct pp_moves *v, int32_t op, int32_t x)
{
    const struct pp_move m = v->move;
    int32_t k = v->place[op];
    return op != x && row_of(v->problem, op) == row_of(v->problem, x) &&
           (m.to < m.from ? k > m.to && k <= m.from : k >= m.from && k < m.to);
}

static void mark(struct pp_moves *v, int32_t op)
{
    if (op >= 0 && v->turn[op] >= v->first)
        v->marked[op] = true;
}

/* Marks the ops of the window that x waits for. Returns false if it waits for
 * one that comes after it. */
static bool mark_before(struct pp_moves *v, int32_t x)
{
    const struct pp_search_problem *j = v->problem;
    for (int32_t i = v->n_window - 1; i >= 0; i--) {
        int32_t op = v->before[i].op;
        if (!v->marked[op])
            continue;
        if (is_passed(v, op, x))
            return false;
        mark(v, row_before(v, op));
        for (int32_t e = j->ops.in.first[op]; e < j->ops.in.first[op + 1]; e++)
            mark(v, j->ops.in.op[e]);
    }
    return true;
}

/* Marks the ops of the window that wait for x. Returns false if one of them
 * comes before it. */
static bool mark_after(struct pp_moves *v, int32_t x)
{
    const struct pp_search_problem *j = v->problem;
    for (int32_t i = 1; i < v->n_window; i++) {
        int32_t op = v->before[i].op, before = row_before(v, op);
        bool waits = before >= 0 && v->marked[before];
        for (int32_t e = j->ops.in.first[op]; e < j->ops.in.first[op + 1]; e++)
            waits |= v->marked[j->ops.in.op[e]];
        if (waits && is_passed(v, op, x))
            return false;
        v->marked[op] = waits;
    }
    return true;
}

static void put(struct pp_moves *v, int32_t at, int32_t op)
{
    v->at.sorted[at] = op;
    v->turn[op] = at;
}

/* Puts what x waits for before the ops that it passed on its way left, or what
 * waits for x after the ops that it passed on its way right. Returns false if
 * the order deadlocks. */
static bool repair(struct pp_moves *v, bool left)
{
    int32_t x = v->order[v->move.to], at = v->first;
    v->marked[x] = true;
    bool runs = left ? mark_before(v, x) : mark_after(v, x);
    for (int pass = 0; runs && pass < 2; pass++)
        for (int32_t i = 0; i < v->n_window; i++)
            if (v->marked[v->before[i].op] == (left == (pass == 0)))
                put(v, at++, v->before[i].op);
    for (int32_t i = 0; i < v->n_window; i++)
        v->marked[v->before[i].op] = false;
    return runs;
}

double pp_moves_try(struct pp_moves *v, struct pp_move m)
{
    const struct pp_search_problem *j = v->problem;
    bool left = m.to < m.from;
    double longest = 0;
    v->move = m;
    v->first = v->turn[v->order[left ? m.to : m.from]];
    v->n_window = v->turn[v->order[left ? m.from : m.to]] - v->first + 1;
    for (int32_t i = 0; i < v->n_window; i++) {
        int32_t op = v->at.sorted[v->first + i];
        v->before[i] =
            (struct pp_window_op){op, v->at.start[op], v->at.tail[op]};
    }
    shift(v, m);
    if (!repair(v, left))
        return INFINITY;
    for (int32_t i = v->first; i < v->first + v->n_window; i++)
        find_start(v, v->at.sorted[i]);
    for (int32_t i = v->first + v->n_window - 1; i >= v->first; i--) {
        int32_t op = v->at.sorted[i];
        find_tail(v, op);
        double path = v->at.start[op] + j->ops.time[op] + v->at.tail[op];
        longest = path > longest ? path : longest;
    }
    return longest;
}

void pp_moves_undo(struct pp_moves *v)
{
    shift(v, (struct pp_move){v->move.to, v->move.from});
    for (int32_t i = 0; i < v->n_window; i++) {
        const struct pp_window_op *b = &v->before[i];
        put(v, v->first + i, b->op);
        v->at.start[b->op] = b->start;
        v->at.tail[b->op] = b->tail;
    }
}

/* Notes that an op outside the window may change. */
static void note(struct pp_moves *v, int32_t op)
{
    if (op >= 0 &&
        (v->turn[op] < v->first || v->turn[op] >= v->first + v->n_window))
        v->dirty[v->turn[op]] = true;
}

static void note_after(struct pp_moves *v, int32_t op)
{
    const struct pp_search_problem *j = v->problem;
    note(v, row_after(v, op));
    for (int32_t i = j->ops.out.first[op]; i < j->ops.out.first[op + 1]; i++)
        note(v, j->ops.out.op[i]);
}

static void note_before(struct pp_moves *v, int32_t op)
{
    const struct pp_search_problem *j = v->problem;
    note(v, row_before(v, op));
    for (int32_t i = j->ops.in.first[op]; i < j->ops.in.first[op + 1]; i++)
        note(v, j->ops.in.op[i]);
}

int32_t pp_moves_keep(struct pp_moves *v)
{
    const struct pp_search_problem *j = v->problem;
    int32_t end = v->first + v->n_window, n = 0;
    for (int32_t i = v->first; i < end; i++)
        note_after(v, v->at.sorted[i]);
    for (int32_t i = end; i < j->ops.n; i++)
        if (v->dirty[i]) {
            v->dirty[i] = false;
            n++;
            if (find_start(v, v->at.sorted[i]))
                note_after(v, v->at.sorted[i]);
        }
    for (int32_t i = v->first; i < end; i++)
        note_before(v, v->at.sorted[i]);
    for (int32_t i = v->first - 1; i >= 0; i--)
        if (v->dirty[i]) {
            v->dirty[i] = false;
            n++;
            if (find_tail(v, v->at.sorted[i]))
                note_before(v, v->at.sorted[i]);
        }
    v->at.worst = -INFINITY;
    for (int r = 0; r < j->graph->n_rows; r++) {
        int32_t k = j->ops.first_order[r + 1] - 1;
        double last = 0;
        if (k >= j->ops.first_order[r])
            last = v->at.start[v->order[k]] + j->ops.time[v->order[k]];
        v->at.worst = fmax(v->at.worst, last + j->ops.late[r]);
    }
    return n;
}

struct started_op {
    double start;
    int32_t turn, op;
};

static int by_start(const void *a, const void *b)
{
    const struct started_op *x = a, *y = b;
    return x->start < y->start   ? -1
           : x->start > y->start ? 1
                                 : (x->turn > y->turn) - (x->turn < y->turn);
}

/* Sorts the sequence by start, so that windows are small. */
static void sort_by_start(struct pp_moves *v)
{
    size_t n = (size_t)v->problem->ops.n;
    struct started_op *ops = pp_calloc(n + 1, sizeof *ops);
    for (size_t i = 0; i < n; i++) {
        int32_t op = v->at.sorted[i];
        ops[i] = (struct started_op){v->at.start[op], (int32_t)i, op};
    }
    qsort(ops, n, sizeof *ops, by_start);
    for (size_t i = 0; i < n; i++)
        put(v, (int32_t)i, ops[i].op);
    free(ops);
}

int pp_moves_init(struct pp_moves *v, const struct pp_search_problem *j,
                  int32_t *order, struct pp_err *err)
{
    size_t n = (size_t)j->ops.n;
    *v = (struct pp_moves){.problem = j, .order = order};
    pp_paths_init(&v->at, &j->ops);
    v->place = pp_calloc(n, sizeof *v->place);
    v->turn = pp_calloc(n, sizeof *v->turn);
    v->marked = pp_calloc(n, sizeof *v->marked);
    v->dirty = pp_calloc(n, sizeof *v->dirty);
    v->before = pp_calloc(n, sizeof *v->before);
    if (!pp_paths_heads(&v->at, order))
        return pp_fail(err, PP_EXIT_NO, "this order deadlocks");
    pp_paths_tails(&v->at);
    for (int32_t k = 0; k < j->ops.n; k++)
        v->place[order[k]] = k;
    sort_by_start(v);
    return 0;
}

void pp_moves_finish(struct pp_moves *v)
{
    free(v->place);
    free(v->turn);
    free(v->marked);
    free(v->dirty);
    free(v->before);
    pp_paths_finish(&v->at);
    *v = (struct pp_moves){0};
}
