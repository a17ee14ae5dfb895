/* SPDX-License-Identifier: MIT */
/* The messages of a schedule, in order on their channels; the event graph of
 * messages in streams, and its runs. */
#include "schedule/check/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"

/* One end of a message. */
struct end {
    struct pp_action action;
    int row;
    size_t place; /* in its row */
};

static struct end end_of(const struct pp_fifo *f, const struct pp_schedule *s,
                         size_t channel, bool send, size_t at)
{
    const struct pp_channel *c = &f->channels.at[channel];
    struct end e = {.row = send ? c->from : c->to,
                    .place = (send ? &f->send : &f->recv)->place[at]};
    e.action = s->rows[e.row].actions[e.place];
    return e;
}

static int fail_unmatched(const struct end *e, struct pp_err *err)
{
    char text[PP_ACTION_TEXT];
    pp_action_format(e->action, false, text);
    return pp_fail(err, PP_EXIT_NO, "rank %d, action %zu: '%s' is never %s",
                   e->row, e->place, text,
                   pp_is_send(e->action.op) ? "received" : "sent");
}

static bool is_backward(struct pp_action a)
{
    return a.op == PP_SEND_B || a.op == PP_RECV_B;
}

static int fail_order(const struct end *recv, const struct end *send,
                      struct pp_err *err)
{
    char got[PP_ACTION_TEXT], want[PP_ACTION_TEXT];
    pp_action_format(recv->action, false, got);
    pp_action_format(send->action, false, want);
    const char *more = "";
    if (is_backward(recv->action) != is_backward(send->action))
        more = ", which swaps an activation and a gradient";
    return pp_fail(err, PP_EXIT_NO,
                   "rank %d, action %zu: '%s' would receive the message of "
                   "rank %d, action %zu: '%s'%s",
                   recv->row, recv->place, got, send->row, send->place, want,
                   more);
}

static bool same_message(struct pp_action a, struct pp_action b)
{
    return a.op == b.op && a.stage == b.stage && a.peer == b.peer &&
           a.microbatch == b.microbatch && a.slice == b.slice;
}

static int compare_channel(const struct pp_fifo *f, const struct pp_schedule *s,
                           size_t channel, struct pp_err *err)
{
    size_t a = f->send.first[channel], n_send = f->send.first[channel + 1] - a;
    size_t b = f->recv.first[channel], n_recv = f->recv.first[channel + 1] - b;
    for (size_t i = 0; i < n_send && i < n_recv; i++) {
        struct end send = end_of(f, s, channel, true, a + i);
        struct end recv = end_of(f, s, channel, false, b + i);
        if (!same_message(pp_other_end(send.action), recv.action))
            return fail_order(&recv, &send, err);
    }
    if (n_send == n_recv)
        return 0;
    struct end first = n_send > n_recv
                           ? end_of(f, s, channel, true, a + n_recv)
                           : end_of(f, s, channel, false, b + n_send);
    return fail_unmatched(&first, err);
}

int pp_check_messages(struct pp_fifo *f, const struct pp_schedule *s,
                      bool tagged, struct pp_err *err)
{
    pp_fifo_init(f, s, tagged);
    int rc = 0;
    for (size_t ch = 0; ch < f->channels.n && !rc; ch++)
        rc = compare_channel(f, s, ch, err);
    if (rc)
        pp_fifo_finish(f);
    return rc;
}

/* --- the event graph --- */

/* Returns the action number of the SEND or the RECV at an index of the fifo. */
static size_t action_number(const struct pp_events *e, bool send, size_t at)
{
    const struct pp_fifo *f = e->fifo;
    const struct pp_channel *c = &f->channels.at[e->channel[at]];
    return send ? e->base[c->from] + f->send.place[at]
                : e->base[c->to] + f->recv.place[at];
}

/* Returns the index in made of the producer of a message, or of a producer
 * itself. */
static size_t made_at(const struct pp_events *e, struct pp_action a)
{
    bool forward = a.op == PP_F || a.op == PP_SEND_F;
    return 2 * pp_cell(&e->cells, a.stage, a.microbatch, a.slice) + !forward;
}

/* Returns the index in received of the RECV of a link. */
static size_t received_at(const struct pp_events *e, int stage, int peer,
                          enum pp_op recv, struct pp_action a)
{
    bool forward = recv == PP_RECV_F;
    size_t link = pp_link(&e->cells, forward ? peer : stage,
                          forward ? stage : peer, a.microbatch, a.slice);
    return 2 * link + !forward;
}

