/* SPDX-License-Identifier: MIT */
/* sched_ticks - a simulation of a schedule that looks at every rank and channel
 * at every whole unit of time, for the schedule tests. It uses no code of the
 * simulator, and costs must be whole numbers.
 *
 * A header with definitions, like tap.h: each test program includes it once. */
#ifndef PP_TESTS_SCHED_TICKS_H
#define PP_TESTS_SCHED_TICKS_H

#include "schedule/ir/deps.h"
#include "sched_fixture.h"

enum { TICK_RANKS = 32, TICK_LIMIT = 1 << 20 };

/* A message from its SEND on. */
struct tick_message {
    struct pp_action send;
    int from, to, arrival;
    bool posted; /* its receive is posted or, if strict, begun */
    bool left;   /* its channel */
};

struct ticks {
    const struct pp_schedule *s;
    const struct pp_costs *costs;
    bool strict; /* a receive waits in its place */
    struct tick_message *sent;
    int n, now, busy[TICK_RANKS];
    /* Receives that were posted before their SEND, per rank and position. */
    bool *waiting[TICK_RANKS];
    size_t pc[TICK_RANKS];
    /* Two copy engines for each rank: the place of the OFFLOAD to look at
     * next, and until when they copy. */
    size_t out_at[TICK_RANKS];
    int out_busy[TICK_RANKS], in_busy[TICK_RANKS];
    struct pp_span *spans[TICK_RANKS];
};

static bool on_channel(const struct tick_message *m, int from, int to,
                       bool backward)
{
    return m->from == from && m->to == to &&
           (m->send.op == PP_SEND_B) == backward;
}

static bool same_message(struct pp_action send, struct pp_action recv)
{
    struct pp_action want = pp_other_end(send);
    return want.op == recv.op && want.stage == recv.stage &&
           want.peer == recv.peer && want.microbatch == recv.microbatch &&
           want.slice == recv.slice;
}

static struct tick_message *tick_find(struct ticks *w, struct pp_action recv)
{
    for (int i = 0; i < w->n; i++)
        if (same_message(w->sent[i].send, recv))
            return &w->sent[i];
    return NULL;
}

/* Returns the position of a rank's RECV of a message. */
static size_t tick_place(const struct ticks *w, int row, struct pp_action send)
{
    size_t i = 0;
    while (!same_message(send, w->s->rows[row].actions[i]))
        i++;
    return i;
}

/* A message leaves its channel if it is there and taken, after all before it.
 */
static bool tick_leave(struct ticks *w)
{
    bool moved = false;
    for (int i = 0; i < w->n && !w->strict; i++) {
        struct tick_message *m = &w->sent[i];
        bool first = !m->left && m->posted && m->arrival <= w->now;
        for (int k = 0; k < i && first; k++)
            first = w->sent[k].left || !on_channel(&w->sent[k], m->from, m->to,
                                                   m->send.op == PP_SEND_B);
        m->left |= first;
        moved |= first;
    }
    return moved;
}

static bool tick_send(struct ticks *w, int row, struct pp_action a, int time)
{
    int to = w->s->graph->stages[a.peer].row, in = 0;
    for (int i = 0; i < w->n; i++)
        in += !w->sent[i].left &&
              on_channel(&w->sent[i], row, to, a.op == PP_SEND_B);
    bool posted = w->waiting[to][tick_place(w, to, a)];
    if (w->s->channel_depth > 0 ? in >= w->s->channel_depth : !posted)
        return false;
    w->sent[w->n++] = (struct tick_message){.send = a,
                                            .from = row,
                                            .to = to,
                                            .arrival = w->now + time,
                                            .posted = posted};
    if (w->s->channel_depth == 0)
        w->busy[row] = w->now + time;
    return true;
}

