/* SPDX-License-Identifier: MIT */
/* order - orders the microbatches of each step by simulation. */
#include "pppack.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/simulate/microbatch_order.h"

/* Actions that are simulated: for a step, and in all. LEAST: simulations of a
 * step that are worth the trouble. */
enum { WORK_OF_STEP = 1 << 17, WORK = 1 << 28, LEAST = 32 };

/* One step at a time. Rounds are its bins of all data-parallel ranks. */
struct step_order {
    struct pack_job *job;
    struct pp_stage_costs costs;
    struct pp_workload *sizes;
    struct pp_makespan makespan;
    struct pp_rounds rounds;
    struct pp_microbatch_times *times;
    double *op, *message;   /* of all microbatches; times points into them */
    size_t per_step, slots; /* slots: stages x slices */
    double work;            /* of a step */
    uint32_t *order, *place;
};

static void alloc_times(struct step_order *o)
{
    o->times = pp_calloc(o->per_step, sizeof *o->times);
    o->op = pp_calloc(o->per_step, 4 * o->slots * sizeof *o->op);
    o->message = pp_calloc(o->per_step, o->slots * sizeof *o->message);
    o->order = pp_calloc(o->rounds.n_rounds, sizeof *o->order);
    o->place = pp_calloc(o->job->bins.n_bins, sizeof *o->place);
    o->rounds.times = o->times;
    for (size_t b = 0; b < o->job->bins.n_bins; b++)
        o->place[b] = (uint32_t)b;
}

/* Fills the times of one microbatch, that of bin b. */
static void set_times(struct step_order *o, size_t b, size_t microbatch)
{
    int n_slices = o->costs.plan.graph->slices.n;
    double *op = o->op + 4 * o->slots * microbatch;
    double *message = o->message + o->slots * microbatch;
    for (int i = 0; i < (int)o->slots; i++) {
        size_t part = b * (size_t)n_slices + (size_t)(i % n_slices);
        struct pp_workload load = o->sizes[part];
        struct pp_action a = {.stage = i / n_slices, .peer = -1};
        for (a.op = PP_F; a.op <= PP_W; a.op++)
            op[4 * i + a.op] =
                pp_stage_time(&o->costs, a, load, PP_LOGITS_LEAST);
        a.op = PP_SEND_F;
        message[i] = pp_stage_time(&o->costs, a, load, PP_LOGITS_LEAST);
    }
    o->times[microbatch] = (struct pp_microbatch_times){op, message};
}

/* Orders the step that begins with bin first, unless the simulation with its
 * channels says that this takes longer. */
static int order_step(struct step_order *o, size_t first)
{
    size_t n = o->rounds.n_rounds, dp = o->rounds.dp;
    double makespan, before, after;
    for (size_t k = 0; k < n; k++) {
        o->order[k] = (uint32_t)k;
        for (size_t r = 0; r < dp; r++)
            set_times(o, first + k * dp + r, r * n + k);
    }
    pp_microbatch_order(&o->makespan, &o->rounds, o->work, o->order, &makespan);
    if (pack_simulate_step(o->job, &o->costs, o->sizes, first, NULL, &before) !=
            0 ||
        pack_simulate_step(o->job, &o->costs, o->sizes, first, o->order,
                           &after) != 0)
        return -1;
    for (size_t k = 0; k < n && after < before; k++)
        for (size_t r = 0; r < dp; r++)
            o->place[first + o->order[k] * dp + r] =
                (uint32_t)(first + k * dp + r);
    return 0;
}

/* Moves the ranks of sequences with their bins, which have not moved yet. */
static void move_ranks(struct step_order *o)
{
    struct pack_job *j = o->job;
    const struct pp_bins *b = &j->bins;
    size_t *first = pp_calloc(b->n_bins + 1, sizeof *first), to = 0;
    uint32_t *bin_at = pp_calloc(b->n_bins, sizeof *bin_at);
    for (size_t k = 0; k < b->n_bins; k++) {
        first[k + 1] = first[k];
        for (size_t i = b->first[k]; i < b->first[k + 1]; i++)
            first[k + 1] += pack_n_sequences(j, &j->pieces.piece[b->items[i]]);
        bin_at[o->place[k]] = (uint32_t)k;
    }
    struct pp_rank_range *moved =
        pp_calloc(first[b->n_bins] + 1, sizeof *moved);
    for (size_t k = 0; k < b->n_bins; k++) {
        size_t from = first[bin_at[k]], n = first[bin_at[k] + 1] - from;
        memcpy(moved + to, j->ranks + from, n * sizeof *moved);
        to += n;
    }
    free(first);
    free(bin_at);
    free(j->ranks);
    j->ranks = moved;
}

static int order_steps(struct step_order *o, struct pp_err *err)
{
    struct pack_job *j = o->job;
    size_t steps = j->bins.n_bins / o->per_step;
    if (pp_makespan_init(&o->makespan, &j->in->manifest.schedule, err) != 0)
        return -1;
    o->work = (double)WORK / (double)steps;
    o->work = o->work < WORK_OF_STEP ? o->work : WORK_OF_STEP;
    if (o->work < LEAST * (double)(o->makespan.n_pieces * o->rounds.dp))
        return 0;
    pp_stage_costs_init(&o->costs, pp_manifest_plan(&j->in->manifest));
    o->sizes = pack_measure_bins(j, &o->costs);
    alloc_times(o);
    for (size_t k = 0; k < steps; k++)
        if (order_step(o, k * o->per_step) != 0)
            return -1;
    if (j->ranks)
        move_ranks(o);
    pp_bins_move(&j->bins, o->place);
    return 0;
}

int pack_order(struct pack_job *j)
{
    const struct pp_manifest *m = &j->in->manifest;
    struct step_order o = {.job = j};
    if (!m->has_schedule)
        return 0;
    o.rounds.n_rounds = (size_t)m->schedule.n_microbatches;
    o.rounds.dp = (size_t)m->mesh.dp;
    o.per_step = o.rounds.n_rounds * o.rounds.dp;
    o.slots = (size_t)m->graph.n_stages * (size_t)m->graph.slices.n;
    if (o.per_step > j->bins.n_bins)
        return 0;
    tool_progress(j->t, "ordering %zu bins", j->bins.n_bins);
    int rc = order_steps(&o, &j->t->err);
    pp_makespan_finish(&o.makespan);
    pp_stage_costs_finish(&o.costs);
    free(o.sizes);
    free(o.times);
    free(o.op);
    free(o.message);
    free(o.order);
    free(o.place);
    return rc;
}
