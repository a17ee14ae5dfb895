/* SPDX-License-Identifier: MIT */
/* The makespan graph. The pieces are the operations in an order that respects
 * their requirements. Pieces of the same row run in row order, so only
 * waits for other rows are stored. */
#include "schedule/simulate/makespan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/ir/ops.h"

enum { N_OPS = 4 };

/* Returns the number of a message, which has no time here. */
static double number_message(const void *ctx, struct pp_action a)
{
    const struct pp_graph *g = ctx;
    int cut = a.op == PP_SEND_F ? a.stage : a.peer;
    if (!pp_is_send(a.op))
        return 0;
    return (double)a.microbatch * g->n_stages * g->slices.n +
           cut * g->slices.n + a.slice;
}

static int32_t time_index(const struct pp_graph *g, struct pp_action a)
{
    return N_OPS * (a.stage * g->slices.n + a.slice) + a.op;
}

/* Adds the waits of an operation. Pieces of its row need none. */
static void add_waits(struct pp_makespan *x, const struct pp_ops *o, int32_t op,
                      const int32_t *piece)
{
    int32_t n = x->graph->n_stages * x->graph->slices.n;
    for (int32_t i = o->in.first[op]; i < o->in.first[op + 1]; i++) {
        int64_t message = (int64_t)o->in.lag[i];
        x->waits[x->n_waits++] = (struct pp_makespan_wait){
            piece[o->in.op[i]], (int32_t)(message % n), (int32_t)(message / n)};
    }
}

/* Adds an action, or a pair at its first action. */
static void add_piece(struct pp_makespan *x, const struct pp_action *a,
                      int32_t before)
{
    const struct pp_graph *g = x->graph;
    x->pieces[x->n_pieces] = (struct pp_makespan_piece){
        .before = before,
        .wait = (uint32_t)x->n_waits,
        .time = {time_index(g, a[0]), a->overlap ? time_index(g, a[1]) : -1}};
    x->microbatch[x->n_pieces][0] = a[0].microbatch;
    x->microbatch[x->n_pieces++][1] = a->overlap ? a[1].microbatch : 0;
}

/* Fills piece with the place of each operation in its row. */
static void find_places(const struct pp_schedule *s, int32_t *piece)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (!pp_is_message(s->rows[r].actions[i].op))
                *piece++ = (int32_t)i;
}

/* Fills the pieces. piece has the place of each operation, and then its piece.
 */
static void add_pieces(struct pp_makespan *x, const struct pp_schedule *s,
                       const struct pp_paths *p, int32_t *piece)
{
    const struct pp_ops *o = p->ops;
    for (int32_t k = 0; k < o->n; k++) {
        int32_t op = p->sorted[k], row = o->row[op];
        size_t at = (size_t)piece[op];
        const struct pp_row *list = &s->rows[row];
        piece[op] = x->last[row];
        if (!pp_is_compute(list->actions[at].op) ||
            pp_is_second_of_pair(list, at))
            continue;
        piece[op] = (int32_t)x->n_pieces;
        add_piece(x, &list->actions[at], x->last[row]);
        add_waits(x, o, op, piece);
        x->last[row] = piece[op];
    }
    x->pieces[x->n_pieces].wait = (uint32_t)x->n_waits;
}

static void fill_makespan(struct pp_makespan *x, const struct pp_schedule *s,
                          const struct pp_paths *p)
{
    size_t n = (size_t)p->ops->n, rows = (size_t)x->graph->n_rows;
    size_t slices = (size_t)(x->graph->n_stages * x->graph->slices.n);
    int32_t *piece = pp_calloc(n, sizeof *piece);
    x->pieces = pp_calloc(n + 1, sizeof *x->pieces);
    x->waits = pp_calloc((size_t)p->ops->in.first[n], sizeof *x->waits);
    x->microbatch = pp_calloc(n + 1, sizeof *x->microbatch);
    x->done = pp_calloc(n + 1, sizeof *x->done);
    x->op = pp_calloc(slices, N_OPS * sizeof *x->op);
    x->last = pp_calloc(rows, sizeof *x->last);
    memset(x->last, -1, rows * sizeof *x->last);
    find_places(s, piece);
    add_pieces(x, s, p, piece);
    free(piece);
}

