/* SPDX-License-Identifier: MIT */
/* The simulator reads spans off the heads of the graph of operations. At a
 * given depth a send blocks as the transports' sends do, and a receive is
 * posted: the action that reads the message waits for it, as in a run. If
 * strict, the receive itself waits, as the checker has it. With unbounded
 * channels an action waits only for its own inputs, which is the model of the
 * textbooks and their closed forms. */
#include "schedule/simulate/sim.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/ops.h"

double pp_literal_time(const void *ctx, struct pp_action a)
{
    const struct pp_literal_costs *c = ctx;
    bool source = !c->textbook && !pp_is_send(a.op) && a.stage >= 0 &&
                  !c->graph->stages[a.stage].input_grad;
    const struct pp_slices *n = &c->graph->slices;
    int q = a.slice;
    bool frozen = pp_is_compute(a.op) && c->graph->stages[a.stage].frozen;
    double w = frozen ? 0 : c->w;
    if (frozen && source && a.op != PP_F)
        return 0;
    switch ((enum pp_op)a.op) {
    case PP_F:
        return pp_slice_share(n, q, c->f);
    case PP_B:
        return pp_slice_share(n, q, c->i + w);
    case PP_I:
        return source ? 0 : pp_slice_share(n, q, c->i);
    case PP_W:
        return pp_slice_share(n, q, source ? c->i + w : w);
    case PP_SEND_F:
    case PP_SEND_B:
        return pp_slice_share(n, q, c->comm);
    case PP_REDUCE_GRAD:
        return c->reduce;
    case PP_UNSHARD:
        return c->unshard;
    case PP_OFFLOAD:
    case PP_RELOAD:
        return c->copy;
    default:
        return 0;
    }
}

/* Fills the spans of a row, whose operations start at *op. A message begins to
 * wait when the action before it has ended. */
static void fill_row(struct pp_sim_row *row, const struct pp_row *list,
                     const struct pp_paths *p, bool unbounded,
                     const struct pp_costs *costs, size_t *op)
{
    double clock = 0;
    for (; row->n < list->n; row->n++) {
        struct pp_action a = list->actions[row->n];
        bool message = pp_is_message(a.op);
        if (message && unbounded) {
            row->spans[row->n] = (struct pp_span){a, clock, clock};
            continue;
        }
        double time = p->ops->time[*op], start = p->start[(*op)++];
        double end = start + time;
        /* The row waits for the end of an OFFLOAD. */
        if (a.op == PP_OFFLOAD)
            clock = fmax(clock, end);
        row->spans[row->n] = (struct pp_span){a, message ? clock : start, end};
        if (pp_is_compute(a.op))
            row->busy += time;
        if (!pp_is_copy(a.op) && !pp_is_beside(costs, a.op))
            clock = end;
    }
}

static void init_sim(struct pp_sim *sim, const struct pp_schedule *s)
{
    *sim = (struct pp_sim){.n_rows = s->graph->n_rows};
    sim->rows = pp_calloc((size_t)sim->n_rows, sizeof *sim->rows);
    for (int r = 0; r < sim->n_rows; r++) {
        const struct pp_row *list = &s->rows[r];
        sim->rows[r].spans = pp_calloc(list->n + 1, sizeof(struct pp_span));
    }
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

/* Fills the spans of sim, unless it is NULL. *end is the last end of all. */
static int run(const struct pp_schedule *s, const struct pp_costs *costs,
               enum pp_ops_waits waits, int depth, struct pp_sim *sim,
               double *end, struct pp_err *err)
{
    struct pp_fifo fifo = {0};
    struct pp_ops ops = {0};
    struct pp_paths p = {0};
    if (waits != PP_OPS_INPUTS)
        pp_fifo_init(&fifo, s, true);
    int rc =
        pp_ops_of_schedule(&ops, s, costs, waits, &fifo, depth, false, err);
    if (!rc)
        pp_paths_init(&p, &ops);
    if (!rc && !pp_paths_heads(&p, NULL))
        rc = pp_fail(err, PP_EXIT_NO,
                     "the schedule deadlocks at channel depth %d", depth);
    *end = p.worst;
    size_t op = 0;
    for (int r = 0; sim && r < sim->n_rows && !rc; r++)
        fill_row(&sim->rows[r], &s->rows[r], &p, waits == PP_OPS_INPUTS, costs,
                 &op);
    pp_paths_finish(&p);
    pp_ops_finish(&ops);
    pp_fifo_finish(&fifo);
    return rc;
}

int pp_simulate(const struct pp_schedule *s, const struct pp_costs *costs,
                int depth, struct pp_sim *sim, struct pp_err *err)
{
    enum pp_ops_waits waits = depth == INT_MAX ? PP_OPS_INPUTS : PP_OPS_POSTED;
    double end;
    init_sim(sim, s);
    int rc = run(s, costs, waits, depth, sim, &end, err);
    if (rc)
        pp_sim_finish(sim);
    else
        sum_rows(sim);
    return rc;
}

int pp_run_time(const struct pp_schedule *s, const struct pp_costs *costs,
                int depth, bool strict, double *makespan, struct pp_err *err)
{
    enum pp_ops_waits waits = strict             ? PP_OPS_STRICT
                              : depth == INT_MAX ? PP_OPS_INPUTS
                                                 : PP_OPS_POSTED;
    return run(s, costs, waits, depth, NULL, makespan, err);
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
