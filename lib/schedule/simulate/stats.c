/* SPDX-License-Identifier: MIT */
/* Figures read off the spans of a run: messages, idle times, traffic and memory
 * timelines. */
#include "schedule/simulate/sim.h"

#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "schedule/ir/deps.h"

/* The positions of compute actions and receives in their rows. */
struct places {
    struct pp_completion compute; /* numbers are positions in the row */
    size_t *recv;                 /* by link and direction */
};

/* Returns the position of the RECV of a SEND or RECV. */
static size_t *recv_at(const struct places *p, struct pp_action a)
{
    struct pp_action send = pp_is_send(a.op) ? a : pp_other_end(a);
    bool backward = send.op == PP_SEND_B;
    int from = backward ? send.peer : send.stage;
    int to = backward ? send.stage : send.peer;
    size_t link = pp_link(&p->compute.cells, from, to, a.microbatch, a.slice);
    return &p->recv[2 * link + backward];
}

static void init_places(struct places *p, const struct pp_schedule *s)
{
    pp_completion_init(&p->compute, s);
    p->recv = pp_realloc(NULL, p->compute.cells.n_links, 2 * sizeof *p->recv);
}

static void finish_places(struct places *p)
{
    free(p->recv);
    pp_completion_finish(&p->compute);
}

static void note_row(struct places *p, const struct pp_row *list)
{
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (pp_is_compute(a.op))
            pp_completion_set(&p->compute, a, i);
        else if (pp_is_recv(a.op))
            *recv_at(p, a) = i;
    }
}

static size_t compute_at(const struct places *p, struct pp_action a, int stage,
                         enum pp_op op)
{
    return pp_completion_get(&p->compute, stage, a.microbatch, a.slice,
                             1u << op);
}

/* Returns the op that consumes the message of a SEND. */
static enum pp_op consumer_op(const struct pp_graph *g, struct pp_action send)
{
    if (send.op == PP_SEND_F)
        return PP_F;
    return g->stages[send.peer].input_grad ? PP_I : PP_W;
}

/* Returns the end of the producer; an overlap pair ends as a whole. */
static double producer_end(const struct pp_schedule *s,
                           const struct pp_sim_row *rows,
                           const struct pp_message *m)
{
    size_t i = m->producer;
    return rows[m->from].spans[i + s->rows[m->from].actions[i].overlap].end;
}

/* Returns the end of the work before the consumer, which waits from then on. */
static double wait_begins(const struct pp_schedule *s,
                          const struct pp_sim_row *rows,
                          const struct pp_message *m)
{
    const struct pp_row *list = &s->rows[m->to];
    size_t i = m->consumer - pp_is_second_of_pair(list, m->consumer);
    while (i > 0 && pp_is_recv(list->actions[i - 1].op))
        i--;
    return i > 0 ? rows[m->to].spans[i - 1].end : 0;
}

/* Sets the times of a message as the players of pp_simulate do (see sim.c). */
static void set_times(const struct pp_schedule *s,
                      const struct pp_sim_row *rows,
                      const struct pp_costs *costs, int depth,
                      struct pp_message *m)
{
    const struct pp_span *send = &rows[m->from].spans[m->send];
    if (!costs) {
        m->leaves = send->start;
        m->waits = rows[m->to].spans[m->recv].start;
        m->arrives = rows[m->to].spans[m->recv].end;
        return;
    }
    double time = costs->time(costs->ctx, m->action);
    m->leaves = depth == INT_MAX ? producer_end(s, rows, m)
                : depth == 0     ? send->end - time
                                 : send->end;
    m->arrives = m->leaves + time;
    m->waits = wait_begins(s, rows, m);
}

void pp_messages_find(const struct pp_schedule *s,
                      const struct pp_sim_row *rows,
                      const struct pp_costs *costs, int depth,
                      struct pp_messages *m)
{
    struct places p = {0};
    const struct pp_graph *g = s->graph;
    *m = (struct pp_messages){0};
    m->at = pp_calloc(pp_schedule_count(s, PP_SEND_OPS) + 1, sizeof *m->at);
    init_places(&p, s);
    for (int r = 0; r < g->n_rows; r++)
        note_row(&p, &s->rows[r]);
    for (int r = 0; r < g->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (!pp_is_send(a.op))
                continue;
            struct pp_message *k = &m->at[m->n++];
            *k = (struct pp_message){.action = a, .from = r, .send = i};
            k->to = g->stages[a.peer].row;
            k->recv = *recv_at(&p, a);
            k->producer =
                compute_at(&p, a, a.stage, a.op == PP_SEND_F ? PP_F : PP_I);
            k->consumer = compute_at(&p, a, a.peer, consumer_op(g, a));
            set_times(s, rows, costs, depth, k);
        }
    finish_places(&p);
}

void pp_messages_finish(struct pp_messages *m)
{
    free(m->at);
    *m = (struct pp_messages){0};
}

