/* SPDX-License-Identifier: MIT */
#include "cost/step.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "cost/trainer.h"
#include "data/items.h"
#include "data/packed/stream.h"
#include "schedule/ir/at_once.h"
#include "schedule/simulate/sim.h"

void pp_step_init(struct pp_step *x, struct pp_plan p, int n_microbatches)
{
    size_t parts = (size_t)n_microbatches * (size_t)p.graph->slices.n;
    *x = (struct pp_step){.costs = {.plan = p},
                          .loads = pp_calloc(parts, sizeof *x->loads),
                          .parts = parts};
    pp_stage_costs_init(&x->costs, p);
}

void pp_step_assume(struct pp_step *x, const struct pp_default_microbatch *mb,
                    int n_microbatches)
{
    const struct pp_plan p = x->costs.plan;
    int slices = p.graph->slices.n;
    for (int k = 0; k < n_microbatches * slices; k++) {
        const struct pp_default_microbatch_part part =
            pp_default_microbatch_part(
                mb, pp_plan_slice_begin(p, mb->tokens, k % slices),
                pp_plan_slice_begin(p, mb->tokens, k % slices + 1));
        x->loads[k] = pp_workload_of(part.tokens, part.pairs);
    }
}

size_t pp_step_counted(struct pp_plan p)
{
    return p.graph->slices.n == 1 ? pp_plan_counted(p) : 0;
}

/* Measures microbatch k, whose sequences have ranks of their own. */
static void measure_ranks(struct pp_step *x, const struct pp_bin *bin, int k)
{
    double tokens[PP_MOST_SIZED_RANKS] = {0}, pairs[PP_MOST_SIZED_RANKS] = {0};
    int cp = x->costs.plan.mesh->cp;
    for (uint32_t i = 0; i < bin->n_sequences; i++) {
        struct pp_rank_range r = bin->ranks[i];
        const int32_t *padded = bin->cu_seqlens_padded + i;
        double length = bin->cu_seqlens[i + 1] - bin->cu_seqlens[i];
        for (int at = r.first; at < r.first + r.n; at++) {
            tokens[at] += (double)(padded[1] - padded[0]) / r.n;
            pairs[at] += length * (length + 1) / 2 / r.n;
        }
    }
    size_t slowest = pp_stage_slowest(&x->costs, tokens, pairs, (size_t)cp);
    x->loads[k] = pp_workload_of(tokens[slowest] * cp, pairs[slowest] * cp);
}

/* Measures the items of microbatch k, whose first lane has its bin at place
 * `at`. */
static void measure_items(struct pp_step *x, const struct pp_packed *data,
                          uint64_t at, size_t k)
{
    const struct pp_plan p = x->costs.plan;
    const struct pp_layout l = pp_plan_layout(p);
    for (size_t e = 0; e < pp_step_counted(p); e++) {
        size_t lanes, makers = pp_layout_makers(&l, e, &lanes);
        const struct pp_item_share share = pp_items_largest_of(
            data, pp_plan_modality(p, e, pp_packed_modality(data)), at, lanes,
            makers);
        pp_workload_set_items(&x->loads[k], p, e, share.rows, share.squares);
    }
}

void pp_step_measure(struct pp_step *x, const struct pp_packed *data, int step,
                     int n_microbatches)
{
    const struct pp_plan p = x->costs.plan;
    int64_t slices = p.graph->slices.n;
    /* Microbatch k of a step goes to data-parallel rank k mod dp. */
    size_t dp = (size_t)p.mesh->dp;
    size_t first = (size_t)(step - 1) * (size_t)n_microbatches * dp;
    for (int k = 0; k < n_microbatches; k++) {
        struct pp_bin bin;
        uint64_t place = first + (size_t)k * dp;
        pp_packed_bin(data, pp_packed_place(data, place), &bin);
        if (bin.ranks && p.mesh->cp > 1) {
            measure_ranks(x, &bin, k);
            continue;
        }
        pp_slice_tokens(p, bin.tokens, &x->loads[k * slices]);
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            pp_slice_pairs(p, bin.tokens, bin.cu_seqlens_padded[i],
                           bin.cu_seqlens[i + 1] - bin.cu_seqlens[i],
                           &x->loads[k * slices]);
        measure_items(x, data, place, (size_t)k);
    }
}

/* Returns who makes the logits of a stage in a microbatch or slice. */
static enum pp_logits logits_of(const struct pp_step *x, int stage, size_t part)
{
    if (!x->at_once)
        return PP_LOGITS_LEAST;
    return x->at_once[(size_t)stage * x->parts + part] ? PP_LOGITS_ONCE
                                                       : PP_LOGITS_AGAIN;
}

double pp_step_action(const void *ctx, struct pp_action a)
{
    const struct pp_step *x = ctx;
    if (pp_is_collective(a.op))
        return pp_stage_time(&x->costs, a, pp_workload_of(0, 0),
                             PP_LOGITS_LEAST);
    if (pp_is_copy(a.op))
        return x->copy ? x->copy[a.stage] : 0;
    if (!pp_is_compute(a.op) && !pp_is_send(a.op))
        return 0;
    size_t part = (size_t)a.microbatch * (size_t)x->costs.plan.graph->slices.n +
                  (size_t)a.slice;
    return pp_stage_time(&x->costs, a, x->loads[part],
                         logits_of(x, a.stage, part));
}

