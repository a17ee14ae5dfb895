/* SPDX-License-Identifier: MIT */
#include "split/row.h"

#include <math.h>
#include <string.h>

#include "split/describe.h"

int pp_split_plan_modes(struct pp_split_request *q, struct pp_split_plan *plan,
                        struct pp_err *err)
{
    const struct pp_trainer *t = pp_split_trainer(q);
    if (!q->recompute_auto || t->modes)
        return pp_split_plan(q, plan, err);
    *plan = (struct pp_split_plan){.bounds = NULL};
    q->recompute_auto = false;
    for (size_t k = 0; k < PP_N_RECOMPUTES; k++) {
        if (!pp_trainer_recomputes(t, pp_split_level(q, k)))
            continue;
        pp_split_plan_finish(plan);
        q->recompute = pp_split_level(q, k);
        if (pp_split_plan(q, plan, err))
            return -1;
        if (pp_split_plan_fits(plan))
            break;
    }
    return 0;
}

/* Copies the split and the modes of a plan to the row's request. */
static void keep_split(const struct pp_split_plan *plan, struct pp_arena *a,
                       struct pp_split_request *q)
{
    size_t n = plan->run.n_stages;
    size_t *bounds = pp_arena_alloc(a, n + 1, sizeof *bounds);
    enum pp_recompute *modes = pp_arena_alloc(a, n, sizeof *modes);
    memcpy(bounds, plan->bounds, (n + 1) * sizeof *bounds);
    bool any = false;
    for (size_t s = 0; s < n; s++) {
        modes[s] = pp_split_stage_mode(plan, (int)s);
        any |= modes[s] != PP_RECOMPUTE_NONE;
    }
    q->bounds = bounds;
    if (q->recompute_auto)
        q->stage_modes = any ? modes : NULL;
    q->recompute_auto = false;
}

/* Fills the figures of a row. */
static int weigh(const struct pp_split_plan *plan, struct pp_split_row *row,
                 struct pp_err *err)
{
    const struct pp_split_run *run = &plan->run;
    int n = plan->graph.n_rows;
    double busy = 0;
    if (!run->simulated)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu stages and %lld microbatches are too many to "
                       "simulate",
                       run->n_stages, (long long)run->n_microbatches);
    double step = run->found.makespan;
    if (isinf(step)) /* a split that does not fit has no step yet */
        step = pp_split_step_time(&run->step, plan->bounds);
    for (int r = 0; r < n; r++)
        busy += plan->ranks[r].busy;
    row->idle = step > 0 ? 1 - busy / (n * step) : 0;
    row->rank = pp_split_plan_fullest(plan);
    row->need = pp_split_plan_need(plan, row->rank);
    row->fits = row->request.memory_bytes == 0 || pp_split_plan_fits(plan);
    row->halves = run->halves;
    row->least = run->shortest ? run->found.bound : 0;
    row->step = step;
    return row->request.profile ? pp_split_step_seconds(plan, &row->step, err)
                                : 0;
}

void pp_split_row_plan(struct pp_split_request *q, struct pp_arena *a,
                       struct pp_split_row *row, struct pp_split_plan *plan)
{
    struct pp_err why = {0};
    int rc = pp_split_plan_modes(q, plan, &why);
    *row = (struct pp_split_row){.request = *q};
    if (rc || weigh(plan, row, &why)) {
        *row = (struct pp_split_row){.request = *q,
                                     .step = INFINITY,
                                     .why = pp_arena_strdup(a, why.text)};
        return;
    }
    keep_split(plan, a, &row->request);
}

int pp_split_row_compare(const void *pa, const void *pb)
{
    const struct pp_split_row *a = pa, *b = pb;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if ((a->need > 0) != (b->need > 0))
        return a->need > 0 ? -1 : 1;
    if (a->fits && (a->step < b->step || a->step > b->step))
        return a->step < b->step ? -1 : 1;
    return (a->need > b->need) - (a->need < b->need);
}