int pp_makespan_init(struct pp_makespan *x, const struct pp_schedule *s,
                     struct pp_err *err)
{
    const struct pp_costs numbers = {.time = number_message, .ctx = s->graph};
    struct pp_ops ops = {0};
    struct pp_paths p = {0};
    *x = (struct pp_makespan){.graph = s->graph};
    int rc = pp_ops_of_schedule(&ops, s, &numbers, PP_OPS_INPUTS, NULL, 0, true,
                                err);
    if (!rc)
        pp_paths_init(&p, &ops);
    if (!rc)
        rc = pp_paths_heads(&p, NULL)
                 ? 0
                 : pp_fail(err, PP_EXIT_NO, "this order deadlocks");
    if (!rc)
        fill_makespan(x, s, &p);
    if (rc)
        pp_makespan_finish(x);
    pp_paths_finish(&p);
    pp_ops_finish(&ops);
    return rc;
}

static void set_op_times(struct pp_makespan *x, const struct pp_times *t)
{
    int n = x->graph->slices.n;
    for (int i = 0; i < x->graph->n_stages * n; i++) {
        bool input = x->graph->stages[i / n].input_grad;
        for (int op = 0; op < N_OPS; op++) {
            int time = pp_time_of((enum pp_op)op, input);
            x->op[N_OPS * i + op] = time < 0 ? 0 : t->slice[i][time];
        }
    }
}

double pp_makespan(struct pp_makespan *x, const struct pp_times *t)
{
    set_op_times(x, t);
    const struct pp_makespan_piece *p = x->pieces;
    const struct pp_makespan_wait *wait = x->waits;
    const double *restrict op = x->op, *restrict message = t->message;
    double makespan = 0, *restrict done = x->done;
    int32_t n = (int32_t)x->n_pieces, end = n > 0 ? 0 : -1;
    for (int32_t i = 0; i < n; i++, p++) {
        double ready = p->before >= 0 ? done[p->before] : 0;
        for (uint32_t left = p[1].wait - p->wait; left > 0; left--, wait++) {
            double there = done[wait->piece] + message[wait->message];
            ready = there > ready ? there : ready;
        }
        ready += op[p->time[0]];
        if (p->time[1] >= 0)
            ready += op[p->time[1]];
        done[i] = ready;
        if (ready > makespan) {
            makespan = ready;
            end = i;
        }
    }
    x->end = end;
    x->tailed = false;
    return makespan;
}

double pp_makespan_unequal(struct pp_makespan *x,
                           const struct pp_microbatch_times *times)
{
    const struct pp_makespan_piece *p = x->pieces;
    const struct pp_makespan_wait *wait = x->waits;
    double makespan = 0, *done = x->done;
    for (size_t i = 0; i < x->n_pieces; i++, p++) {
        const int32_t *microbatch = x->microbatch[i];
        double ready = p->before >= 0 ? done[p->before] : 0;
        for (uint32_t left = p[1].wait - p->wait; left > 0; left--, wait++) {
            double there = done[wait->piece] +
                           times[wait->microbatch].message[wait->message];
            ready = there > ready ? there : ready;
        }
        ready += times[microbatch[0]].op[p->time[0]];
        if (p->time[1] >= 0)
            ready += times[microbatch[1]].op[p->time[1]];
        done[i] = ready;
        makespan = ready > makespan ? ready : makespan;
    }
    return makespan;
}

static void count_time(const struct pp_graph *g, int32_t time,
                       const struct pp_times *counts)
{
    int i = time / N_OPS;
    int of = pp_time_of((enum pp_op)(time % N_OPS),
                        g->stages[i / g->slices.n].input_grad);
    if (of >= 0)
        counts->slice[i][of]++;
}

/* Returns the piece that i waited for longest; of equals the first, as in
 * pp_makespan. */
static int32_t came_from(const struct pp_makespan *x, const struct pp_times *t,
                         int32_t i, int *message)
{
    const struct pp_makespan_piece *p = &x->pieces[i];
    int32_t from = p->before;
    double ready = from >= 0 ? x->done[from] : 0;
    *message = -1;
    for (uint32_t w = p->wait; w < p[1].wait; w++) {
        const struct pp_makespan_wait *wait = &x->waits[w];
        double there = x->done[wait->piece] + t->message[wait->message];
        if (there > ready || from < 0) {
            ready = there;
            from = wait->piece;
            *message = wait->message;
        }
    }
    return from;
}

static void count_piece(const struct pp_makespan *x, int32_t at,
                        const struct pp_times *counts)
{
    count_time(x->graph, x->pieces[at].time[0], counts);
    if (x->pieces[at].time[1] >= 0)
        count_time(x->graph, x->pieces[at].time[1], counts);
}

static void clear_counts(const struct pp_makespan *x,
                         const struct pp_times *counts)
{
    size_t n = (size_t)(x->graph->n_stages * x->graph->slices.n);
    memset(counts->slice, 0, n * sizeof *counts->slice);
    memset(counts->message, 0, n * sizeof *counts->message);
}

