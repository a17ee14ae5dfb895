/* SPDX-License-Identifier: MIT */
/* The event graph and its runs by Kahn's algorithm. The edges are visited
 * twice, first to count them and then to store them. */
#include "schedule/check/check_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"

static size_t action_number(const struct pp_events *e, const struct pp_end *end)
{
    return e->base[end->row] + end->place;
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
        w->visit(w->ctx, action_number(e, &f->send[at]));
        return;
    }
    if (e->streams != PP_STREAM_PROGRAM)
        w->visit(w->ctx, e->made[made_at(e, a)]);
    size_t ch = e->channel[at], turn = at - f->first[ch];
    if (e->depth[ch] == 0)
        w->visit(w->ctx, action_number(e, &f->recv[at]));
    else if (turn >= (size_t)e->depth[ch])
        w->visit(w->ctx, action_number(e, &f->recv[at - (size_t)e->depth[ch]]));
}

void pp_events_waits(const struct pp_events *e, int row, size_t x,
                     void (*visit)(void *ctx, size_t on), void *ctx)
{
    const struct pp_action *a =
        &e->schedule->rows[row].actions[x - e->base[row]];
    struct action_waits w = {e, *a, visit, ctx};
    if (pp_is_send(a->op) || pp_is_recv(a->op)) {
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
    bool keep;
    size_t to;
};

static void add_edge(void *ctx, size_t from)
{
    struct event_edges *g = ctx;
    struct pp_events *e = g->e;
    uint32_t a = e->event[from], b = e->event[g->to];
    if (a == b)
        return;
    if (g->keep)
        e->next[e->first[a + 1]++] = b;
    else
        e->first[a + 2]++, e->left[b]++;
}

static void visit_edges(struct pp_events *e, bool keep)
{
    const struct pp_schedule *s = e->schedule;
    struct event_edges g = {.e = e, .keep = keep};
    memset(e->last, 0xff, e->n_streams * sizeof *e->last);
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            size_t stream = pp_events_stream(e, r, s->rows[r].actions[i]);
            g.to = e->base[r] + i;
            if (stream != PP_NO_STREAM) {
                if (e->last[stream] != PP_NO_EVENT)
                    add_edge(&g, e->last[stream]);
                e->last[stream] = (uint32_t)g.to;
            }
            pp_events_waits(e, r, g.to, add_edge, &g);
        }
}

/* Merges into one event the SEND and RECV of a message without a buffer, and
 * the two actions of a pair. */
static void merge_events(struct pp_events *e)
{
    const struct pp_schedule *s = e->schedule;
    for (size_t x = 0; x < e->n; x++)
        e->event[x] = (uint32_t)x;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i + 1 < s->rows[r].n; i++)
            if (s->rows[r].actions[i].overlap)
                e->event[e->base[r] + i + 1] = (uint32_t)(e->base[r] + i);
    for (size_t at = 0; at < e->fifo->n_messages; at++)
        if (e->depth[e->channel[at]] == 0)
            e->event[action_number(e, &e->fifo->recv[at])] =
                (uint32_t)action_number(e, &e->fifo->send[at]);
}

static int build_graph(struct pp_events *e, struct pp_err *err)
{
    merge_events(e);
    memset(e->first, 0, (e->n + 2) * sizeof *e->first);
    memset(e->left, 0, e->n * sizeof *e->left);
    visit_edges(e, false);
    for (size_t x = 0; x < e->n; x++) {
        if (e->first[x + 2] > PP_NO_EVENT - e->first[x + 1])
            return pp_fail(err, PP_EXIT_SYSTEM, "too many actions to check");
        e->first[x + 2] += e->first[x + 1];
    }
    free(e->next);
    e->next = calloc((size_t)e->first[e->n + 1] + 1, sizeof *e->next);
    if (!e->next)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    visit_edges(e, true);
    return 0;
}

