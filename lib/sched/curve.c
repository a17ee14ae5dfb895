/* SPDX-License-Identifier: MIT */
/* Walking a row in its order, not events sorted by time, keeps what happens at
 * one instant in the order in which it happens: a slot that is closed before
 * the next is opened never counts twice. */
#include "sched/curve.h"

#include <stdlib.h>

#include "base/num.h"

/* Room for the first level and two of each action. */
static int init(struct pp_curve *c, size_t n_actions, struct pp_err *err)
{
    size_t levels = 2 * n_actions + 1, bytes;
    *c = (struct pp_curve){0};
    if (pp_mul(levels, sizeof *c->at, &bytes, err))
        return -1;
    c->at = malloc(bytes);
    if (!c->at)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    c->at[c->n++] = (struct pp_level){0, 0};
    return 0;
}

static void step(struct pp_curve *c, double time, double value)
{
    if (value == c->at[c->n - 1].value)
        return;
    c->at[c->n++] = (struct pp_level){time, value};
    if (value > c->peak) {
        c->peak = value;
        c->peak_time = time;
    }
}

int pp_curve_slots(const struct pp_row *row, const struct pp_span *spans,
                   struct pp_curve *c, struct pp_err *err)
{
    bool trains = false;
    double live = 0;
    if (init(c, row->n, err))
        return -1;
    for (size_t i = 0; i < row->n && !trains; i++)
        trains = row->actions[i].op == PP_W || row->actions[i].op == PP_B;
    for (size_t i = 0; i < row->n; i++) {
        enum pp_op op = row->actions[i].op;
        bool closes = trains ? op == PP_W || op == PP_B : op == PP_F;
        double start, end;
        pp_span_piece(spans, i, &start, &end);
        if (op == PP_F)
            step(c, start, ++live);
        if (closes)
            step(c, end, --live);
    }
    return 0;
}

int pp_curve_bytes(const struct pp_row *row, const struct pp_span *spans,
                   const struct pp_memory *m, struct pp_curve *c,
                   struct pp_err *err)
{
    size_t *begun = calloc(row->n + 1, sizeof *begun);
    size_t *ended = calloc(row->n + 1, sizeof *ended), live = 0;
    int rc = begun && ended ? init(c, row->n, err)
                            : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < m->n && !rc; i++) {
        begun[m->buffers[i].first] += m->buffers[i].bytes;
        ended[m->buffers[i].last] += m->buffers[i].bytes;
    }
    for (size_t i = 0; i < row->n && !rc; i++) {
        double start, end;
        pp_span_piece(spans, i, &start, &end);
        live += begun[i];
        step(c, start, (double)live);
        live -= ended[i];
        step(c, end, (double)live);
    }
    free(begun);
    free(ended);
    return rc;
}

void pp_curve_scale(struct pp_curve *c, double by)
{
    c->peak *= by;
    for (size_t i = 0; i < c->n; i++)
        c->at[i].value *= by;
}

void pp_curve_finish(struct pp_curve *c)
{
    free(c->at);
    *c = (struct pp_curve){0};
}