/* Counts a longest path to a piece, including the piece. */
static void count_back(const struct pp_makespan *x, const struct pp_times *t,
                       int32_t at, const struct pp_times *counts)
{
    int message;
    while (at >= 0) {
        count_piece(x, at, counts);
        at = came_from(x, t, at, &message);
        if (message >= 0)
            counts->message[message]++;
    }
}

void pp_makespan_path(const struct pp_makespan *x, const struct pp_times *t,
                      const struct pp_times *counts)
{
    clear_counts(x, counts);
    count_back(x, t, x->end, counts);
}

/* --- paths along rows --- */

static double piece_time(const struct pp_makespan *x, int32_t i)
{
    const struct pp_makespan_piece *p = &x->pieces[i];
    return x->op[p->time[0]] + (p->time[1] >= 0 ? x->op[p->time[1]] : 0);
}

static void extend_tail(struct pp_makespan_tail *of, double length,
                        int32_t next, int32_t message)
{
    if (length > of->length || of->next < 0)
        *of = (struct pp_makespan_tail){length, next, message};
}

static void find_tails(struct pp_makespan *x, const struct pp_times *t)
{
    if (!x->tails)
        x->tails = pp_calloc(x->n_pieces + 1, sizeof *x->tails);
    struct pp_makespan_tail *tails = x->tails;
    for (size_t i = 0; i < x->n_pieces; i++)
        tails[i] = (struct pp_makespan_tail){0, -1, -1};
    for (int32_t i = (int32_t)x->n_pieces; i-- > 0;) {
        const struct pp_makespan_piece *p = &x->pieces[i];
        double length = tails[i].length + piece_time(x, i);
        if (p->before >= 0)
            extend_tail(&tails[p->before], length, i, -1);
        for (uint32_t w = p->wait; w < p[1].wait; w++) {
            const struct pp_makespan_wait *wait = &x->waits[w];
            extend_tail(&tails[wait->piece], length + t->message[wait->message],
                        i, wait->message);
        }
    }
    x->tailed = true;
}

/* Counts a path along the row whose last piece is given. The path enters the
 * row within the first `part` of its work and leaves it within the last `part`.
 * Of these paths it is the longest, except that the row's own work counts for
 * more than its time: among paths of nearly equal length this prefers one that
 * says more about the row. */
static void count_row(const struct pp_makespan *x, const struct pp_times *t,
                      int32_t end, double part, const struct pp_times *counts)
{
    const struct pp_makespan_tail *tails = x->tails;
    const double about = 1 - 1e-12; /* tolerates sums in another order */
    const double longer = part > 0 ? 1.2 : 1;
    double work = 0, at = 0, most = -INFINITY, left = 0;
    int32_t enter, leave = end;
    for (int32_t i = end; i >= 0; i = x->pieces[i].before)
        work += piece_time(x, i);
    /* at: the row's work after a piece */
    for (int32_t i = end; i >= 0 && at <= work * part;
         i = x->pieces[i].before) {
        if (tails[i].length - longer * at > most) {
            most = tails[i].length - longer * at;
            leave = i;
            left = at;
        }
        at += piece_time(x, i);
    }
    enter = leave;
    most = -INFINITY;
    at = left;
    for (int32_t i = leave; i >= 0; i = x->pieces[i].before) {
        bool late = at + piece_time(x, i) >= work * (1 - part) * about;
        if (late && x->done[i] + longer * at > most) {
            most = x->done[i] + longer * at;
            enter = i;
        }
        at += piece_time(x, i);
    }
    clear_counts(x, counts);
    for (int32_t i = leave; i >= 0 && i != enter; i = x->pieces[i].before)
        count_piece(x, i, counts);
    count_back(x, t, enter, counts);
    for (int32_t i = leave; tails[i].next >= 0; i = tails[i].next) {
        count_piece(x, tails[i].next, counts);
        if (tails[i].message >= 0)
            counts->message[tails[i].message]++;
    }
}

void pp_makespan_row_paths(struct pp_makespan *x, const struct pp_times *t,
                           const struct pp_times *counts, double part,
                           void (*each)(void *ctx), void *ctx)
{
    if (!x->tailed)
        find_tails(x, t);
    for (int r = 0; r < x->graph->n_rows; r++)
        if (x->last[r] >= 0) {
            count_row(x, t, x->last[r], part, counts);
            each(ctx);
        }
}

void pp_makespan_finish(struct pp_makespan *x)
{
    free(x->pieces);
    free(x->waits);
    free(x->microbatch);
    free(x->done);
    free(x->op);
    free(x->last);
    free(x->tails);
    *x = (struct pp_makespan){0};
}
