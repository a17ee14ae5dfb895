/* SPDX-License-Identifier: MIT */
/* evaluate - forward-only passes: validation loss, log-probabilities, and the
 * reference of an objective. */
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "comm/tree.h"

#include "run/checkpoint/agree.h"
#include "run/train/finite.h"
#include "run/train/rank.h"
#include "run/train/reference_file.h"

/* A way through bins of a set. */
struct forward {
    const struct pp_packed *packed;
    uint64_t first, end; /* places: 0 to n_bins are all bins in order */
    double scale;        /* as in struct pp_pass */
    double *losses;      /* (n_eval) of the bins in order; or NULL */
    double *metrics;     /* of all bins, combined; or NULL */
    bool score_all;
    bool base;               /* without adapters */
    pp_take_scores_fn *take; /* or NULL: nothing is scored */
    /* Notes what take gets: pp_rank_note_scores, or one like it. */
    void (*note)(void *ctx, size_t bin, const struct pp_host_microbatch *host);
    void *ctx;
    struct pp_generator_loss *generator; /* or NULL */
    const struct pp_sampler *sampler;    /* or NULL */
    uint64_t draw;
};

/* Adds the metrics of a pass to the metrics of the passes before. */
static int add_metrics(struct pp_rank *r, double *combined, struct pp_err *err)
{
    size_t n = pp_rank_n_metrics(r) / (size_t)r->job->accumulate;
    if (pp_rank_add_up(r, r->metrics, n, err))
        return -1;
    pp_rank_combine(r, r->sums, n / PP_MAX_METRICS, combined);
    return 0;
}

/* Returns the reference of the positions of a set, or NULL. That of the eval
 * data follows that of the data. */
static float *reference_of(const struct pp_rank *r, const struct pp_packed *p)
{
    bool is_eval = p == r->job->eval;
    return r->job->reference == PP_REFERENCE_BASE
               ? r->reference + (is_eval ? r->job->data->n_positions : 0)
               : NULL;
}

/* Takes the losses of the pass whose first bin this is. */
static int take_losses(struct pp_rank *r, const struct forward *f,
                       uint64_t first, struct pp_err *err)
{
    size_t m = pp_job_microbatches(r->job);
    if (pp_rank_read_sums(r, m, err))
        return -1;
    memcpy(f->losses + first, r->host_sums, m * sizeof *r->host_sums);
    return 0;
}

/* Runs bins through the forward schedule, in passes of n_microbatches. Empty
 * microbatches fill up the last pass. Writes a loss for each microbatch if this
 * rank runs its head. */
