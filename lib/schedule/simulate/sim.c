/* SPDX-License-Identifier: MIT */
/* The three players of the simulator. At a given depth a send blocks as those
 * of the transports do, and a receive is posted: the action that reads the
 * message waits for it, as in a run. If strict, the receive itself waits, as
 * the checker has it. With unbounded channels an action waits only for its own
 * inputs, which is the model of the textbooks and their closed forms. */
#include "schedule/simulate/sim.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/num.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"
#include "schedule/simulate/message_clocks.h"

struct sim_run {
    struct pp_walk walk;
    const struct pp_costs *costs;
    int depth;
    struct pp_sim *sim;
    double *clock;   /* per row */
    double *reduced; /* per row: end of its collectives */
    double *whole;   /* per stage: end of the last gathering of its weights */
    struct pp_message_clocks messages; /* at a depth only */
    bool posts; /* a receive does not wait in its place */
    /* Unbounded channels only: the end of each compute action, by its number in
     * done. */
    struct pp_completion done;
    double *ends;
    size_t n_ends;
    double ready; /* latest end of the visited requirements, or arrival of the
                     messages */
};

double pp_literal_time(const void *ctx, struct pp_action a)
{
    const struct pp_literal_costs *c = ctx;
    bool source = !c->textbook && !pp_is_send(a.op) && a.stage >= 0 &&
                  !c->graph->stages[a.stage].input_grad;
    int n = c->graph->n_slices;
    bool frozen = pp_is_compute(a.op) && c->graph->stages[a.stage].frozen;
    double w = frozen ? 0 : c->w;
    if (frozen && source && a.op != PP_F)
        return 0;
    switch ((enum pp_op)a.op) {
    case PP_F:
        return c->f / n;
    case PP_B:
        return (c->i + w) / n;
    case PP_I:
        return source ? 0 : c->i / n;
    case PP_W:
        return (source ? c->i + w : w) / n;
    case PP_SEND_F:
    case PP_SEND_B:
        return c->comm / n;
    case PP_REDUCE_GRAD:
        return c->reduce;
    case PP_UNSHARD:
        return c->unshard;
    default:
        return 0;
    }
}

/* Adds a span beside the work of the row. */
static void add_beside(struct sim_run *c, struct pp_action a, double start,
                       double end)
{
    struct pp_sim_row *row = &c->sim->rows[c->walk.row];
    row->spans[row->n++] = (struct pp_span){a, start, end};
}

static void add_span(struct sim_run *c, struct pp_action a, double start,
                     double end)
{
    add_beside(c, a, start, end);
    c->clock[c->walk.row] = end;
}

/* Returns the time of the message that dep's stage sends for action a. */
static double message_time(const struct sim_run *c, struct pp_action a,
                           struct pp_dep dep)
{
    a.op = (uint8_t)dep.message;
    a.peer = dep.stage;
    return c->costs->time(c->costs->ctx, pp_other_end(a));
}

static int await_end(void *ctx, struct pp_action a, struct pp_dep dep,
                     size_t number)
{
    struct sim_run *c = ctx;
    double end = c->ends[number];
    if (dep.message != PP_N_OPS)
        end += message_time(c, a, dep);
    c->ready = end > c->ready ? end : c->ready;
    return 0;
}

/* Returns the time of a compute action, in a pair less its part of the pair's
 * saving. */
static double time_of(const struct sim_run *c, struct pp_action a, bool pair)
{
    double time = c->costs->time(c->costs->ctx, a);
    return pair ? time * (1 - c->costs->pair_saving) : time;
}

/* Raises ready to the start of a with unbounded channels, and records its end.
 * A pair waits for the inputs of both actions and ends as a whole. */
static int wait_for_inputs(struct sim_run *c, const struct pp_action *a,
                           bool second, double time)
{
    if (!second && pp_completion_visit(&c->done, a, await_end, c))
        return PP_AGAIN;
    if (a->overlap)
        time += time_of(c, a[1], true);
    pp_completion_set(&c->done, *a, c->n_ends);
    c->ends[c->n_ends++] = c->ready + time;
    return 0;
}

