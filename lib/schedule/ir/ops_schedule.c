/* SPDX-License-Identifier: MIT */
/* The operations of a schedule. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/ops.h"

struct reading {
    struct pp_ops *ops;
    const struct pp_schedule *schedule;
    const struct pp_costs *costs;
    enum pp_ops_waits waits;
    const struct pp_fifo *fifo;
    size_t depth;
    int32_t *base;             /* per row: its first operation */
    struct pp_completion done; /* INPUTS: numbers are operations */
    struct pp_cells cells;     /* POSTED */
    int32_t *sent;             /* by link and direction: the SEND, or -1 */
    size_t *passed;            /* per channel and end: messages passed */
    size_t n_messages;         /* passed in all */
    bool beside, copies;
    int32_t *gathered; /* per stage: its last UNSHARD, or -1 */
    int32_t *ended;    /* per stage: its last backward, if that is B; or -1 */
    struct pp_cells copied; /* with copies */
    int32_t (*copy)[2];     /* per cell: its OFFLOAD and RELOAD, or -1 */
    int row;
    int32_t last, collective; /* of this row: operations before, or -1 */
    int32_t offload;          /* the last one, for which the next operation of
                                 the row waits; or -1 */
    int32_t out, in;          /* rows of operations for copies, or -1 */
    struct pp_action action;  /* whose waits are read */
    struct pp_err *err;
};

static int32_t this_op(const struct reading *r)
{
    return r->ops->n - 1;
}

static double time_of(const struct reading *r, struct pp_action a)
{
    return r->costs ? r->costs->time(r->costs->ctx, a) : 0;
}

static int wait_for(struct reading *r, int32_t on, double lag)
{
    return pp_ops_wait(r->ops, on, lag, r->err);
}

/* An operation of the row itself follows the operations of the row, and the
 * OFFLOAD before it. */
static int add_op(struct reading *r, double time)
{
    int32_t on = r->offload;
    pp_ops_add(r->ops, r->row, time);
    r->offload = -1;
    return on >= 0 ? wait_for(r, on, 0) : 0;
}

static int32_t *copy_of(const struct reading *r, struct pp_action a)
{
    return r->copy[pp_cell(&r->copied, a.stage, a.microbatch, a.slice)];
}

/* --- compute actions --- */

/* Returns the time of the message that the dependency's stage sends. */
static double lag_of(const struct reading *r, struct pp_dep dep)
{
    struct pp_action a = r->action;
    a.op = (uint8_t)dep.message;
    a.peer = dep.stage;
    return time_of(r, pp_other_end(a));
}

static int wait_for_input(void *ctx, struct pp_dep dep)
{
    struct reading *r = ctx;
    int row = r->schedule->graph->stages[dep.stage].row;
    size_t found = pp_completion_get(&r->done, dep.stage, r->action.microbatch,
                                     dep.slice, dep.ops);
    int32_t from = found == PP_NOT_DONE ? this_op(r) : (int32_t)found;
    if (row == r->row && from < this_op(r))
        return 0;
    return wait_for(r, from, dep.message == PP_N_OPS ? 0 : lag_of(r, dep));
}

static int wait_for_message(void *ctx, struct pp_dep dep)
{
    struct reading *r = ctx;
    bool back = dep.message == PP_RECV_B;
    int stage = r->action.stage;
    if (dep.message == PP_N_OPS)
        return 0;
    size_t link =
        pp_link(&r->cells, back ? stage : dep.stage, back ? dep.stage : stage,
                r->action.microbatch, r->action.slice);
    int32_t from = r->sent[2 * link + back];
    return wait_for(r, from < 0 ? this_op(r) : from,
                    r->depth > 0 ? lag_of(r, dep) : 0);
}