int pp_events_run(struct pp_events *e, const int *depth, struct pp_err *err)
{
    e->depth = depth;
    if (build_graph(e, err))
        return -1;
    uint32_t *queue = calloc(e->n + 1, sizeof *queue);
    size_t n_queued = 0, n_events = 0;
    if (!queue)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t x = 0; x < e->n; x++) {
        bool stands = e->event[x] == x;
        n_events += stands;
        if (stands && e->left[x] == 0)
            queue[n_queued++] = (uint32_t)x;
    }
    for (size_t at = 0; at < n_queued; at++) {
        uint32_t x = queue[at];
        for (size_t i = e->first[x]; i < e->first[x + 1]; i++)
            if (--e->left[e->next[i]] == 0)
                queue[n_queued++] = e->next[i];
    }
    free(queue);
    return n_queued == n_events ? 0 : PP_AGAIN;
}

/* --- the parts that do not change between runs --- */

static int number_actions(struct pp_events *e, struct pp_err *err)
{
    const struct pp_schedule *s = e->schedule;
    e->base = calloc((size_t)s->graph->n_rows + 1, sizeof *e->base);
    if (!e->base)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < s->graph->n_rows; r++)
        e->base[r + 1] = e->base[r] + s->rows[r].n;
    e->n = e->base[s->graph->n_rows];
    if (e->n >= PP_NO_EVENT)
        return pp_fail(err, PP_EXIT_SYSTEM, "too many actions to check");
    return 0;
}

static int index_messages(struct pp_events *e, struct pp_err *err)
{
    const struct pp_fifo *f = e->fifo;
    e->index = calloc(e->n + 1, sizeof *e->index);
    e->channel = calloc(f->n_messages + 1, sizeof *e->channel);
    if (!e->index || !e->channel)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t ch = 0; ch < f->channels.n; ch++)
        for (size_t at = f->first[ch]; at < f->first[ch + 1]; at++) {
            e->channel[at] = (uint32_t)ch;
            e->index[action_number(e, &f->send[at])] = at;
            e->index[action_number(e, &f->recv[at])] = at;
        }
    return 0;
}

static int index_cells(struct pp_events *e, struct pp_err *err)
{
    const struct pp_schedule *s = e->schedule;
    size_t n_made, n_received;
    if (e->streams == PP_STREAM_PROGRAM)
        return 0;
    if (pp_cells_init(&e->cells, s, err) ||
        pp_mul(e->cells.n_cells, 2, &n_made, err) ||
        pp_mul(e->cells.n_links, 2, &n_received, err))
        return -1;
    e->made = calloc(n_made + 1, sizeof *e->made);
    e->received = calloc(n_received + 1, sizeof *e->received);
    if (!e->made || !e->received)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            uint32_t x = (uint32_t)(e->base[r] + i);
            if (a.op == PP_F || a.op == PP_B || a.op == PP_I)
                e->made[made_at(e, a)] = x;
            else if (pp_is_recv(a.op))
                e->received[received_at(e, a.stage, a.peer, a.op, a)] = x;
        }
    return 0;
}

int pp_events_init(struct pp_events *e, const struct pp_schedule *s,
                   const struct pp_fifo *f, enum pp_streams streams,
                   struct pp_err *err)
{
    *e = (struct pp_events){.schedule = s, .fifo = f, .streams = streams};
    e->n_streams = (size_t)s->graph->n_rows + 2 * f->channels.n;
    if (e->n_streams < 2 * (size_t)s->graph->n_rows)
        e->n_streams = 2 * (size_t)s->graph->n_rows;
    if (number_actions(e, err) || index_messages(e, err) ||
        index_cells(e, err)) {
        pp_events_finish(e);
        return -1;
    }
    e->event = calloc(e->n + 1, sizeof *e->event);
    e->left = calloc(e->n + 1, sizeof *e->left);
    e->first = calloc(e->n + 2, sizeof *e->first);
    e->last = calloc(e->n_streams + 1, sizeof *e->last);
    if (e->event && e->left && e->first && e->last)
        return 0;
    pp_events_finish(e);
    return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

void pp_events_finish(struct pp_events *e)
{
    free(e->base);
    free(e->index);
    free(e->channel);
    free(e->event);
    free(e->left);
    free(e->made);
    free(e->received);
    free(e->first);
    free(e->next);
    free(e->last);
    if (e->cells.first_edge)
        pp_cells_finish(&e->cells);
    *e = (struct pp_events){0};
}
