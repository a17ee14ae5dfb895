/* SPDX-License-Identifier: MIT */
/* balance - does --balance, and computes its gain: the imbalance and,
 * with a schedule, the time of a step. */
#include "pppack.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"

/* The most steps that are simulated; they are evenly spread. */
enum { MOST_STEPS = 256 };

/* Bins are equal if the costliest is above the mean by 1 in so many. */
enum { NEAR_MEAN = 512 };

static double pairs_of(const struct pack_job *j, const struct pp_piece *q)
{
    double sum = 0;
    for (size_t k = 0; k < pack_n_sequences(j, q); k++)
        sum += pack_sequence(j, q, k).pairs;
    return sum;
}

/* Returns what a row of a modality costs, in what is balanced. */
static double cost_of_row(const struct pack_job *j, enum pp_modality m)
{
    bool audio = m == PP_MODALITY_AUDIO && tool_given(j->t, "audio-cost");
    double tokens = audio ? j->o->balance.audio_cost : j->o->balance.patch_cost;
    if (j->o->balance.what != PACK_BALANCE_FLOPS)
        return tokens;
    return audio ? j->o->balance.audio_cost * j->in->per_token
                 : j->in->per_row[m];
}

/* Returns the cost of one piece, in what is balanced. */
static double cost_of(const struct pack_job *j, const struct pp_piece *q)
{
    const struct pp_pieces *p = &j->pieces;
    double cost = j->o->balance.what == PACK_BALANCE_FLOPS
                      ? pack_cost(j, q->padded, pairs_of(j, q))
                      : q->padded;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (p->rows[m])
            cost +=
                cost_of_row(j, (enum pp_modality)m) * p->rows[m][q - p->piece];
    return cost;
}

/* Makes the costs as integers that lose little, and whose sum does not
 * overflow. */
static uint64_t *make_costs(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    uint64_t *cost = pp_calloc(p->n + 1, sizeof *cost);
    double total = 0;
    for (size_t i = 0; i < p->n; i++)
        total += cost_of(j, &p->piece[i]);
    /* Tokens alone are whole numbers already. */
    bool whole = j->o->balance.what != PACK_BALANCE_FLOPS &&
                 j->o->balance.patch_cost == 0 && j->o->balance.audio_cost == 0;
    double scale =
        !whole && total > 0 ? (double)(UINT64_C(1) << 61) / total : 1;
    for (size_t i = 0; i < p->n; i++)
        cost[i] = (uint64_t)(scale * cost_of(j, &p->piece[i]));
    return cost;
}

/* Returns the cost of the costliest bin over the mean. */
static double find_imbalance(const struct pack_job *j)
{
    double most = 0, total = 0;
    for (size_t b = 0; b < j->bins.n_bins; b++) {
        double here = 0;
        for (size_t i = j->bins.first[b]; i < j->bins.first[b + 1]; i++)
            here += cost_of(j, &j->pieces.piece[j->bins.items[i]]);
        most = here > most ? here : most;
        total += here;
    }
    return total > 0 ? most * (double)j->bins.n_bins / total : 1;
}

/* Computes the mean time of a step. */
static int simulate(struct pack_job *j, double *time)
{
    struct pp_stage_costs c = {0};
    size_t per_step = (size_t)j->in->manifest.schedule.n_microbatches *
                      (size_t)j->in->manifest.mesh.dp;
    size_t steps = (j->bins.n_bins + per_step - 1) / per_step;
    size_t n = steps < MOST_STEPS ? steps : MOST_STEPS;
    double total = 0;
    pp_stage_costs_init(&c, pp_manifest_plan(&j->in->manifest));
    int rc = 0;
    struct pp_workload *sizes = pack_measure_bins(j, &c);
    for (size_t k = 0; rc == 0 && k < n; k++) {
        double here;
        rc = pack_simulate_step(j, &c, sizes, k * steps / n * per_step, NULL,
                                &here);
        total += here;
    }
    *time = total / (double)n;
    free(sizes);
    pp_stage_costs_finish(&c);
    return rc;
}

/* Computes the figures of the current bins. */
static int report_figures(struct pack_job *j, struct pack_figures *f)
{
    if (!j->o->stats || j->bins.n_bins == 0)
        return 0;
    f->imbalance = find_imbalance(j);
    if (!j->in->manifest.has_schedule)
        return 0;
    tool_progress(j->t, "simulating");
    return simulate(j, &f->step_time);
}

/* Returns a little more than the mean cost of a bin: ranks differ by as much.
 */
static uint64_t near_mean(const struct pack_job *j, const uint64_t *cost)
{
    uint64_t total = 0;
    for (size_t i = 0; i < j->pieces.n; i++)
        total += cost[i];
    total /= j->bins.n_bins;
    return total + total / NEAR_MEAN;
}

static int rearrange_bins(struct pack_job *j)
{
    size_t dp = (size_t)j->in->dp, per_step = j->bins.n_bins;
    if (j->in->bins_multiple > 1)
        per_step = (size_t)j->in->bins_multiple;
    if (per_step % dp)
        return pp_fail(&j->t->err, PP_EXIT_INPUT,
                       "'%zu' bins cannot be divided equally among %zu "
                       "data-parallel ranks (--dp); try --bins-multiple %zu",
                       per_step, dp, pp_round_up(per_step, dp));
    if (!j->o->keeps_order)
        j->epoch.block = (uint32_t)per_step;
    uint64_t *cost = make_costs(j);
    tool_progress(j->t, "balancing %zu bins", j->bins.n_bins);
    struct pp_pack_size rows[PP_N_MODALITIES];
    size_t n_rows = pack_row_sizes(j, rows);
    pp_bins_balance(&j->bins, j->pieces.padded, cost, j->capacity, rows, n_rows,
                    j->o->mesh.sizes ? near_mean(j, cost) : 0);
    pp_bins_deal(&j->bins, cost, dp, per_step);
    free(cost);
    return 0;
}

int pack_balance(struct pack_job *j)
{
    free(j->ranks);
    j->ranks = NULL;
    if (report_figures(j, &j->before) != 0)
        return -1;
    j->after = j->before;
    if (j->o->balance.what == PACK_BALANCE_NONE || j->bins.n_bins == 0)
        return 0;
    return rearrange_bins(j) || pack_place(j, &j->after) || pack_order(j) ||
                   report_figures(j, &j->after)
               ? -1
               : 0;
}
