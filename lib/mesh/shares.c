/* SPDX-License-Identifier: MIT */
/* shares - the parts of the step of a plan, and the step with faster links. The
 * parts are what ranks do in the mean. The time of exchanges is that by which
 * compute actions are shorter without them, and of collectives of data-parallel
 * ranks, which may run beside, that by which the step is. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cost/estimate.h"
#include "cost/step.h"
#include "mesh/search.h"
#include "schedule/simulate/sim.h"

const char *const pp_mesh_share_names[PP_N_MESH_SHARES] = {
    [PP_MESH_BUBBLE] = "bubble", [PP_MESH_TP] = "tp",
    [PP_MESH_CP] = "cp",         [PP_MESH_EP] = "ep",
    [PP_MESH_DP] = "dp",         [PP_MESH_UPDATE] = "update",
};

/* The compute actions of all ranks, the update, and a run without it and
 * without collectives. */
struct spent {
    double compute, update, run;
};

static double other_time(const void *x, struct pp_action a)
{
    return pp_is_collective(a.op) ? 0 : pp_step_action(x, a);
}

static int add_up(struct pp_plan p, const struct pp_schedule *s,
                  struct spent *sum, struct pp_err *err)
{
    struct pp_step x;
    const struct pp_costs others = {.time = other_time, .ctx = &x};
    pp_step_init(&x, p, s->n_microbatches);
    pp_step_assume(&x, p.microbatch, s->n_microbatches);
    pp_step_order(&x, s);
    *sum = (struct spent){.update = pp_step_update(&x)};
    for (int r = 0; r < p.graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            const struct pp_action a = s->rows[r].actions[i];
            sum->compute += pp_is_compute(a.op) ? pp_step_action(&x, a) : 0;
        }
    int rc = pp_run_time(s, &others, s->channel_depth, false, &sum->run, err);
    pp_step_finish(&x);
    return rc;
}

/* Estimates the units of a request with some exchanges free. */
static void set_free(const struct pp_split_request *q, unsigned groups,
                     struct pp_profile *profile)
{
    const struct pp_estimate x = {
        .shard = &q->shard,
        .precision = q->precision,
        .machine = q->machine,
        .trainer = q->trainer,
        .layout = {.components = {{.mesh = q->shard.mesh}}, .n_components = 1},
        .microbatch = q->microbatch,
        .free = groups};
    *profile = *q->profile;
    profile->units = pp_calloc(profile->n_units, sizeof *profile->units);
    memcpy(profile->units, q->profile->units,
           profile->n_units * sizeof *profile->units);
    for (size_t i = 0; i < profile->n_units; i++)
        pp_estimate_unit(&x, i, &profile->units[i]);
}

static int share_out(const struct pp_split_row *row,
                     const struct pp_split_plan *plan,
                     double shares[PP_N_MESH_SHARES], struct pp_arena *a,
                     struct pp_err *err)
{
    static const struct {
        enum pp_mesh_share share;
        enum pp_group_kind group;
    } exchanges[] = {{PP_MESH_TP, PP_GROUP_TP},
                     {PP_MESH_CP, PP_GROUP_CP},
                     {PP_MESH_EP, PP_GROUP_EP}};
    struct pp_split_description d;
    struct pp_schedule s = {0};
    struct spent all, less;
    double ranks = plan->graph.n_rows * row->step;
    pp_split_describe(plan, a, &d);
    int rc = pp_split_schedule(plan, &d, &s, err);
    if (rc == 0)
        rc = add_up(pp_split_described(&d), &s, &all, err);
    for (size_t k = 0; rc == 0 && k < sizeof exchanges / sizeof *exchanges;
         k++) {
        struct pp_profile without = {0};
        set_free(&row->request, 1u << exchanges[k].group, &without);
        d.profile = &without;
        rc = add_up(pp_split_described(&d), &s, &less, err);
        shares[exchanges[k].share] = (all.compute - less.compute) / ranks;
        free(without.units);
    }
    if (rc == 0) {
        shares[PP_MESH_DP] = 1 - (all.run + all.update) / row->step;
        shares[PP_MESH_UPDATE] = all.update / row->step;
        shares[PP_MESH_BUBBLE] = 1 - all.compute / ranks - shares[PP_MESH_DP] -
                                 shares[PP_MESH_UPDATE];
    }
    pp_schedule_finish(&s);
    return rc;
}

static int plan_step(const struct pp_split_request *q, double *step,
                     struct pp_err *err)
{
    struct pp_split_plan plan;
    int rc =
        pp_split_plan(q, &plan, err) || pp_split_step_seconds(&plan, step, err)
            ? -1
            : 0;
    pp_split_plan_finish(&plan);
    return rc;
}

int pp_mesh_faster(const struct pp_split_row *row, size_t level, double *step,
                   struct pp_err *err)
{
    struct pp_machine machine = *row->request.machine;
    struct pp_split_request q = row->request;
    struct pp_profile profile = {0};
    machine.levels[level].bandwidth *= 2;
    q.machine = &machine;
    set_free(&q, 0, &profile);
    q.profile = &profile;
    int rc = plan_step(&q, step, err);
    free(profile.units);
    return rc;
}

int pp_mesh_larger(const struct pp_split_row *row, size_t bytes, double *step,
                   struct pp_err *err)
{
    struct pp_split_request q = row->request;
    q.memory_bytes += bytes;
    q.bounds = NULL;
    q.stage_modes = NULL;
    q.recompute_auto = true;
    return plan_step(&q, step, err);
}

int pp_mesh_shares(const struct pp_split_row *row,
                   double shares[PP_N_MESH_SHARES], struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_split_plan plan;
    int rc = pp_split_plan(&row->request, &plan, err);
    if (rc == 0)
        rc = share_out(row, &plan, shares, &a, err);
    pp_split_plan_finish(&plan);
    pp_arena_finish(&a);
    return rc;
}
