/* SPDX-License-Identifier: MIT */
/* train - the optimizer steps: passes of the schedule, one norm, one update,
 * one report. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "run/checkpoint/ckpt.h"
#include "run/execute/sync.h"
#include "run/train/finite.h"
#include "run/train/rank.h"
#include "run/train/record.h"

/* After a step each rank sends these doubles to all others: a sum of squares
 * for every tensor of the model (0 if another rank holds it), a loss for every
 * microbatch (0 unless this rank ran its head), then the entries below.
 * Integers below 2^53 are exact. */
enum tail {
    TAIL_COMPUTE,
    TAIL_WALL,
    TAIL_PRODUCTS,
    TAIL_STOP,
    TAIL_DAMAGE,
    TAIL_SLOTS,
    TAIL_MESSAGES,
    TAIL_BYTES,
    N_TAIL
};
_Static_assert((int)N_TAIL <= (int)PP_OWN_NUMBERS, "there is room");

static size_t n_losses(const struct pp_rank *r)
{
    return pp_job_microbatches(r->job) * (size_t)r->job->accumulate;
}

/* Returns the metrics of all microbatches of a step. */
static size_t n_metrics(const struct pp_rank *r)
{
    return r->job->objective ? n_losses(r) * PP_MAX_METRICS : 0;
}

void pp_rank_count(const struct pp_rank *r, size_t n, uint64_t *scored,
                   uint64_t *tokens)
{
    const struct pp_packed *p = r->job->data;
    *scored = *tokens = 0;
    for (size_t k = 0; k < n; k++) {
        struct pp_bin b;
        uint64_t at = (uint64_t)r->microbatches + k;
        pp_packed_bin(p, pp_packed_place(p, at), &b);
        *scored += b.scored;
        *tokens += (uint64_t)b.cu_seqlens[b.n_sequences];
    }
}

struct pp_objective_counts pp_rank_count_objective(const struct pp_rank *r,
                                                   size_t n)
{
    const struct pp_packed *p = r->job->data;
    struct pp_objective_counts sum = {0};
    for (size_t k = 0; k < n; k++)
        pp_scoring_count(r->job->objective, p,
                         pp_packed_place(p, (uint64_t)r->microbatches + k),
                         &sum);
    return sum;
}

static int run_passes(struct pp_rank *r, uint64_t scored, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    size_t m = pp_job_microbatches(j), lane = (size_t)r->worker.place.dp;
    struct pp_device *d = r->device;
    void *grads = r->params.blocks[PP_BLOCK_G];
    if (grads &&
        d->ops->zero(d, grads,
                     r->params.n_elements * r->params.accumulator_bytes, err))
        return -1;
    pp_recorder_mark(&r->recorder, PP_MARK_ZEROED);
    memset(r->losses, 0, n_losses(r) * sizeof *r->losses);
    if (r->metrics)
        memset(r->metrics, 0, n_metrics(r) * sizeof *r->metrics);
    struct pp_objective_counts step = {.tokens = (double)scored};
    if (j->objective)
        step = pp_rank_count_objective(r, n_losses(r));
    for (int i = 0; i < j->accumulate; i++) {
        const struct pp_pass pass = {
            .packed = j->data,
            .first = (uint64_t)r->microbatches + (size_t)i * m + lane,
            .end = UINT64_MAX,
            .stride = (uint64_t)pp_rank_lanes(r),
            .scale = scored ? 1 / (double)scored : 0,
            .sync = i + 1 == j->accumulate,
            .number = i,
            .losses = r->losses + (size_t)i * m + lane,
            .objective = j->objective,
            .step = step,
            .metrics = j->objective ? r->metrics + ((size_t)i * m + lane) *
                                                       PP_MAX_METRICS
                                    : NULL,
            .output = j->output,
            .ctx = j->ctx,
        };
        if (pp_exec_ops.run(&r->train, &pass, err))
            return -1;
    }
    pp_recorder_mark(&r->recorder, PP_MARK_PLAYED);
    return pp_job_replicas(j) > 1 ? pp_sync_data(&r->worker, err) : 0;
}

/* Computes the sum of squares of every tensor of this rank that counts. A
 * second copy has the order of the first and must not overwrite it. */
static int sum_squares(struct pp_rank *r, struct pp_err *err)
{
    size_t n = r->params.n;
    for (size_t i = 0; i < n; i++) {
        const struct pp_parameter *p = &r->params.at[i];
        if (pp_parameter_counts(p) &&
            r->kernels.sum_squares(&r->squares[i], p->g, p->n, r->stream))
            return pp_fail(err, PP_EXIT_SYSTEM, "'%s': norm failed",
                           p->info.name);
    }
    const double *sums = pp_device_read(r->device, r->squares, n * sizeof *sums,
                                        r->squares_host, err);
    for (size_t i = 0; sums && i < n; i++)
        if (pp_parameter_counts(&r->params.at[i]))
            r->mine[r->params.at[i].order] = sums[i];
    return sums ? 0 : -1;
}