/* Raises ready to the arrival of the messages that a waits for. A pair waits
 * for those of both actions. */
static int wait_for_messages(struct sim_run *c, const struct pp_action *a)
{
    if (pp_message_await(&c->messages, a[0], &c->ready))
        return PP_AGAIN;
    return a->overlap ? pp_message_await(&c->messages, a[1], &c->ready) : 0;
}

static int play_compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct sim_run *c = ctx;
    const struct pp_row *row = &c->walk.schedule->rows[c->walk.row];
    size_t pc = c->walk.pc[c->walk.row];
    bool second = pp_is_second_of_pair(row, pc);
    (void)err;
    double time = time_of(c, a, a.overlap || second);
    c->ready = fmax(c->clock[c->walk.row], c->whole[a.stage]);
    if (a.overlap)
        c->ready = fmax(c->ready, c->whole[row->actions[pc + 1].stage]);
    if (c->depth == INT_MAX &&
        wait_for_inputs(c, &row->actions[pc], second, time))
        return PP_AGAIN;
    if (c->posts && !second && wait_for_messages(c, &row->actions[pc]))
        return PP_AGAIN;
    add_span(c, a, c->ready, c->ready + time);
    c->sim->rows[c->walk.row].busy += time;
    return 0;
}

static int play_instant(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct sim_run *c = ctx;
    (void)err;
    double now = c->clock[c->walk.row];
    add_span(c, a, now, now);
    return 0;
}

/* Plays a send or receive with unbounded channels, which takes no time. */
static int play_message_instant(void *ctx, struct pp_action a, int peer,
                                struct pp_err *err)
{
    (void)peer;
    return play_instant(ctx, a, err);
}

static int play_sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct sim_run *c = ctx;
    double *clock = &c->clock[c->walk.row];
    double *reduced = &c->reduced[c->walk.row];
    if (!pp_is_collective(a.op)) {
        /* These syncs need the sums; weights need not wait here. */
        if (!pp_has_stage(a.op))
            *clock = fmax(*clock, *reduced);
        return play_instant(ctx, a, err);
    }
    double start = fmax(*clock, *reduced);
    *reduced = start + c->costs->time(c->costs->ctx, a);
    if (a.op == PP_UNSHARD)
        c->whole[a.stage] = *reduced;
    if (c->costs->reduce_beside)
        add_beside(c, a, start, *reduced);
    else
        add_span(c, a, start, *reduced);
    return 0;
}

static int play_send(void *ctx, struct pp_action a, int peer,
                     struct pp_err *err)
{
    struct sim_run *c = ctx;
    double now = c->clock[c->walk.row], end;
    size_t channel = pp_channel_of(&c->walk.channels, a, c->walk.row, peer);
    double time = c->costs->time(c->costs->ctx, a);
    (void)err;
    if (pp_message_send(&c->messages, a, channel, now, time, &end))
        return PP_AGAIN;
    add_span(c, a, now, end);
    return 0;
}

static int play_recv(void *ctx, struct pp_action a, int peer,
                     struct pp_err *err)
{
    struct sim_run *c = ctx;
    double now = c->clock[c->walk.row], end = now;
    size_t channel = pp_channel_of(&c->walk.channels, a, c->walk.row, peer);
    (void)err;
    if (c->posts)
        pp_message_post(&c->messages, channel, now);
    else if (pp_message_receive(&c->messages, channel, now, &end))
        return PP_AGAIN;
    add_span(c, a, now, end);
    return 0;
}

static int init_done(struct sim_run *c, const struct pp_schedule *s,
                     struct pp_err *err)
{
    if (pp_completion_init(&c->done, s, err))
        return -1;
    c->ends = calloc(pp_schedule_n_compute(s) + 1, sizeof *c->ends);
    return c->ends ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

static int init_sim(struct pp_sim *sim, const struct pp_schedule *s,
                    struct pp_err *err)
{
    *sim = (struct pp_sim){.n_rows = s->graph->n_rows};
    sim->rows = calloc((size_t)sim->n_rows, sizeof *sim->rows);
    if (!sim->rows)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < sim->n_rows; r++) {
        const struct pp_row *list = &s->rows[r];
        sim->rows[r].spans = calloc(list->n + 1, sizeof(struct pp_span));
        if (!sim->rows[r].spans)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        for (size_t i = 0; i < list->n; i++)
            sim->n_messages += pp_is_send(list->actions[i].op);
    }
    return 0;
}