/* The first action of a pair waits for both. */
static int read_compute(struct reading *r, const struct pp_action *a,
                        bool second)
{
    const struct pp_graph *g = r->schedule->graph;
    double time = time_of(r, *a);
    if (r->costs && (a->overlap || second))
        time *= 1 - r->costs->pair_saving;
    if (add_op(r, time))
        return -1;
    if (pp_adds_gradients(g, *a))
        r->ended[a->stage] = a->op == PP_B ? this_op(r) : -1;
    if (r->copies && a->op == PP_F)
        copy_of(r, *a)[0] = this_op(r) + a->overlap;
    for (int i = 0; !second && i <= a->overlap; i++) {
        int32_t whole = r->gathered[a[i].stage];
        int32_t back = r->copies ? copy_of(r, a[i])[1] : -1;
        r->action = a[i];
        if ((whole >= 0 && wait_for(r, whole, 0)) ||
            (back >= 0 && wait_for(r, back, 0)) ||
            (r->waits == PP_OPS_INPUTS &&
             pp_deps(g, a[i], wait_for_input, r)) ||
            (r->waits == PP_OPS_POSTED &&
             pp_deps(g, a[i], wait_for_message, r)))
            return -1;
    }
    return 0;
}

/* --- messages --- */

/* Reports if an action does not keep its row from going on. */
static bool runs_aside(const struct reading *r, enum pp_op op)
{
    return (r->copies && pp_is_copy(op)) || pp_is_beside(r->costs, op);
}

/* Returns the k-th SEND or RECV of a channel, or the operation at hand if there
 * is none. */
static int32_t message(const struct reading *r, size_t channel, bool send,
                       size_t k)
{
    const struct pp_fifo_ends *e = send ? &r->fifo->send : &r->fifo->recv;
    const struct pp_channel *c = &r->fifo->channels.at[channel];
    if (e->first[channel] + k >= e->first[channel + 1])
        return this_op(r);
    return r->base[send ? c->from : c->to] +
           (int32_t)e->place[e->first[channel] + k];
}

/* Waits until a row has posted the receive of an operation: the row has come to
 * that place, and the OFFLOADs right before it have ended. */
static int wait_for_post(struct reading *r, int row, int32_t recv)
{
    const struct pp_row *list = &r->schedule->rows[row];
    size_t at = (size_t)(recv - r->base[row]);
    if (r->waits == PP_OPS_POSTED)
        at = pp_posted_at(list, at);
    for (; at > 0 && runs_aside(r, list->actions[at - 1].op); at--)
        if (list->actions[at - 1].op == PP_OFFLOAD && r->copies &&
            wait_for(r, r->base[row] + (int32_t)at - 1, 0))
            return -1;
    return at > 0 ? wait_for(r, r->base[row] + (int32_t)at - 1, 0) : 0;
}

static int wait_for_room(struct reading *r, size_t channel, size_t k)
{
    bool posted = r->waits == PP_OPS_POSTED;
    int to = r->fifo->channels.at[channel].to;
    if (r->depth > 0 && k < r->depth)
        return 0;
    k -= r->depth;
    int32_t recv = message(r, channel, false, k);
    if (recv == this_op(r) || (r->depth > 0 && !posted))
        return wait_for(r, recv, 0);
    if (r->depth == 0)
        return wait_for_post(r, to, recv);
    const struct pp_row *list = &r->schedule->rows[r->row];
    int32_t left = message(r, channel, true, k); /* it is in this row */
    double time = time_of(r, list->actions[left - r->base[r->row]]);
    return (time > 0 && wait_for(r, left, time)) || wait_for_post(r, to, recv)
               ? -1
               : 0;
}

static int read_message(struct reading *r, struct pp_action a)
{
    bool send = pp_is_send(a.op);
    if (add_op(r, send && r->depth == 0 ? time_of(r, a) : 0))
        return -1;
    size_t channel = r->fifo->channel[r->n_messages++];
    size_t k = r->passed[2 * channel + send]++;
    if (send)
        return wait_for_room(r, channel, k);
    if (r->waits == PP_OPS_POSTED)
        return 0;
    return wait_for(r, message(r, channel, true, k),
                    r->depth > 0 ? time_of(r, pp_other_end(a)) : 0);
}

