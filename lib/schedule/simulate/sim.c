/* SPDX-License-Identifier: MIT */
/* Two players. At a given depth, sends and receives block as the transports'
 * do, and time passes as it would in a run. With unbounded channels a receive
 * is in nobody's way: an action waits for its own inputs only, which is the
 * model of the textbooks and of their closed forms. */
#include "sched/sim.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/num.h"
#include "sched/cells.h"
#include "sched/deps.h"
#include "sched/walk.h"

enum { N_CLASSES = 3 }; /* of completion times: F, I or B, W or B */

/* Of one channel, by place in its FIFO. */
struct traffic {
    double *sent, *received; /* when message k was sent, and received */
    double posted;           /* when the receiver began to wait */
    size_t n_sent, n_posted, n_received;
};

struct clocks {
    struct pp_walk walk;
    struct pp_cells cells;
    const struct pp_costs *costs;
    int depth;
    struct pp_sim *sim;
    double *clock;           /* per rank */
    double *done;            /* unbounded: by cell and class, -1 before */
    struct traffic *traffic; /* per channel */
    double *times;           /* what traffic points into */
    struct pp_action action; /* whose requirements are being visited */
    double ready;
};

double pp_literal_time(const void *ctx, struct pp_action a)
{
    const struct pp_literal_costs *c = ctx;
    bool source = !c->textbook && !pp_is_send(a.op) && a.stage >= 0 &&
                  !c->graph->stages[a.stage].input_grad;
    int n = c->graph->n_slices;
    switch ((enum pp_op)a.op) {
    case PP_F:
        return c->f / n;
    case PP_B:
        return (c->i + c->w) / n;
    case PP_I:
        return source ? 0 : c->i / n;
    case PP_W:
        return (source ? c->i + c->w : c->w) / n;
    case PP_SEND_F:
    case PP_SEND_B:
        return c->comm / n;
    default:
        return 0;
    }
}

static void add_span(struct clocks *c, struct pp_action a, double start,
                     double end)
{
    struct pp_sim_rank *rank = &c->sim->ranks[c->walk.rank];
    rank->spans[rank->n++] = (struct pp_span){a, start, end};
    c->clock[c->walk.rank] = end;
}

/* Where a completion that one of ops gives is kept. */
static int op_class(unsigned ops)
{
    if (ops & 1u << PP_F)
        return 0;
    return ops & 1u << PP_W ? 2 : 1;
}

static double *done_at(const struct clocks *c, size_t cell, unsigned ops)
{
    return &c->done[N_CLASSES * cell + (size_t)op_class(ops)];
}

static void set_done(struct clocks *c, struct pp_action a, double time)
{
    size_t cell = pp_cell(&c->cells, a.stage, a.microbatch, a.slice);
    *done_at(c, cell, 1u << a.op) = time;
    if (a.op == PP_B)
        *done_at(c, cell, 1u << PP_W) = time;
}

/* The time that the message takes which dep's stage sends for action a. */
static double message_time(const struct clocks *c, struct pp_action a,
                           struct pp_dep dep)
{
    a.op = (uint8_t)dep.message;
    a.peer = dep.stage;
    return c->costs->time(c->costs->ctx, pp_other_end(a));
}

static int visit(void *ctx, struct pp_dep dep)
{
    struct clocks *c = ctx;
    size_t cell =
        pp_cell(&c->cells, dep.stage, c->action.microbatch, dep.slice);
    double done = *done_at(c, cell, dep.ops);
    if (done < 0)
        return PP_AGAIN;
    if (dep.message != PP_N_OPS)
        done += message_time(c, c->action, dep);
    c->ready = done > c->ready ? done : c->ready;
    return 0;
}

static bool is_second(const struct clocks *c)
{
    size_t pc = c->walk.pc[c->walk.rank];
    const struct pp_row *row = &c->walk.schedule->rows[c->walk.rank];
    return pc > 0 && row->actions[pc - 1].overlap;
}

/* Of a compute action; in a pair, less its part of what the pair saves. */
static double time_of(const struct clocks *c, struct pp_action a, bool pair)
{
    double time = c->costs->time(c->costs->ctx, a);
    return pair ? time * (1 - c->costs->pair_saving) : time;
}