static int exchange(struct pp_rank *r, const double tail[N_TAIL],
                    struct pp_err *err)
{
    size_t n = r->n_numbers;
    memset(r->mine, 0, n * sizeof *r->mine);
    if (sum_squares(r, err))
        return -1;
    memcpy(r->mine + r->n_tensors, r->losses, n_losses(r) * sizeof *r->losses);
    if (r->metrics)
        memcpy(r->mine + r->n_tensors + n_losses(r), r->metrics,
               n_metrics(r) * sizeof *r->metrics);
    memcpy(r->mine + n - N_TAIL, tail, N_TAIL * sizeof *tail);
    return r->comm->ops->allgather(r->comm, r->mine, r->all,
                                   n * sizeof *r->mine, err);
}

/* Returns the sum of entry i over the ranks, in their order. At most one rank
 * has a value, or each context-parallel rank has that of its tokens. */
static double entry(const struct pp_rank *r, size_t i)
{
    size_t n = r->n_numbers;
    double sum = 0;
    for (int k = 0; k < r->comm->size; k++)
        sum += r->all[(size_t)k * n + i];
    return sum;
}

/* Combines the metrics of all microbatches, in their order. */
static void combine_metrics(struct pp_rank *r, struct pp_step_report *rep)
{
    if (!r->job->objective)
        return;
    const struct pp_objective *o = pp_objectives[r->job->objective->number];
    size_t first = r->n_tensors + n_losses(r);
    for (size_t k = 0; k < o->n_metrics; k++) {
        enum pp_combine how = o->metrics[k].combine;
        r->sums[k] = pp_metric_neutral(how);
        for (size_t i = 0; i < n_losses(r); i++)
            r->sums[k] = pp_metric_combine(
                how, r->sums[k], entry(r, first + i * PP_MAX_METRICS + k));
    }
    rep->metrics = r->sums;
}

/* Sums the entries of all ranks, tensors in model order and losses in
 * microbatch order, so that the sums do not depend on the split. Returns why a
 * rank was asked to stop, or 0. */
static int sum_up(struct pp_rank *r, struct pp_step_report *rep, bool *damage)
{
    size_t n = r->n_numbers;
    double squares = 0, compute = 0, products = 0, wall = 0;
    int stop = 0;
    rep->loss = 0;
    for (size_t i = 0; i < r->n_tensors; i++)
        squares += entry(r, i);
    for (size_t i = 0; i < n_losses(r); i++)
        rep->loss += entry(r, r->n_tensors + i);
    for (int k = 0; k < r->comm->size; k++) {
        const double *tail = r->all + (size_t)(k + 1) * n - N_TAIL;
        compute += tail[TAIL_COMPUTE];
        products += tail[TAIL_PRODUCTS];
        wall = fmax(wall, tail[TAIL_WALL]);
        if (stop <= 0 && tail[TAIL_STOP] != 0)
            stop = (int)tail[TAIL_STOP];
        *damage |= tail[TAIL_DAMAGE] != 0;
        r->peak_slots[k] = (int)tail[TAIL_SLOTS];
        rep->messages += (uint64_t)tail[TAIL_MESSAGES];
        rep->message_bytes += (uint64_t)tail[TAIL_BYTES];
    }
    combine_metrics(r, rep);
    rep->grad_norm = sqrt(squares);
    rep->bubble =
        r->device->ops->is_host ? 1 - compute / (r->comm->size * wall) : -1;
    rep->products = r->job->time_products ? products / compute : -1;
    rep->peak_slots = r->peak_slots;
    return stop;
}

static int inspect(const struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    const struct pp_inspection at = {r->comm->rank, r->step, &r->params};
    return j->inspect ? j->inspect(j->ctx, &at, err) : 0;
}

static bool finds_damage(const struct pp_job *j)
{
    struct pp_err ignored = {0};
    return j->check_files && j->check_files(j->ctx, false, &ignored);
}

