/* SPDX-License-Identifier: MIT */
/* evaluate - forward-only passes: validation loss and log-probabilities. */
#include <math.h>
#include <string.h>

#include "run/train/rank.h"

/* Runs all bins of p through the forward schedule, in passes of n_microbatches.
 * Empty microbatches fill up the last pass. Writes a loss for each microbatch
 * if this rank runs its head; losses may be NULL. */
static int run_forward(struct pp_rank *r, const struct pp_packed *p,
                       double scale, double *losses, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_objective_counts step = {0};
    for (size_t i = 0; j->objective && !j->score && i < p->n_bins; i++)
        pp_scoring_count(j->objective, p, i, &step);
    uint64_t m = pp_job_microbatches(j), lane = (uint64_t)r->worker.place.dp;
    pp_progress_phase(j->progress, PP_PHASE_EVALUATE, r->step);
    for (uint64_t first = 0; first < p->n_bins; first += m) {
        const struct pp_pass pass = {
            .packed = p,
            .first = first + lane,
            .end = p->n_bins,
            .stride = (uint64_t)pp_rank_lanes(r),
            .scale = scale,
            .temperature = j->temperature,
            .score_all = j->score,
            .objective = j->score ? NULL : j->objective,
            .step = step,
            .losses = losses ? losses + first + lane : r->losses,
            .logps = j->score ? pp_rank_note_scores : NULL,
            .scored = &r->scored,
            .top_k = j->score ? j->top_k : 0,
            .entropy = j->score && j->entropy,
            .ctx = r,
        };
        if (pp_exec_ops.run(&r->forward, &pass, err) ||
            (j->score && pp_rank_hand_over(r, err)))
            return -1;
    }
    return 0;
}

/* Adds the losses in the order of the bins, whichever rank has them. */
static int add_losses(struct pp_rank *r, size_t n, double *loss,
                      struct pp_err *err)
{
    size_t m = pp_job_microbatches(r->job);
    *loss = 0;
    for (size_t first = 0; first < n; first += m) {
        if (pp_rank_add_up(r, r->eval_losses + first, m, err))
            return -1;
        for (size_t k = 0; k < m; k++)
            *loss += r->sums[k];
    }
    return 0;
}

int pp_rank_evaluate(struct pp_rank *r, double *loss, struct pp_err *err)
{
    const struct pp_packed *p = r->job->eval;
    uint64_t scored = 0;
    for (size_t i = 0; i < p->n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(p, i, &b);
        scored += b.scored;
    }
    memset(r->eval_losses, 0, r->n_eval * sizeof *r->eval_losses);
    if (run_forward(r, p, scored ? 1 / (double)scored : 0, r->eval_losses, err))
        return -1;
    if (add_losses(r, p->n_bins, loss, err))
        return -1;
    r->eval_scored = scored > 0;
    if (scored == 0)
        *loss = NAN;
    return 0;
}

int pp_rank_score(struct pp_rank *r, struct pp_err *err)
{
    return run_forward(r, r->job->data, 0, NULL, err);
}
