/* SPDX-License-Identifier: MIT */
/* curves - the picture of --svg: curves of the run so far. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "draw/chart.h"
#include "pprun.h"

/* Seconds between pictures. The last step has one in any case. */
static const double pause_seconds = 5;

static int add(struct pprun_history *h, const struct pp_step_report *r)
{
    if (h->n == h->room) {
        size_t room = h->room ? 2 * h->room : 256;
        for (int i = 0; i < PPRUN_N_CURVES; i++) {
            double *more = realloc(h->values[i], room * sizeof *more);
            if (!more)
                return -1;
            h->values[i] = more;
        }
        h->room = room;
    }
    h->values[PPRUN_CURVE_STEP][h->n] = (double)r->step;
    h->values[PPRUN_CURVE_LOSS][h->n] = r->loss;
    h->values[PPRUN_CURVE_VAL][h->n] = r->has_val_loss ? r->val_loss : NAN;
    h->values[PPRUN_CURVE_NORM][h->n] = r->grad_norm;
    h->values[PPRUN_CURVE_LR][h->n] = r->lr;
    h->values[PPRUN_CURVE_SPEED][h->n] = (double)r->tokens / r->seconds;
    h->has_val |= r->has_val_loss;
    h->n++;
    return 0;
}

static void print_charts(FILE *f, const struct runner *p)
{
    const struct pprun_history *h = &pprun_of(p)->history;
    const double *x = h->values[PPRUN_CURVE_STEP];
    const struct pp_series series[] = {
        {.name = h->has_val ? "training" : NULL,
         .mark = PP_CHART_LINE,
         .x = x,
         .y = h->values[PPRUN_CURVE_LOSS],
         .n = h->n},
        {.name = "held out",
         .mark = PP_CHART_POINTS,
         .color = 1,
         .x = x,
         .y = h->values[PPRUN_CURVE_VAL],
         .n = h->has_val ? h->n : 0},
        {.mark = PP_CHART_LINE,
         .color = 2,
         .x = x,
         .y = h->values[PPRUN_CURVE_NORM],
         .n = h->n},
        {.mark = PP_CHART_LINE,
         .color = 3,
         .x = x,
         .y = h->values[PPRUN_CURVE_LR],
         .n = h->n},
        {.mark = PP_CHART_LINE,
         .color = 4,
         .x = x,
         .y = h->values[PPRUN_CURVE_SPEED],
         .n = h->n},
    };
    const struct pp_chart charts[] = {
        {.title = "Loss",
         .series = series,
         .n_series = h->has_val ? 2 : 1,
         .whole = true},
        {.title = "Gradient norm",
         .series = &series[2],
         .n_series = 1,
         .whole = true},
        {.title = "Learning rate",
         .series = &series[3],
         .n_series = 1,
         .whole = true,
         .from_zero = true},
        {.title = "Tokens per second",
         .series = &series[4],
         .n_series = 1,
         .whole = true,
         .from_zero = true},
    };
    char title[128];
    snprintf(title, sizeof title, "%.60s: step %.0f of %.0f",
             pp_model_architecture(&p->model), h->n ? x[h->n - 1] : 0,
             (double)p->job.optim.steps);
    pp_charts(f, title, charts, sizeof charts / sizeof *charts, 2);
}

int pprun_curves_draw(struct runner *p, struct pp_err *err)
{
    struct pp_output file;
    if (p->rank != 0 || !pprun_of(p)->options.svg)
        return 0;
    if (pp_output_open(&file, pprun_of(p)->options.svg, err))
        return -1;
    print_charts(file.f, p);
    return pp_output_commit(&file, err);
}

void pprun_curves_add(struct runner *p, const struct pp_step_report *r)
{
    struct pprun_history *h = &pprun_of(p)->history;
    struct pp_err err = {0};
    bool last = r->stop || r->step == p->job.optim.steps;
    if (!pprun_of(p)->options.svg || h->failed)
        return;
    double now = pp_clock();
    if (add(h, r))
        pp_fail(&err, PP_EXIT_SYSTEM, "out of memory");
    else if ((!last && now < h->next) || pprun_curves_draw(p, &err) == 0) {
        h->next = now < h->next ? h->next : now + pause_seconds;
        return;
    }
    /* A picture is not worth the run. */
    h->failed = true;
    tool_say(p->tool, TOOL_WARNING, "no more pictures: %s", err.text);
}

void pprun_curves_free(struct runner *p)
{
    for (int i = 0; i < PPRUN_N_CURVES; i++)
        free(pprun_of(p)->history.values[i]);
}