static int train_step(struct pp_rank *r, struct pp_step_report *rep, int *stop,
                      struct pp_err *err)
{
    const struct pp_job *j = r->job;
    double start = pp_clock(), compute = r->train.compute_seconds;
    double pass_seconds = r->train.seconds;
    double products = r->timed.product_seconds;
    uint64_t messages = r->train.messages, bytes = r->train.message_bytes;
    uint64_t scored;
    pp_progress_phase(j->progress, PP_PHASE_TRAIN, r->step + 1);
    pp_recorder_step(&r->recorder);
    pp_rank_count(r, n_losses(r), &scored, &rep->tokens);
    if (run_passes(r, scored, err))
        return -1;
    pp_progress_phase(j->progress, PP_PHASE_UPDATE, r->step + 1);
    const double tail[N_TAIL] = {
        [TAIL_COMPUTE] = r->train.compute_seconds - compute,
        [TAIL_WALL] = r->train.seconds - pass_seconds,
        [TAIL_PRODUCTS] = r->timed.product_seconds - products,
        [TAIL_STOP] = j->stop ? j->stop(j->ctx) : 0,
        [TAIL_DAMAGE] = finds_damage(j),
        [TAIL_SLOTS] = r->train.peak_slots,
        [TAIL_MESSAGES] = (double)(r->train.messages - messages),
        [TAIL_BYTES] = (double)(r->train.message_bytes - bytes),
    };
    if (exchange(r, tail, err))
        return -1;
    pp_recorder_mark(&r->recorder, PP_MARK_EXCHANGED);
    bool damage = false;
    *stop = sum_up(r, rep, &damage);
    if (damage && pp_rank_check_files(r, false, err))
        return -1;
    rep->step = r->step + 1;
    rep->lr = pp_optim_lr(&j->optim, rep->step);
    /* With an inspect callback, non-finite values are its concern. */
    if (!j->inspect && pp_rank_check_step(r, rep, err))
        return -1;
    if (!j->inspect && scored == 0)
        rep->loss = NAN;
    if (inspect(r, err))
        return -1;
    if (pp_optim_update(&j->optim, &r->kernels, &r->params, rep->step,
                        pp_optim_clip(&j->optim, rep->grad_norm), r->stream,
                        err))
        return -1;
    pp_recorder_mark(&r->recorder, PP_MARK_UPDATED);
    r->step++;
    r->microbatches += (int64_t)n_losses(r);
    /* The times can be read only from a device that is idle. */
    if (j->record.n_steps && r->device->ops->wait(r->device, err))
        return -1;
    rep->seconds = pp_clock() - start;
    return pp_recorder_read(&r->recorder, err);
}

/* Writes a checkpoint if training can continue from it. In haste it looks at
 * the weights only. */
static int save(struct pp_rank *r, bool haste, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    if (pp_rank_check_weights(r, err) || (!haste && pp_rank_check_loss(r, err)))
        return -1;
    const struct pp_ckpt c = {j->save,        r->comm,
                              &r->params,     j->tokenizer_source,
                              j->config_text, j->keep};
    const struct pp_ckpt_state s = {
        .step = r->step,
        .microbatches = r->microbatches,
        .n_microbatches = j->schedule->n_microbatches,
        .accumulate = j->accumulate,
        .dp = pp_rank_lanes(r),
        .data_checksum = j->data->checksum.value,
        .optimizer = j->optim.optimizer,
        .betas = {j->optim.beta1, j->optim.beta2},
    };
    pp_progress_phase(j->progress, PP_PHASE_SAVE, r->step);
    return pp_ckpt_save(&c, &s, err);
}

static bool is_due(int64_t every, const struct pp_rank *r, bool last)
{
    return last || (every > 0 && r->step % every == 0);
}

/* Checks that enough steps are left to record. A checkpoint may have more steps
 * than the job asks for. */
static int check_steps(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    int64_t left = r->step < j->optim.steps ? j->optim.steps - r->step : 0;
    int need = j->record.layers ? PP_WARM_UP_STEPS + 1
                                : j->record.n_steps > 0 || j->dump_grads;
    if (left >= need)
        return 0;
    if (pp_rank_leave_to_0(r, PP_EXIT_INPUT, err))
        return -1;
    return pp_fail(
        err, PP_EXIT_INPUT, "%s takes %d step%s or more, and %lld %s left",
        j->record.layers    ? "a profile"
        : j->record.n_steps ? "a trace"
                            : "a dump of gradients",
        need, need == 1 ? "" : "s", (long long)left, left == 1 ? "is" : "are");
}

int pp_rank_train(struct pp_rank *r, enum pp_exit *status, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    int stop = 0;
    if (check_steps(r, err))
        return -1;
    while (r->step < j->optim.steps && !stop) {
        struct pp_step_report rep = {0};
        if (train_step(r, &rep, &stop, err))
            return -1;
        bool last = r->step == j->optim.steps;
        rep.stop = stop;
        /* After a stop request little time may be left, so the checkpoint comes
         * first and no loss is computed with it. The reader of the report may
         * be gone. */
        if (stop && j->save && save(r, true, err))
            return -1;
        rep.has_val_loss = j->eval && is_due(j->eval_every, r, last);
        if (rep.has_val_loss && pp_rank_evaluate(r, &rep.val_loss, err))
            return -1;
        /* The step is done: report it before a write can fail. */
        if (r->comm->rank == 0 && j->report(j->ctx, &rep, err))
            return -1;
        if (rep.has_val_loss && pp_rank_check_evaluation(r, rep.val_loss, err))
            return -1;
        if (j->dump_grads && last &&
            pp_ckpt_dump_grads(j->dump_grads, r->comm, &r->params, err))
            return -1;
        if (!stop && j->save && is_due(j->save_every, r, last) &&
            save(r, false, err))
            return -1;
        if (stop && !last)
            *status = PP_EXIT_STOPPED;
        if (last && inspect(r, err))
            return -1;
    }
    return j->record.n_steps ? pp_rank_gather_record(r, err) : 0;
}