static int run_forward(struct pp_rank *r, const struct forward *f,
                       struct pp_err *err)
{
    const struct pp_job *j = r->job;
    const struct pp_packed *p = f->packed;
    struct pp_objective_counts step = {0};
    const struct pp_objective_options *objective =
        j->score || f->base ? NULL : j->objective;
    for (size_t i = 0; objective && i < p->n_bins; i++)
        pp_scoring_count(j->objective, p, i, &step);
    uint64_t m = pp_job_microbatches(j), lane = pp_rank_lane(r);
    size_t n_metrics = PP_MAX_METRICS * (size_t)r->env.context.group.n;
    if (f->metrics)
        pp_rank_combine_none(r, f->metrics);
    pp_progress_phase(j->progress, PP_PHASE_EVALUATE, r->step);
    for (uint64_t first = f->first; first < f->end; first += m) {
        const struct pp_pass pass = {
            .packed = p,
            .first = first + lane,
            .end = f->end,
            .stride = (uint64_t)pp_rank_lanes(r),
            .scale = f->scale,
            .temperature = j->temperature,
            .score_all = f->score_all,
            .generator = f->generator,
            .base = f->base,
            .objective = objective,
            .reference = reference_of(r, p),
            .step = step,
            .metrics = f->metrics ? r->metrics + lane * n_metrics : NULL,
            .n_metrics = n_metrics,
            .losses = r->losses + lane,
            .logps = f->note,
            .scored = &r->scored,
            .top_k = j->score ? j->top_k : 0,
            .entropy = j->score && j->entropy,
            .sampler = f->sampler,
            .draw = f->draw,
            .draws = j->generate.n,
            .given = p == j->data && !f->base ? j->given : NULL,
            .taken = p == j->data && !f->base ? j->taken : NULL,
            .ctx = r,
        };
        if (f->metrics)
            memset(r->metrics, 0, pp_rank_n_metrics(r) * sizeof *r->metrics);
        if ((f->losses && pp_rank_clear_losses(r, m, err)) ||
            pp_exec_ops.run(&r->forward, &pass, err) ||
            (f->losses && take_losses(r, f, first, err)) ||
            (f->metrics && add_metrics(r, f->metrics, err)) ||
            (f->take && pp_rank_hand_over(r, f->take, f->ctx, err)))
            return -1;
        /* So that memory does not grow with the data. */
        pp_packed_release(p);
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

/* Adds up the generator's loss over the ranks. */
static int add_generator(struct pp_rank *r, const struct pp_generator_loss *l,
                         double *loss, struct pp_err *err)
{
    size_t other = pp_rank_n_losses(r);
    if (pp_rank_read_sums(r, other + 1, err) ||
        pp_rank_add_up(r, r->host_sums + other, 1, err))
        return -1;
    *loss = l->scale > 0 ? r->sums[0] : NAN;
    return 0;
}

int pp_rank_evaluate(struct pp_rank *r, struct pp_step_report *rep,
                     struct pp_err *err)
{
    const struct pp_packed *p = r->job->eval;
    bool generates = r->job->model->generator != NULL;
    const uint64_t scored = pp_packed_scored(p, false);
    const uint64_t generated = generates ? pp_packed_scored(p, true) : 0;
    struct pp_generator_loss generator = {
        .scale = generated ? 1 / (double)generated : 0, .sum = r->other_loss};
    memset(r->eval_losses, 0, r->n_eval * sizeof *r->eval_losses);
    if (generates && pp_rank_clear_losses(r, pp_rank_n_losses(r) + 1, err))
        return -1;
    const struct forward f = {.packed = p,
                              .end = p->n_bins,
                              .scale = scored ? 1 / (double)scored : 0,
                              .losses = r->eval_losses,
                              .metrics =
                                  r->job->objective ? r->eval_combined : NULL,
                              .generator = &generator};
    if (run_forward(r, &f, err))
        return -1;
    if (add_losses(r, p->n_bins, &rep->val_loss, err) ||
        (generates &&
         add_generator(r, &generator, &rep->val_generator_loss, err)))
        return -1;
    r->eval_scored = scored > 0;
    if (scored == 0)
        rep->val_loss = NAN;
    rep->has_val_loss = true;
    rep->val_metrics = f.metrics;
    return 0;
}

int pp_rank_evaluate_alone(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_step_report rep = {.step = r->step};
    if (pp_rank_evaluate(r, &rep, err) ||
        pp_rank_check_evaluation(r, rep.val_loss, err) ||
        pp_rank_check_files(r, !pp_job_trains(j), err))
        return -1;
    return r->env.comm->rank == 0 ? j->evaluated(j->ctx, &rep, err) : 0;
}

int pp_rank_score(struct pp_rank *r, struct pp_err *err)
{
    const struct forward f = {.packed = r->job->data,
                              .end = r->job->data->n_bins,
                              .score_all = true,
                              .take = r->job->scored,
                              .note = pp_rank_note_scores,
                              .ctx = r->job->ctx};
    return run_forward(r, &f, err);
}

int pp_rank_draw(struct pp_rank *r, const struct pp_packed *p,
                 const struct pp_sampler *s, uint64_t draw,
                 pp_take_scores_fn *take, void *ctx, struct pp_err *err)
{
    const struct forward f = {.packed = p,
                              .end = p->n_bins,
                              .take = take,
                              .note = pp_rank_note_scores,
                              .ctx = ctx,
                              .sampler = s,
                              .draw = draw};
    return run_forward(r, &f, err);
}

/* Notes the scored tokens of a microbatch by bin, and position in it. */
static void note_reference(void *ctx, size_t bin,
                           const struct pp_host_microbatch *host)
{
    struct pp_rank *r = ctx;
    const struct pp_microbatch *mb = &host->of;
    size_t part = 0;
    struct pp_bin b;
    if (bin == PP_NO_BIN)
        return;
    pp_packed_bin(r->forward.pass->packed, bin, &b);
    for (size_t k = 0; k < mb->scored.n; k++) {
        r->scored.at[r->scored.n] = (struct pp_token_place){
            (uint32_t)bin, (uint32_t)pp_batch_predicts(&b, host, k, &part)};
        r->scored.values[r->scored.n++] = mb->loss.logps[k];
    }
}

/* A set and its reference. */
struct referred {
    const struct pp_packed *packed;
    float *at;
};

static void take_reference(void *ctx, const struct pp_token_place *at,
                           const double *values, size_t n)
{
    const struct referred *of = ctx;
    struct pp_bin b = {0};
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || at[k].sequence != at[k - 1].sequence)
            pp_packed_bin(of->packed, at[k].sequence, &b);
        of->at[b.first_position + at[k].position] = (float)values[k];
    }
}