/* Unbounded channels: raises ready to where a can start and says when it will
 * be done. A pair waits for the inputs of both and is done as a whole. */
static int wait_for_inputs(struct clocks *c, struct pp_action a, double time)
{
    size_t pc = c->walk.pc[c->walk.rank];
    const struct pp_action *here =
        &c->walk.schedule->rows[c->walk.rank].actions[pc];
    c->action = a;
    if (!is_second(c) && pp_deps(c->cells.graph, a, visit, c))
        return PP_AGAIN;
    if (a.overlap) {
        c->action = here[1];
        if (pp_deps(c->cells.graph, here[1], visit, c))
            return PP_AGAIN;
        time += time_of(c, here[1], true);
    }
    set_done(c, a, c->ready + time);
    return 0;
}

static int compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct clocks *c = ctx;
    (void)err;
    double time = time_of(c, a, a.overlap || is_second(c));
    c->ready = c->clock[c->walk.rank];
    if (c->depth == INT_MAX && wait_for_inputs(c, a, time))
        return PP_AGAIN;
    add_span(c, a, c->ready, c->ready + time);
    c->sim->ranks[c->walk.rank].busy += time;
    return 0;
}

static int sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct clocks *c = ctx;
    (void)err;
    double now = c->clock[c->walk.rank];
    add_span(c, a, now, now);
    return 0;
}

/* Sends and receives with unbounded channels: instants of the rank. */
static int pass(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    (void)peer;
    return sync(ctx, a, err);
}

static struct traffic *traffic_of(const struct clocks *c, struct pp_action a,
                                  int peer)
{
    return &c->traffic[pp_channel_of(&c->walk.channels, a, c->walk.rank, peer)];
}

static int send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct clocks *c = ctx;
    struct traffic *t = traffic_of(c, a, peer);
    double now = c->clock[c->walk.rank], start = now;
    double time = c->costs->time(c->costs->ctx, a);
    size_t depth = (size_t)c->depth;
    (void)err;
    if (depth == 0) {
        if (t->n_posted == t->n_sent)
            return PP_AGAIN;
        start = t->posted > now ? t->posted : now;
    } else if (t->n_sent >= depth) {
        if (t->n_received <= t->n_sent - depth)
            return PP_AGAIN;
        double room = t->received[t->n_sent - depth];
        start = room > now ? room : now;
    }
    t->sent[t->n_sent++] = start + time; /* when it arrives */
    add_span(c, a, now, depth == 0 ? start + time : start);
    return 0;
}

static int recv(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct clocks *c = ctx;
    struct traffic *t = traffic_of(c, a, peer);
    double now = c->clock[c->walk.rank];
    (void)err;
    t->posted = now;
    t->n_posted = t->n_received + 1;
    if (t->n_sent == t->n_received)
        return PP_AGAIN;
    double arrival = t->sent[t->n_received];
    double end = arrival > now ? arrival : now;
    t->received[t->n_received++] = end;
    add_span(c, a, now, end);
    return 0;
}

/* Room for every channel's messages, counted on its sends. */
static int init_traffic(struct clocks *c, const struct pp_schedule *s,
                        struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    size_t *count = calloc(c->walk.channels.n + 1, sizeof *count);
    c->traffic = calloc(c->walk.channels.n + 1, sizeof *c->traffic);
    c->times = calloc(2 * c->sim->n_messages + 1, sizeof *c->times);
    if (!count || !c->traffic || !c->times) {
        free(count);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    for (int r = 0; r < g->n_ranks; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (pp_is_send(a.op))
                count[pp_channel_of(&c->walk.channels, a, r,
                                    g->stages[a.peer].rank)]++;
        }
    double *next = c->times;
    for (size_t ch = 0; ch < c->walk.channels.n; ch++) {
        c->traffic[ch].sent = next;
        c->traffic[ch].received = next + count[ch];
        next += 2 * count[ch];
    }
    free(count);
    return 0;
}

static int init_done(struct clocks *c, struct pp_err *err)
{
    size_t n, bytes;
    if (pp_mul(c->cells.n_cells, N_CLASSES, &n, err) ||
        pp_mul(n, sizeof *c->done, &bytes, err))
        return -1;
    c->done = malloc(bytes);
    if (!c->done)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        c->done[i] = -1;
    return 0;
}

static int init_sim(struct pp_sim *sim, const struct pp_schedule *s,
                    struct pp_err *err)
{
    *sim = (struct pp_sim){.n_ranks = s->graph->n_ranks};
    sim->ranks = calloc((size_t)sim->n_ranks, sizeof *sim->ranks);
    if (!sim->ranks)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < sim->n_ranks; r++) {
        const struct pp_row *row = &s->rows[r];
        sim->ranks[r].spans = calloc(row->n + 1, sizeof(struct pp_span));
        if (!sim->ranks[r].spans)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        for (size_t i = 0; i < row->n; i++)
            sim->n_messages += pp_is_send(row->actions[i].op);
    }
    return 0;
}