static void sum_rows(struct pp_sim *sim)
{
    double busy = 0;
    for (int r = 0; r < sim->n_rows; r++) {
        const struct pp_sim_row *row = &sim->rows[r];
        double first = -1, last = 0;
        for (size_t i = 0; i < row->n; i++) {
            if (pp_is_collective(row->spans[i].action.op))
                last = fmax(last, row->spans[i].end);
            if (!pp_is_compute(row->spans[i].action.op))
                continue;
            if (first < 0)
                first = row->spans[i].start;
            last = fmax(last, row->spans[i].end);
        }
        busy += row->busy;
        if (last > sim->makespan)
            sim->makespan = last;
        if (first >= 0 && last - first > sim->span)
            sim->span = last - first;
    }
    if (sim->makespan > 0)
        sim->bubble = 1 - busy / (sim->n_rows * sim->makespan);
}

static int play_schedule(struct sim_run *c, const struct pp_schedule *s,
                         struct pp_err *err)
{
    static const struct pp_player bounded = {play_compute, play_send, play_recv,
                                             play_sync};
    static const struct pp_player unbounded = {
        play_compute, play_message_instant, play_message_instant, play_sync};
    bool free_channels = c->depth == INT_MAX;
    if (pp_walk_init(&c->walk, s, err) ||
        (free_channels
             ? init_done(c, s, err)
             : pp_message_clocks_init(&c->messages, s, &c->walk.channels,
                                      c->depth, err)))
        return -1;
    c->clock = calloc((size_t)c->sim->n_rows, sizeof *c->clock);
    c->reduced = calloc((size_t)c->sim->n_rows, sizeof *c->reduced);
    c->whole = calloc((size_t)s->graph->n_stages, sizeof *c->whole);
    if (!c->clock || !c->reduced || !c->whole)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = pp_walk(&c->walk, free_channels ? &unbounded : &bounded, c, err);
    if (rc == PP_AGAIN)
        return pp_fail(err, PP_EXIT_NO,
                       "the schedule deadlocks at channel depth %d", c->depth);
    return rc;
}

static int simulate(struct sim_run *c, const struct pp_schedule *s,
                    struct pp_err *err)
{
    int rc = init_sim(c->sim, s, err);
    if (!rc)
        rc = play_schedule(c, s, err);
    if (rc)
        pp_sim_finish(c->sim);
    else
        sum_rows(c->sim);
    free(c->clock);
    free(c->reduced);
    free(c->whole);
    free(c->ends);
    pp_message_clocks_finish(&c->messages);
    pp_completion_finish(&c->done);
    pp_walk_finish(&c->walk);
    return rc;
}

int pp_simulate(const struct pp_schedule *s, const struct pp_costs *costs,
                int depth, struct pp_sim *sim, struct pp_err *err)
{
    struct sim_run c = {
        .costs = costs, .depth = depth, .posts = depth != INT_MAX, .sim = sim};
    return simulate(&c, s, err);
}

int pp_simulate_strict(const struct pp_schedule *s,
                       const struct pp_costs *costs, int depth,
                       struct pp_sim *sim, struct pp_err *err)
{
    struct sim_run c = {.costs = costs, .depth = depth, .sim = sim};
    return simulate(&c, s, err);
}

void pp_sim_finish(struct pp_sim *sim)
{
    if (sim->rows)
        for (int r = 0; r < sim->n_rows; r++)
            free(sim->rows[r].spans);
    free(sim->rows);
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

/* The time in which both actions of a pair run counts once. */
double pp_sim_busy(const struct pp_sim_row *r)
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