struct pp_idle pp_idle_of(const struct pp_sim *sim, int row)
{
    const struct pp_sim_row *r = &sim->rows[row];
    struct pp_idle idle = {0};
    double end = 0;
    bool begun = false;
    for (size_t i = 0; i < r->n; i++) {
        const struct pp_span *s = &r->spans[i];
        if (!pp_is_compute(s->action.op))
            continue;
        double *why = !begun                 ? &idle.fill
                      : s->action.op == PP_F ? &idle.wait_forward
                                             : &idle.wait_backward;
        *why += s->start - end;
        end = s->end;
        begun = true;
    }
    *(begun ? &idle.drain : &idle.fill) += sim->makespan - end;
    return idle;
}

void pp_traffic(const struct pp_schedule *s, const struct pp_costs *costs,
                struct pp_channel_traffic **at, size_t *n)
{
    struct pp_channels c;
    *n = 0;
    pp_channels_init(&c, s->graph);
    *at = pp_calloc(c.n + 1, sizeof **at);
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (!pp_is_send(a.op))
                continue;
            int peer = s->graph->stages[a.peer].row;
            struct pp_channel_traffic *t =
                &(*at)[pp_channel_of(&c, a, r, peer)];
            t->messages++;
            t->time += costs->time(costs->ctx, a);
        }
    for (size_t i = 0; i < c.n; i++) {
        if ((*at)[i].messages == 0)
            continue;
        (*at)[i].from = c.at[i].from;
        (*at)[i].to = c.at[i].to;
        (*at)[i].backward = c.at[i].backward;
        (*at)[(*n)++] = (*at)[i];
    }
    pp_channels_finish(&c);
}

/* Allocates room for the first level and two levels per action. */
static void init_timeline(struct pp_memory_timeline *c, size_t n_actions)
{
    *c = (struct pp_memory_timeline){
        .at = pp_calloc(2 * n_actions + 1, sizeof *c->at)};
    c->at[c->n++] = (struct pp_level){0, 0};
}

static void add_level(struct pp_memory_timeline *c, double time, double value)
{
    if (value == c->at[c->n - 1].value)
        return;
    c->at[c->n++] = (struct pp_level){time, value};
    if (value > c->peak) {
        c->peak = value;
        c->peak_time = time;
    }
}

/* Returns when a row goes on behind a copy: an OFFLOAD frees its memory at its
 * end, and a RELOAD takes it at once. */
static double copy_end(const struct pp_span *s, double now)
{
    return s->action.op == PP_OFFLOAD && s->end > now ? s->end : now;
}

void pp_memory_timeline_slots(const struct pp_graph *g,
                              const struct pp_row *list,
                              const struct pp_span *spans,
                              struct pp_memory_timeline *c)
{
    bool trains = false;
    double live = 0; /* parts of microbatches */
    init_timeline(c, list->n);
    for (size_t i = 0; i < list->n && !trains; i++)
        trains = pp_is_compute(list->actions[i].op) &&
                 pp_ends_backward(g, list->actions[i]);
    double now = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        double own = (double)pp_slice_own(&g->slices, a.slice);
        if (pp_is_copy(a.op)) {
            now = copy_end(&spans[i], now);
            live += a.op == PP_RELOAD ? own : -own;
            add_level(c, now, live);
        }
        if (!pp_is_compute(a.op))
            continue;
        bool closes = trains ? pp_ends_backward(g, a) : a.op == PP_F;
        double start, end;
        pp_span_piece(spans, i, &start, &end);
        now = end;
        if (a.op == PP_F && (!trains || g->stages[a.stage].has_backward))
            add_level(c, start, live += own);
        if (closes)
            add_level(c, end, live -= own);
    }
    pp_memory_timeline_scale(
        c, 1 / (double)pp_slice_parts(&g->slices, g->slices.n));
}

void pp_memory_timeline_bytes(const struct pp_row *list,
                              const struct pp_span *spans,
                              const struct pp_memory *m,
                              struct pp_memory_timeline *c)
{
    size_t *begun = pp_calloc(list->n + 1, sizeof *begun);
    size_t *ended = pp_calloc(list->n + 1, sizeof *ended), live = 0;
    double now = 0;
    init_timeline(c, list->n);
    for (size_t i = 0; i < m->n; i++) {
        begun[m->buffers[i].first] += m->buffers[i].bytes;
        ended[m->buffers[i].last] += m->buffers[i].bytes;
    }
    for (size_t i = 0; i < list->n; i++) {
        double start, end;
        pp_span_piece(spans, i, &start, &end);
        /* The buffer of a receive is taken when it is posted. A measured span
         * is the wait of a later action. */
        if (pp_is_recv(list->actions[i].op))
            start = end = now;
        if (pp_is_copy(list->actions[i].op))
            start = end = copy_end(&spans[i], now);
        now = end;
        live += begun[i];
        add_level(c, start, (double)live);
        live -= ended[i];
        add_level(c, end, (double)live);
    }
    free(begun);
    free(ended);
}

void pp_memory_timeline_scale(struct pp_memory_timeline *c, double by)
{
    c->peak *= by;
    for (size_t i = 0; i < c->n; i++)
        c->at[i].value *= by;
}

void pp_memory_timeline_finish(struct pp_memory_timeline *c)
{
    free(c->at);
    *c = (struct pp_memory_timeline){0};
}
