/* SPDX-License-Identifier: MIT */
#include "cost/step.h"

#include <math.h>

#include "base/num.h"
#include "schedule/simulate/sim.h"

int pp_step_init(struct pp_step *x, struct pp_plan p, int n_microbatches,
                 size_t n_encoders, struct pp_err *err)
{
    size_t parts = (size_t)n_microbatches;
    *x = (struct pp_step){.costs = {.plan = p}};
    return pp_mul(parts, (size_t)p.graph->n_slices, &parts, err) ||
                   pp_workloads_init(&x->loads, parts, n_encoders, err) ||
                   pp_stage_costs_init(&x->costs, p, err)
               ? -1
               : 0;
}

void pp_step_assume(struct pp_step *x, const struct pp_default_microbatch *mb,
                    int n_microbatches)
{
    int64_t slices = x->costs.plan.graph->n_slices;
    for (int64_t k = 0; k < n_microbatches * slices; k++) {
        const struct pp_default_microbatch_part part =
            pp_default_microbatch_slice(mb, k % slices, slices);
        x->loads.tokens[k] = part.tokens;
        x->loads.pairs[k] = part.pairs;
    }
}

double pp_step_action(const void *ctx, struct pp_action a)
{
    const struct pp_step *x = ctx;
    if (pp_is_collective(a.op))
        return pp_stage_time(&x->costs, a, pp_workload_of(0, 0));
    if (!pp_is_compute(a.op) && !pp_is_send(a.op))
        return 0;
    size_t part = (size_t)a.microbatch * (size_t)x->costs.plan.graph->n_slices +
                  (size_t)a.slice;
    return pp_stage_time(&x->costs, a, pp_workloads_at(&x->loads, part));
}

double pp_step_update(const struct pp_step *x)
{
    const struct pp_plan *p = &x->costs.plan;
    double most = 0;
    for (int r = 0; p->profile && r < p->graph->n_rows; r++) {
        double params = 0;
        for (int s = 0; s < p->graph->n_stages; s++)
            if (p->graph->stages[s].row == r)
                params += x->costs.stages[s].updated;
        most = fmax(most, params);
    }
    return p->profile ? most * p->profile->seconds_per_param : 0;
}

int pp_step_seconds(struct pp_plan p, const struct pp_schedule *s,
                    double *seconds, struct pp_err *err)
{
    struct pp_step x;
    const struct pp_costs costs = {.time = pp_step_action, .ctx = &x};
    int rc = pp_step_init(&x, p, s->n_microbatches, 0, err);
    if (rc == 0) {
        pp_step_assume(&x, p.microbatch, s->n_microbatches);
        rc = pp_run_time(s, &costs, s->channel_depth, false, seconds, err);
    }
    if (rc == 0)
        *seconds += pp_step_update(&x);
    pp_step_finish(&x);
    return rc;
}

void pp_step_finish(struct pp_step *x)
{
    pp_workloads_finish(&x->loads);
    pp_stage_costs_finish(&x->costs);
}