/* Posts the receive at a place, once. */
static bool tick_post(struct ticks *w, int row, size_t place)
{
    bool *waiting = &w->waiting[row][place];
    struct tick_message *m = tick_find(w, w->s->rows[row].actions[place]);
    if (*waiting)
        return false;
    *waiting = true;
    if (m)
        m->posted = true;
    return true;
}

/* Posts the receives behind a compute action when its row comes to it. */
static bool tick_post_early(struct ticks *w, int row)
{
    const struct pp_row *list = &w->s->rows[row];
    size_t i = w->pc[row] + 1 + list->actions[w->pc[row]].overlap;
    bool moved = false;
    for (; i < list->n && !w->strict; i++) {
        enum pp_op op = list->actions[i].op;
        if (op != PP_SEND_F && op != PP_SEND_B && op != PP_RECV_F &&
            op != PP_RECV_B)
            break;
        if (op == PP_RECV_F || op == PP_RECV_B)
            moved |= tick_post(w, row, i);
    }
    return moved;
}

static bool tick_recv(struct ticks *w, struct pp_action a)
{
    struct tick_message *m = tick_find(w, a);
    if (w->strict && (!m || m->arrival > w->now))
        return false;
    if (w->strict)
        m->left = true;
    return true;
}

struct tick_needs {
    struct ticks *w;
    struct pp_action action;
};

/* Returns 1 if a message that the action reads is not there. */
static int tick_lacks(void *ctx, struct pp_dep dep)
{
    struct tick_needs *k = ctx;
    struct pp_action recv = k->action;
    if (dep.message == PP_N_OPS)
        return 0;
    recv.op = (uint8_t)dep.message;
    recv.peer = dep.stage;
    struct tick_message *m = tick_find(k->w, recv);
    return !m || m->arrival > k->w->now;
}

static bool tick_has_inputs(struct ticks *w, struct pp_action a)
{
    struct tick_needs k = {w, a};
    return w->strict || !pp_deps(w->s->graph, a, tick_lacks, &k);
}

/* Returns the place of an action of a's cell with one of ops, or the row's end.
 */
static size_t tick_cell(const struct ticks *w, int row, struct pp_action a,
                        unsigned ops)
{
    const struct pp_row *list = &w->s->rows[row];
    size_t i = 0;
    for (; i < list->n; i++) {
        struct pp_action b = list->actions[i];
        if (ops & 1u << b.op && b.stage == a.stage &&
            b.microbatch == a.microbatch && b.slice == a.slice)
            break;
    }
    return i;
}

/* Starts the next OFFLOAD of a rank as soon as its forward has ended and the
 * copy before has. */
static bool tick_offload(struct ticks *w, int row)
{
    const struct pp_row *list = &w->s->rows[row];
    size_t *at = &w->out_at[row];
    while (*at < list->n && list->actions[*at].op != PP_OFFLOAD)
        ++*at;
    if (*at == list->n || w->out_busy[row] > w->now)
        return false;
    struct pp_action a = list->actions[*at];
    size_t f = tick_cell(w, row, a, 1u << PP_F);
    f += list->actions[f].overlap;
    if (w->pc[row] <= f || w->spans[row][f].end > w->now)
        return false;
    w->out_busy[row] = w->now + (int)w->costs->time(w->costs->ctx, a);
    w->spans[row][*at] = (struct pp_span){a, w->now, w->out_busy[row]};
    ++*at;
    return true;
}

/* A rank passes an OFFLOAD when the copy has ended, and a RELOAD at once. */
static bool tick_copy(struct ticks *w, int row, struct pp_action a)
{
    size_t i = w->pc[row];
    if (a.op == PP_OFFLOAD)
        return w->out_at[row] > i && w->spans[row][i].end <= w->now;
    int start = w->in_busy[row] > w->now ? w->in_busy[row] : w->now;
    w->in_busy[row] = start + (int)w->costs->time(w->costs->ctx, a);
    w->spans[row][i] = (struct pp_span){a, start, w->in_busy[row]};
    return true;
}