/* Fills the reference of the bins at places of a set on rank 0. */
static int refer(struct pp_rank *r, const struct pp_packed *p, uint64_t first,
                 uint64_t end, struct pp_err *err)
{
    struct referred to = {p, reference_of(r, p)};
    const struct forward f = {.packed = p,
                              .first = first,
                              .end = end,
                              .base = true,
                              .take = take_reference,
                              .note = note_reference,
                              .ctx = &to};
    return run_forward(r, &f, err);
}

/* Returns a checksum of what the reference depends on. */
static uint64_t reference_key(const struct pp_rank *r)
{
    const struct pp_job *j = r->job;
    const struct pp_epoch_order *o = &j->data->epoch;
    uint64_t temperature;
    memcpy(&temperature, &j->temperature, sizeof temperature);
    const uint64_t of[] = {j->base_checksum,
                           j->data->checksum,
                           j->data->n_positions,
                           o->block,
                           o->seed,
                           o->length,
                           j->eval ? j->eval->checksum : 0,
                           j->eval ? j->eval->n_positions : 0,
                           r->kernels.element_bytes,
                           temperature};
    return pp_checksum_of(of, sizeof of);
}

/* Takes the reference that the run made before it stopped, from beside the
 * checkpoint that it goes on with. Rank 0 reads. */
static int take_back(struct pp_rank *r, const struct pp_reference_file *f,
                     bool *taken, struct pp_err *err)
{
    const char *path = r->job->resume;
    double has = 0;
    /* A base from a seed has no checksum. */
    if (r->env.comm->rank == 0 && path && r->job->base_checksum) {
        char *dir = strdup(path);
        has = dir && pp_reference_read(f, dirname(dir));
        free(dir);
    }
    if (pp_rank_add_up(r, &has, 1, err))
        return -1;
    *taken = r->sums[0] != 0;
    return 0;
}

int pp_rank_refer(struct pp_rank *r, struct pp_err *err)
{
    enum { PART_BYTES = 1 << 20 };
    const struct pp_job *j = r->job;
    const struct pp_packed *data = j->data;
    /* In its order, without an end of epochs, this has every bin: an epoch that
     * leaves some out has others than the next. */
    struct pp_packed all = *data;
    all.epoch = (struct pp_epoch_order){0};
    int64_t steps = j->optim.steps > r->step ? j->optim.steps - r->step : 0;
    bool whole = (uint64_t)steps >= pp_packed_epoch(data) / pp_rank_n_losses(r);
    uint64_t first = whole ? 0 : (uint64_t)r->microbatches;
    uint64_t end =
        whole ? UINT64_MAX : first + (uint64_t)steps * pp_rank_n_losses(r);
    const struct pp_reference_file file = {
        reference_key(r), first, end, r->reference,
        data->n_positions + (j->eval ? j->eval->n_positions : 0)};
    bool taken;
    if (take_back(r, &file, &taken, err))
        return -1;
    if (!taken &&
        (refer(r, whole ? &all : data, first, whole ? all.n_bins : end, err) ||
         (j->eval && refer(r, j->eval, 0, j->eval->n_bins, err))))
        return -1;
    if (j->save && j->base_checksum) {
        int rc = r->env.comm->rank == 0
                     ? pp_reference_write(&file, j->save, err)
                     : 0;
        if (pp_agree(r->env.comm, rc, err))
            return -1;
    }
    size_t left = file.n * sizeof(float);
    char *at = (char *)r->reference;
    for (size_t n; left > 0; at += n, left -= n) {
        n = left < PART_BYTES ? left : PART_BYTES;
        if (pp_tree_broadcast(r->env.comm, at, n, err))
            return -1;
    }
    return 0;
}