/* --- the waits of an action itself --- */

struct action_waits {
    const struct pp_events *e;
    struct pp_action action;
    void (*visit)(void *ctx, size_t on);
    void *ctx;
};

static int visit_receive(void *ctx, struct pp_dep dep)
{
    const struct action_waits *w = ctx;
    struct pp_action a = w->action;
    if (dep.message != PP_N_OPS)
        w->visit(w->ctx, w->e->received[received_at(w->e, a.stage, dep.stage,
                                                    dep.message, a)]);
    return 0;
}

static void message_waits(const struct pp_events *e, size_t x,
                          struct pp_action a, struct action_waits *w)
{
    const struct pp_fifo *f = e->fifo;
    size_t at = e->index[x];
    if (pp_is_recv(a.op)) {
        w->visit(w->ctx, action_number(e, true, at));
        return;
    }
    if (e->streams != PP_STREAM_PROGRAM)
        w->visit(w->ctx, e->made[made_at(e, a)]);
    size_t ch = e->channel[at], turn = at - f->send.first[ch];
    if (e->depth[ch] == 0)
        w->visit(w->ctx, action_number(e, false, at));
    else if (turn >= (size_t)e->depth[ch])
        w->visit(w->ctx, action_number(e, false, at - (size_t)e->depth[ch]));
}

void pp_events_waits(const struct pp_events *e, int row, size_t x,
                     void (*visit)(void *ctx, size_t on), void *ctx)
{
    const struct pp_action *a =
        &e->schedule->rows[row].actions[x - e->base[row]];
    struct action_waits w = {e, *a, visit, ctx};
    if (pp_is_message(a->op)) {
        message_waits(e, x, *a, &w);
    } else if (pp_is_compute(a->op) && e->streams != PP_STREAM_PROGRAM) {
        pp_deps(e->schedule->graph, *a, visit_receive, &w);
        if (!a->overlap)
            return;
        w.action = a[1];
        pp_deps(e->schedule->graph, a[1], visit_receive, &w);
    }
}

size_t pp_events_stream(const struct pp_events *e, int row, struct pp_action a)
{
    size_t n_rows = (size_t)e->schedule->graph->n_rows;
    bool send = pp_is_send(a.op), message = send || pp_is_recv(a.op);
    if (!message || e->streams == PP_STREAM_PROGRAM)
        return (size_t)row;
    if (e->streams == PP_STREAM_NONE)
        return PP_NO_STREAM;
    if (e->streams == PP_STREAM_RANK)
        return n_rows + (size_t)row;
    int peer = e->schedule->graph->stages[a.peer].row;
    bool out = e->streams == PP_STREAM_PAIR ? row < peer : send;
    size_t ch = pp_channel_between(&e->fifo->channels, out ? row : peer,
                                   out ? peer : row);
    return n_rows + 2 * ch + !out;
}

/* --- the graph of a run --- */

struct event_edges {
    struct pp_events *e;
    bool send; /* the waits are of a SEND */
    struct pp_err *err;
    int rc;
};

/* A SEND at depth 0 waits for what comes before its RECV. */
static void add_edge(void *ctx, size_t on)
{
    struct event_edges *g = ctx;
    const struct pp_events *e = g->e;
    size_t at = e->index[e->ops.n - 1];
    if (g->send && e->depth[e->channel[at]] == 0 &&
        action_number(e, false, at) == on)
        on = e->before[on];
    if (on != PP_NO_EVENT && !g->rc)
        g->rc = pp_ops_wait(&g->e->ops, (int32_t)on, 0, g->err);
}

/* A message without a stream has one of its own. */
static int build_graph(struct pp_events *e, struct pp_err *err)
{
    const struct pp_schedule *s = e->schedule;
    struct event_edges g = {.e = e, .err = err};
    size_t alone = e->n_streams;
    size_t n_alone = e->streams == PP_STREAM_NONE
                         ? 2 * e->fifo->send.first[e->fifo->channels.n]
                         : 0;
    if (pp_ops_init(&e->ops, e->n, e->n_streams + n_alone, false, err))
        return -1;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n && !g.rc; i++) {
            struct pp_action a = s->rows[r].actions[i];
            size_t stream = pp_events_stream(e, r, a);
            g.send = pp_is_send(a.op);
            pp_ops_add(&e->ops,
                       (int32_t)(stream == PP_NO_STREAM ? alone++ : stream), 0);
            pp_events_waits(e, r, e->base[r] + i, add_edge, &g);
        }
    if (g.rc)
        return -1;
    pp_ops_link(&e->ops, false);
    return 0;
}