static void sum_up(struct pp_sim *sim)
{
    double busy = 0;
    for (int r = 0; r < sim->n_ranks; r++) {
        const struct pp_sim_rank *rank = &sim->ranks[r];
        double first = -1, last = 0;
        for (size_t i = 0; i < rank->n; i++) {
            if (!pp_is_compute(rank->spans[i].action.op))
                continue;
            if (first < 0)
                first = rank->spans[i].start;
            last = rank->spans[i].end;
        }
        busy += rank->busy;
        if (last > sim->makespan)
            sim->makespan = last;
        if (first >= 0 && last - first > sim->span)
            sim->span = last - first;
    }
    if (sim->makespan > 0)
        sim->bubble = 1 - busy / (sim->n_ranks * sim->makespan);
}

static int play(struct clocks *c, const struct pp_schedule *s,
                struct pp_err *err)
{
    static const struct pp_player bounded = {compute, send, recv, sync};
    static const struct pp_player unbounded = {compute, pass, pass, sync};
    bool free_channels = c->depth == INT_MAX;
    if (pp_walk_init(&c->walk, s, err) || pp_cells_init(&c->cells, s, err) ||
        (free_channels ? init_done(c, err) : init_traffic(c, s, err)))
        return -1;
    c->clock = calloc((size_t)c->sim->n_ranks, sizeof *c->clock);
    if (!c->clock)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = pp_walk(&c->walk, free_channels ? &unbounded : &bounded, c, err);
    if (rc == PP_AGAIN)
        return pp_fail(
            err, PP_EXIT_NO,
            "the schedule does not reach its end at channel depth %d",
            c->depth);
    return rc;
}

int pp_simulate(const struct pp_schedule *s, const struct pp_costs *costs,
                int depth, struct pp_sim *sim, struct pp_err *err)
{
    struct clocks c = {.costs = costs, .depth = depth, .sim = sim};
    int rc = init_sim(sim, s, err);
    if (!rc)
        rc = play(&c, s, err);
    if (rc)
        pp_sim_finish(sim);
    else
        sum_up(sim);
    free(c.clock);
    free(c.done);
    free(c.traffic);
    free(c.times);
    pp_cells_finish(&c.cells);
    pp_walk_finish(&c.walk);
    return rc;
}

void pp_sim_finish(struct pp_sim *sim)
{
    if (sim->ranks)
        for (int r = 0; r < sim->n_ranks; r++)
            free(sim->ranks[r].spans);
    free(sim->ranks);
    *sim = (struct pp_sim){0};
}

void pp_span_piece(const struct pp_span *spans, size_t i, double *start,
                   double *end)
{
    size_t first = i > 0 && spans[i - 1].action.overlap ? i - 1 : i;
    *start = spans[first].start;
    *end = spans[first].end;
    if (!spans[first].action.overlap)
        return;
    *start = fmin(*start, spans[first + 1].start);
    *end = fmax(*end, spans[first + 1].end);
}

/* Of the two of a pair, the time in which both run counts once. */
double pp_sim_busy(const struct pp_sim_rank *r)
{
    double busy = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct pp_span *s = &r->spans[i];
        if (!pp_is_compute(s->action.op))
            continue;
        busy += s->end - s->start;
        if (s->action.overlap)
            busy -=
                fmax(fmin(s->end, s[1].end) - fmax(s->start, s[1].start), 0);
    }
    return busy;
}