/* Returns the seconds for which the first forwards of a step wait for weights
 * that other ranks have updated. Beside these forwards a trainer hides as much
 * as they take: a stage waits for the weights of the stages before it, too. */
static double gather_seconds(const struct pp_step *x)
{
    const struct pp_plan *p = &x->costs.plan;
    enum pp_trainer_gathers gathers =
        pp_trainer_find(p->model->trainer)->gathers;
    double hidden = 0, most = 0;
    if (!p->graph->replicas || p->mesh->whole_state || !gathers)
        return 0;
    for (int s = 0; s < p->graph->n_stages; s++) {
        double time = 0;
        for (int k = 0; k <= s; k++)
            if (p->graph->stages[k].row == p->graph->stages[s].row)
                time += pp_stage_gather(&x->costs, k);
        const struct pp_action f = {.op = PP_F, .stage = s};
        hidden += gathers == PP_GATHERS_BESIDE ? pp_step_action(x, f) : 0;
        most = fmax(most, time - hidden);
    }
    return most;
}

double pp_step_update(const struct pp_step *x)
{
    const struct pp_plan *p = &x->costs.plan;
    double most = 0, longest = 0;
    for (int r = 0; p->profile && r < p->graph->n_rows; r++) {
        double params = 0, copied = 0;
        for (int s = 0; s < p->graph->n_stages; s++)
            if (p->graph->stages[s].row == r && pp_home(p->graph, s) == s) {
                params += x->costs.stages[s].update;
                copied += pp_stage_copied(&x->costs, s);
            }
        most = fmax(most, params);
        longest = fmax(longest, copied);
    }
    return p->profile ? most * p->profile->seconds_per_param +
                            gather_seconds(x) + longest
                      : 0;
}

void pp_step_order(struct pp_step *x, const struct pp_schedule *s)
{
    free(x->at_once);
    x->at_once = NULL;
    if (s) {
        size_t stages = (size_t)x->costs.plan.graph->n_stages;
        x->at_once = pp_calloc(stages * x->parts, sizeof *x->at_once);
        pp_at_once_cells(s, x->at_once);
    }
    for (int k = 0; x->made && k < x->costs.plan.graph->n_stages; k++) {
        double longer = x->made[k].longer; /* ppsched may have another */
        free(x->made[k].left);
        pp_stage_made(&x->costs, k, x->loads[0], logits_of(x, k, x->parts - 1),
                      &x->made[k]);
        x->made[k].longer = longer;
    }
}

struct pp_costs pp_step_costs(struct pp_step *x)
{
    const struct pp_plan *p = &x->costs.plan;
    x->made = pp_calloc((size_t)p->graph->n_stages, sizeof *x->made);
    for (int s = 0; s < p->graph->n_stages; s++)
        pp_stage_made(&x->costs, s, x->loads[0], logits_of(x, s, x->parts - 1),
                      &x->made[s]);
    return (struct pp_costs){
        .time = pp_step_action,
        .ctx = x,
        .beside = pp_trainer_beside(pp_trainer_find(p->model->trainer),
                                    p->model->gpu),
        .made = x->made};
}

int pp_step_seconds(struct pp_plan p, const struct pp_schedule *s,
                    const struct pp_packed *data, const double *copy,
                    double *seconds, struct pp_err *err)
{
    struct pp_step x;
    int n = s->n_microbatches;
    pp_step_init(&x, p, n);
    x.copy = copy;
    if (data)
        pp_step_measure(&x, data, 1, n);
    else
        pp_step_assume(&x, p.microbatch, n);
    pp_step_order(&x, s);
    const struct pp_costs costs = pp_step_costs(&x);
    int rc = pp_run_time(s, &costs, s->channel_depth, false, seconds, err);
    if (rc == 0)
        *seconds += pp_step_update(&x);
    pp_step_finish(&x);
    return rc;
}

void pp_step_finish(struct pp_step *x)
{
    for (int s = 0; x->made && s < x->costs.plan.graph->n_stages; s++)
        free(x->made[s].left);
    free(x->made);
    free(x->at_once);
    free(x->loads);
    pp_stage_costs_finish(&x->costs);
}

struct pp_plan_data pp_plan_data_of(struct pp_plan p, const struct pp_packed *d,
                                    const char *path)
{
    const struct pp_layout l = pp_plan_layout(p);
    size_t n = pp_plan_encoders(p), lanes;
    struct pp_plan_data data = {.path = path,
                                .checksum = d->checksum,
                                .n_bins = d->n_bins,
                                .n_sequences = d->n_sequences,
                                .capacity = d->capacity,
                                .align = d->align,
                                .max_tokens =
                                    (uint32_t)pp_packed_room(d, p.mesh->cp)};
    for (size_t e = 0; e < (n ? n : 1); e++) {
        enum pp_modality of = pp_plan_modality(p, e, pp_packed_modality(d));
        size_t makers = pp_layout_makers(&l, e, &lanes);
        data.items[e].n = d->streams[of].max_items;
        if (pp_plan_merge_any(p, e))
            data.items[e].rows = (uint32_t)pp_items_most(d, of, makers, lanes);
    }
    return data;
}