int pp_events_run(struct pp_events *e, const int *depth, struct pp_err *err)
{
    e->depth = depth;
    pp_paths_finish(&e->paths);
    pp_ops_finish(&e->ops);
    if (build_graph(e, err))
        return -1;
    pp_paths_init(&e->paths, &e->ops);
    return pp_paths_heads(&e->paths, NULL) ? 0 : PP_AGAIN;
}

/* --- the parts that do not change between runs --- */

static int number_actions(struct pp_events *e, struct pp_err *err)
{
    const struct pp_schedule *s = e->schedule;
    e->base = pp_calloc((size_t)s->graph->n_rows + 1, sizeof *e->base);
    for (int r = 0; r < s->graph->n_rows; r++)
        e->base[r + 1] = e->base[r] + s->rows[r].n;
    e->n = e->base[s->graph->n_rows];
    if (e->n >= PP_NO_EVENT)
        return pp_fail(err, PP_EXIT_SYSTEM, "too many actions to check");
    return 0;
}

static void index_messages(struct pp_events *e)
{
    const struct pp_fifo *f = e->fifo;
    e->index = pp_calloc(e->n, sizeof *e->index);
    e->channel = pp_calloc(f->send.first[f->channels.n], sizeof *e->channel);
    for (size_t ch = 0; ch < f->channels.n; ch++)
        for (size_t at = f->send.first[ch]; at < f->send.first[ch + 1]; at++) {
            e->channel[at] = (uint32_t)ch;
            e->index[action_number(e, true, at)] = at;
            e->index[action_number(e, false, at)] = at;
        }
}

static void index_cells(struct pp_events *e)
{
    const struct pp_schedule *s = e->schedule;
    if (e->streams == PP_STREAM_PROGRAM)
        return;
    pp_cells_init(&e->cells, s);
    e->made = pp_calloc(e->cells.n_cells, 2 * sizeof *e->made);
    e->received = pp_calloc(e->cells.n_links, 2 * sizeof *e->received);
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            uint32_t x = (uint32_t)(e->base[r] + i);
            if (a.op == PP_F || a.op == PP_B || a.op == PP_I)
                e->made[made_at(e, a)] = x;
            else if (pp_is_recv(a.op))
                e->received[received_at(e, a.stage, a.peer, a.op, a)] = x;
        }
}

static void find_before(struct pp_events *e)
{
    const struct pp_schedule *s = e->schedule;
    uint32_t *last = pp_calloc(e->n_streams, sizeof *last);
    e->before = pp_calloc(e->n, sizeof *e->before);
    memset(last, 0xff, e->n_streams * sizeof *last);
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            size_t stream = pp_events_stream(e, r, s->rows[r].actions[i]);
            e->before[e->base[r] + i] = PP_NO_EVENT;
            if (stream == PP_NO_STREAM)
                continue;
            e->before[e->base[r] + i] = last[stream];
            last[stream] = (uint32_t)(e->base[r] + i);
        }
    free(last);
}

int pp_events_init(struct pp_events *e, const struct pp_schedule *s,
                   const struct pp_fifo *f, enum pp_streams streams,
                   struct pp_err *err)
{
    *e = (struct pp_events){.schedule = s, .fifo = f, .streams = streams};
    e->n_streams = (size_t)s->graph->n_rows + 2 * f->channels.n;
    if (e->n_streams < 2 * (size_t)s->graph->n_rows)
        e->n_streams = 2 * (size_t)s->graph->n_rows;
    if (number_actions(e, err)) {
        pp_events_finish(e);
        return -1;
    }
    index_messages(e);
    index_cells(e);
    find_before(e);
    return 0;
}

void pp_events_finish(struct pp_events *e)
{
    free(e->base);
    free(e->index);
    free(e->channel);
    free(e->before);
    free(e->made);
    free(e->received);
    pp_paths_finish(&e->paths);
    pp_ops_finish(&e->ops);
    if (e->cells.first_edge)
        pp_cells_finish(&e->cells);
    *e = (struct pp_events){0};
}