/* --- the rest --- */

/* Lets a REDUCE_GRAD beside the computation take gradients as the last B makes
 * them, in one piece: it begins so early that it ends when the last of them is
 * summed, if nothing keeps it. */
static int wait_for_made(struct reading *r, int32_t back,
                         const struct pp_made *made)
{
    double whole = r->ops->time[this_op(r)] += made->longer, after = 0;
    for (int i = 0; i < made->n; i++)
        after = fmax(after, made->left[i].reduction * whole -
                                made->left[i].backward * r->ops->time[back]);
    return wait_for(r, back, after - whole);
}

static int read_beside(struct reading *r, struct pp_action a)
{
    const struct pp_made *made =
        r->costs->made ? &r->costs->made[a.stage] : NULL;
    int32_t back = a.op == PP_REDUCE_GRAD ? r->ended[a.stage] : -1;
    pp_ops_add(r->ops, r->schedule->graph->n_rows + r->row, time_of(r, a));
    r->collective = this_op(r);
    if (a.op == PP_UNSHARD)
        r->gathered[a.stage] = this_op(r);
    if (r->offload >= 0 && wait_for(r, r->offload, 0))
        return -1;
    if (back >= 0 && made && made->n)
        return wait_for_made(r, back, made);
    return r->last >= 0 ? wait_for(r, r->last, 0) : 0;
}

/* Syncs without a stage need the sums; weights need not wait here. */
static int read_sync(struct reading *r, struct pp_action a)
{
    if (pp_is_beside(r->costs, a.op))
        return read_beside(r, a);
    if (add_op(r, pp_is_collective(a.op) ? time_of(r, a) : 0))
        return -1;
    return pp_has_stage(a.op) || r->collective < 0
               ? 0
               : wait_for(r, r->collective, 0);
}

/* An OFFLOAD copies behind its forward, and the operations of the row behind it
 * wait for its end. A RELOAD copies from its place in the row on. */
static int read_copy(struct reading *r, struct pp_action a)
{
    int32_t *copy = copy_of(r, a), before = r->offload;
    bool out = a.op == PP_OFFLOAD;
    pp_ops_add(r->ops, out ? r->out : r->in, time_of(r, a));
    if (out) {
        int32_t made = copy[0];
        r->offload = copy[0] = this_op(r);
        return (made >= 0 && wait_for(r, made, 0)) ||
               (before >= 0 && wait_for(r, before, 0));
    }
    copy[1] = this_op(r);
    return (r->last >= 0 && wait_for(r, r->last, 0)) ||
           (before >= 0 && wait_for(r, before, 0));
}

/* Reports if an action is an operation. */
static bool is_op(const struct reading *r, struct pp_action a)
{
    return r->waits != PP_OPS_INPUTS || (!pp_is_message(a.op));
}

static int read_row(struct reading *r)
{
    const struct pp_row *list = &r->schedule->rows[r->row];
    int rows = r->schedule->graph->n_rows * (r->beside ? 2 : 1);
    r->last = r->collective = r->offload = -1;
    r->out = rows + 2 * r->row;
    r->in = r->out + 1;
    for (size_t i = 0; i < list->n; i++) {
        const struct pp_action *a = &list->actions[i];
        if (!is_op(r, *a))
            continue;
        int rc = pp_is_compute(a->op)
                     ? read_compute(r, a, pp_is_second_of_pair(list, i))
                 : pp_is_message(a->op)           ? read_message(r, *a)
                 : r->copies && pp_is_copy(a->op) ? read_copy(r, *a)
                                                  : read_sync(r, *a);
        if (rc)
            return -1;
        if (!runs_aside(r, a->op))
            r->last = this_op(r);
    }
    return 0;
}