/* Reports if the activations of an action are not back. */
static bool tick_is_away(const struct ticks *w, int row, struct pp_action a)
{
    size_t i = tick_cell(w, row, a, 1u << PP_RELOAD);
    return a.op != PP_F && i < w->s->rows[row].n &&
           (w->pc[row] <= i || w->spans[row][i].end > w->now);
}

/* Posts the next receive of an idle rank, or starts its next action if it can
 * start. */
static bool tick_row(struct ticks *w, int row)
{
    const struct pp_row *list = &w->s->rows[row];
    size_t i = w->pc[row];
    if (w->busy[row] > w->now || i == list->n)
        return false;
    struct pp_action a = list->actions[i];
    if (pp_is_copy(a.op)) {
        bool passes = tick_copy(w, row, a);
        w->pc[row] += passes;
        return passes;
    }
    bool pair = a.overlap || pp_is_second_of_pair(list, i);
    if (pp_is_compute(a.op) && !pp_is_second_of_pair(list, i) &&
        tick_post_early(w, row))
        return true;
    double cost = w->costs->time(w->costs->ctx, a);
    int time = (int)(pair ? cost * (1 - w->costs->pair_saving) : cost);
    if (pp_is_compute(a.op) && !pp_is_second_of_pair(list, i) &&
        (tick_is_away(w, row, a) ||
         (a.overlap && tick_is_away(w, row, list->actions[i + 1]))))
        return false;
    if (w->spans[row][i].start < 0)
        w->spans[row][i] = (struct pp_span){a, w->now, w->now};
    if (pp_is_recv(a.op) && tick_post(w, row, i))
        return true;
    if (pp_is_send(a.op) ? !tick_send(w, row, a, time)
        : pp_is_recv(a.op)
            ? !tick_recv(w, a)
            : pp_is_compute(a.op) && !pp_is_second_of_pair(list, i) &&
                  (!tick_has_inputs(w, a) ||
                   (a.overlap && !tick_has_inputs(w, list->actions[i + 1]))))
        return false;
    if (pp_is_compute(a.op)) {
        w->spans[row][i].start = w->now;
        w->busy[row] = w->now + time;
    }
    bool rendezvous = pp_is_send(a.op) && w->s->channel_depth == 0;
    w->spans[row][i].end =
        pp_is_compute(a.op) || rendezvous ? w->busy[row] : w->now;
    w->pc[row]++;
    return true;
}

static bool tick_ended(const struct ticks *w)
{
    for (int r = 0; r < w->s->graph->n_rows; r++)
        if (w->pc[r] < w->s->rows[r].n)
            return false;
    return true;
}

/* Plays s at its depth. Returns true if every rank reaches its end; spans then
 * has the spans of every rank, which the caller frees. */
static bool tick_run(const struct pp_schedule *s, const struct pp_costs *costs,
                     bool strict, struct pp_span *spans[TICK_RANKS])
{
    struct ticks w = {.s = s, .costs = costs, .strict = strict};
    size_t n = 1;
    for (int r = 0; r < s->graph->n_rows; r++) {
        w.waiting[r] = calloc(s->rows[r].n + 1, sizeof *w.waiting[r]);
        spans[r] = w.spans[r] = calloc(s->rows[r].n + 1, sizeof *spans[r]);
        for (size_t i = 0; i < s->rows[r].n; i++)
            spans[r][i].start = -1;
        n += s->rows[r].n;
    }
    w.sent = calloc(n, sizeof *w.sent);
    for (; !tick_ended(&w) && w.now < TICK_LIMIT; w.now++)
        for (bool moved = true; moved;) {
            moved = tick_leave(&w);
            for (int r = 0; r < s->graph->n_rows; r++)
                while (tick_offload(&w, r) || tick_row(&w, r))
                    moved = true;
        }
    bool ended = tick_ended(&w);
    for (int r = 0; r < s->graph->n_rows; r++)
        free(w.waiting[r]);
    free(w.sent);
    return ended;
}

#endif