/* Notes which operation does what; a pair does all at its end. */
static void number_actions(struct reading *r)
{
    const struct pp_schedule *s = r->schedule;
    for (int row = 0; row < s->graph->n_rows; row++) {
        int32_t op = r->base[row];
        for (size_t i = 0; i < s->rows[row].n; i++) {
            struct pp_action a = s->rows[row].actions[i];
            if (r->waits == PP_OPS_INPUTS && pp_is_compute(a.op))
                pp_completion_set(&r->done, a, (size_t)(op + a.overlap));
            if (r->waits == PP_OPS_POSTED && pp_is_send(a.op)) {
                bool back = a.op == PP_SEND_B;
                size_t link =
                    pp_link(&r->cells, back ? a.peer : a.stage,
                            back ? a.stage : a.peer, a.microbatch, a.slice);
                r->sent[2 * link + back] = op;
            }
            op += is_op(r, a);
        }
    }
}

/* Fills base. Returns the number of operations. */
static size_t count_ops(const struct reading *r)
{
    const struct pp_schedule *s = r->schedule;
    size_t n = 0;
    for (int row = 0; row < s->graph->n_rows; row++) {
        const struct pp_row *list = &s->rows[row];
        r->base[row] = (int32_t)n;
        if (r->waits != PP_OPS_INPUTS)
            n += list->n;
        else
            for (size_t i = 0; i < list->n; i++)
                n += is_op(r, list->actions[i]);
    }
    return n;
}

static int allocate(struct reading *r)
{
    const struct pp_schedule *s = r->schedule;
    const struct pp_graph *g = s->graph;
    size_t rows = (size_t)g->n_rows, n_sent = 0;
    size_t all = rows * (r->beside ? 2 : 1) + (r->copies ? 2 * rows : 0);
    r->base = pp_calloc(rows, sizeof *r->base);
    size_t n = count_ops(r);
    if (pp_ops_init(r->ops, n, all, r->costs, r->err))
        return -1;
    if (r->waits == PP_OPS_INPUTS) {
        pp_completion_init(&r->done, s);
    } else if (r->waits == PP_OPS_POSTED) {
        pp_cells_init(&r->cells, s);
        n_sent = 2 * r->cells.n_links;
    }
    r->gathered = pp_calloc((size_t)g->n_stages, sizeof *r->gathered);
    r->sent = pp_calloc(n_sent, sizeof *r->sent);
    r->passed =
        pp_calloc(r->fifo ? 2 * r->fifo->channels.n : 0, sizeof *r->passed);
    if (r->copies) {
        pp_cells_init(&r->copied, s);
        r->copy = pp_calloc(r->copied.n_cells, sizeof *r->copy);
        memset(r->copy, -1, r->copied.n_cells * sizeof *r->copy);
    }
    memset(r->gathered, -1, (size_t)g->n_stages * sizeof *r->gathered);
    r->ended = pp_calloc((size_t)g->n_stages, sizeof *r->ended);
    memset(r->ended, -1, (size_t)g->n_stages * sizeof *r->ended);
    memset(r->sent, -1, n_sent * sizeof *r->sent);
    return 0;
}

int pp_ops_of_schedule(struct pp_ops *o, const struct pp_schedule *s,
                       const struct pp_costs *costs, enum pp_ops_waits waits,
                       const struct pp_fifo *f, int depth, bool turned,
                       struct pp_err *err)
{
    struct reading r = {.ops = o,
                        .schedule = s,
                        .costs = costs,
                        .waits = waits,
                        .fifo = f,
                        .depth = (size_t)depth,
                        .beside = costs && costs->beside,
                        .copies = costs && pp_schedule_copies(s),
                        .err = err};
    int rc = allocate(&r);
    if (!rc)
        number_actions(&r);
    for (r.row = 0; r.row < s->graph->n_rows && !rc; r.row++)
        rc = read_row(&r);
    if (!rc)
        pp_ops_link(o, turned);
    pp_completion_finish(&r.done);
    pp_cells_finish(&r.cells);
    pp_cells_finish(&r.copied);
    free(r.copy);
    free(r.base);
    free(r.gathered);
    free(r.ended);
    free(r.sent);
    free(r.passed);
    return rc;
}
