/* SPDX-License-Identifier: MIT */
/* train - the optimizer steps: passes of the schedule, one norm, one update,
 * one report. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/save.h"
#include "run/execute/sync.h"
#include "run/parameters/gradients.h"
#include "run/train/finite.h"
#include "run/train/rank.h"
#include "run/train/record.h"

void pp_rank_count(const struct pp_rank *r, size_t n, uint64_t *scored,
                   uint64_t *tokens)
{
    const struct pp_packed *p = r->job->data;
    *scored = *tokens = 0;
    for (size_t k = 0; k < n; k++) {
        struct pp_bin b;
        size_t bin = pp_packed_place(p, (uint64_t)r->microbatches + k);
        if (bin == PP_NO_BIN)
            continue;
        pp_packed_bin(p, bin, &b);
        *scored += b.scored;
        *tokens += (uint64_t)b.cu_seqlens[b.n_sequences];
    }
}

/* Makes the loss of the generator in a step. */
static struct pp_generator_loss generator_loss(const struct pp_rank *r)
{
    const struct pp_packed *p = r->job->data;
    struct pp_generator_loss l = {.weight = r->job->settings.generator_weight,
                                  .sum = r->other_loss};
    uint64_t scored = 0;
    for (size_t k = 0; r->job->model->generator && k < pp_rank_n_losses(r);
         k++) {
        struct pp_bin b;
        size_t bin = pp_packed_place(p, (uint64_t)r->microbatches + k);
        if (bin == PP_NO_BIN)
            continue;
        pp_packed_generator_bin(p, bin, &b);
        scored += b.scored;
    }
    l.scale = scored ? 1 / (double)scored : 0;
    return l;
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

/* Makes the losses of routers in a step of so many tokens. Parts without tokens
 * do not count. */
static struct pp_router_losses router_losses(const struct pp_rank *r,
                                             uint64_t tokens)
{
    const struct pp_packed *p = r->job->data;
    const struct pp_router_options *o = &r->job->settings.router;
    bool documents = pp_router_rules[o->rule].documents;
    struct pp_router_losses l = {.options = o,
                                 .tokens = (double)tokens,
                                 .loads = r->loads,
                                 .tokens_of = pp_rank_load_room(r)};
    for (size_t k = 0; k < pp_rank_n_losses(r); k++) {
        struct pp_bin b;
        size_t bin = pp_packed_place(p, (uint64_t)r->microbatches + k);
        if (bin == PP_NO_BIN)
            continue;
        pp_packed_bin(p, bin, &b);
        uint32_t filled = 0;
        for (uint32_t i = 0; i < b.n_sequences; i++)
            filled += b.cu_seqlens[i + 1] > b.cu_seqlens[i];
        l.parts += documents ? filled : filled > 0;
    }
    return l;
}

/* Begins gradients, losses and metrics. */
static int clear_sums(struct pp_rank *r, struct pp_err *err)
{
    if (pp_gradients_begin(&r->params, err))
        return -1;
    pp_recorder_mark(&r->recorder, PP_MARK_ZEROED);
    if (r->metrics)
        memset(r->metrics, 0, pp_rank_n_metrics(r) * sizeof *r->metrics);
    return pp_rank_clear_losses(r, pp_rank_n_losses(r) + 1, err);
}

/* Returns pass i of a step, whose counts are given. */
static struct pp_pass pass_of(struct pp_rank *r, int i,
                              const struct pp_objective_counts *step,
                              uint64_t scored)
{
    const struct pp_job *j = r->job;
    size_t at = (size_t)i * pp_job_microbatches(j) + pp_rank_lane(r);
    size_t n_metrics = PP_MAX_METRICS * (size_t)r->env.context.group.n;
    return (struct pp_pass){
        .packed = j->data,
        .first = (uint64_t)r->microbatches + at,
        .end = UINT64_MAX,
        .stride = (uint64_t)pp_rank_lanes(r),
        .scale = scored ? 1 / (double)scored : 0,
        .temperature = j->temperature,
        .sync = i + 1 == j->accumulate,
        .number = i,
        .losses = r->losses + at,
        .objective = j->objective,
        .reference = j->reference == PP_REFERENCE_BASE ? r->reference : NULL,
        .step = *step,
        .metrics = j->objective ? r->metrics + at * n_metrics : NULL,
        .n_metrics = n_metrics,
        .router = pp_job_counts_routes(j) || r->loads ? &r->router : NULL,
        .expert_rounds = &r->router.rounds,
        .ahead = j->model->n_mtp ? &r->ahead : NULL,
        .generator = j->model->generator ? &r->of_generator : NULL,
        .given = j->given,
        .taken = j->taken,
        .output = j->output,
        .ctx = j->ctx,
    };
}

static int run_passes(struct pp_rank *r, uint64_t scored, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    if (clear_sums(r, err))
        return -1;
    struct pp_objective_counts step = {.tokens = (double)scored};
    if (j->objective)
        step = pp_rank_count_objective(r, pp_rank_n_losses(r));
    for (int i = 0; i < j->accumulate; i++) {
        const struct pp_pass pass = pass_of(r, i, &step, scored);
        if (pp_exec_ops.run(&r->train, &pass, err))
            return -1;
    }
    pp_recorder_mark(&r->recorder, PP_MARK_PLAYED);
    return pp_gradients_settle(&r->params, PP_ALL, PP_ALL, err) ||
                   pp_sync_tensor(&r->worker, err)
               ? -1
               : 0;
}

/* Returns what this rank has to tell, as enum pp_own_flags. */
static unsigned own_flags(const struct pp_rank *r)
{
    const struct pp_job *j = r->job;
    struct pp_err ignored = {0};
    unsigned flags = 0;
    if (j->check_files && j->check_files(j->ctx, false, &ignored))
        flags |= PP_OWN_DAMAGE;
    if (j->stream_asked && j->stream_asked(j->ctx))
        flags |= PP_OWN_STREAM;
    if (r->saving && !pp_saving_is_idle(r->saving))
        flags |= PP_OWN_SAVING;
    return flags;
}

/* Returns how often the host has waited for the queues of this rank. */
static uint64_t count_waits(const struct pp_rank *r)
{
    const struct pp_device *all[] = {r->env.device, r->env.reader.device,
                                     r->beside.device, r->beside.reader.device};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        n += all[i] ? all[i]->waits : 0;
    return n;
}

/* Returns the sums over all steps. */
static struct pp_own_numbers numbers_so_far(const struct pp_rank *r)
{
    return (struct pp_own_numbers){
        .compute_seconds = r->train.compute_seconds,
        .seconds = r->train.seconds,
        .product_seconds = r->timed.product_seconds,
        .messages = r->train.messages,
        .message_bytes = r->train.message_bytes,
    };
}

/* Returns the numbers of the step that began with these sums. */
static struct pp_own_numbers
numbers_of_step(const struct pp_rank *r, const struct pp_own_numbers *before)
{
    const struct pp_job *j = r->job;
    struct pp_own_numbers own = numbers_so_far(r);
    own.compute_seconds -= before->compute_seconds;
    own.seconds -= before->seconds;
    own.product_seconds -= before->product_seconds;
    own.messages -= before->messages;
    own.message_bytes -= before->message_bytes;
    own.stop = j->stop ? j->stop(j->ctx) : 0;
    own.flags = own_flags(r);
    own.peak_slots = r->train.peak_slots;
    return own;
}

/* Collective. Exchanges the hashes of the packed sequences of the step. */
static int gather_metadata(struct pp_rank *r, struct pp_step_report *rep,
                           struct pp_err *err)
{
    const uint64_t mine = pp_metadata_hash(&r->metadata);
    pp_metadata_clear(&r->metadata);
    rep->metadata = r->hashes;
    return r->env.comm->ops->allgather(r->env.comm, &mine, r->hashes,
                                       sizeof mine, err);
}

/* Collective. Adds up the digests of all ranks. */
static int gather_digests(struct pp_rank *r, struct pp_step_report *rep,
                          struct pp_err *err)
{
    size_t n = (size_t)r->worker.graph->n_stages * PP_DIGEST_N;
    uint64_t *of_ranks = r->digests + n;
    if (r->env.comm->ops->allgather(r->env.comm, r->digests, of_ranks,
                                    n * sizeof *r->digests, err))
        return -1;
    for (size_t i = n; i < n * (size_t)r->env.comm->size; i++)
        of_ranks[i % n] += of_ranks[i];
    memset(r->digests, 0, n * sizeof *r->digests);
    rep->digests = of_ranks;
    return 0;
}

/* A checkpoint that is being written has the weights before the update. */
static int update(struct pp_rank *r, const struct pp_step_report *rep,
                  struct pp_err *err)
{
    const struct pp_optim *o = &r->job->optim;
    if (r->saving)
        pp_saving_wait(r->saving);
    if (pp_optim_update(o, &r->kernels, &r->params, rep->step,
                        pp_optim_clip(o, rep->grad_norm), r->env.stream, err) ||
        pp_exec_ops.gather(&r->worker, PP_BLOCK_W, err))
        return -1;
    pp_recorder_mark(&r->recorder, PP_MARK_UPDATED);
    return 0;
}

/* Makes a step. Adds the flags of all ranks to *flags, and sets *stop to why a
 * rank was asked to stop, or to 0. */
static int train_step(struct pp_rank *r, struct pp_step_report *rep, int *stop,
                      unsigned *flags, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    const struct pp_own_numbers before = numbers_so_far(r);
    const uint64_t waits = count_waits(r);
    double start = pp_clock();
    uint64_t scored;
    pp_progress_phase(j->progress, PP_PHASE_TRAIN, r->step + 1);
    pp_recorder_step(&r->recorder);
    pp_rank_count(r, pp_rank_n_losses(r), &scored, &rep->tokens);
    r->router = router_losses(r, rep->tokens);
    r->ahead = (struct pp_ahead_loss){.weight = j->settings.mtp_weight,
                                      .sum = r->other_loss};
    r->of_generator = generator_loss(r);
    if (run_passes(r, scored, err))
        return -1;
    pp_progress_phase(j->progress, PP_PHASE_UPDATE, r->step + 1);
    const struct pp_own_numbers own = numbers_of_step(r, &before);
    if (pp_rank_exchange(r, &own, err) ||
        (j->metadata && gather_metadata(r, rep, err)) ||
        (r->digests && gather_digests(r, rep, err)))
        return -1;
    pp_recorder_mark(&r->recorder, PP_MARK_EXCHANGED);
    *stop = pp_rank_report(r, rep, flags);
    if (*flags & PP_OWN_DAMAGE && pp_rank_check_files(r, false, err))
        return -1;
    rep->step = r->step + 1;
    rep->lr = pp_optim_lr(&j->optim, rep->step);
    /* With an inspect callback, non-finite values are its concern. */
    if (!j->inspect && pp_rank_check_step(r, rep, err))
        return -1;
    if (!j->inspect && scored == 0 && !j->model->scores)
        rep->loss = NAN;
    if (pp_rank_inspect(r, err) || update(r, rep, err))
        return -1;
    r->step++;
    r->microbatches += (int64_t)pp_rank_n_losses(r);
    /* The times can be read only from a device that is idle. */
    if (j->record.n_steps && r->env.device->ops->wait(r->env.device, err))
        return -1;
    rep->seconds = pp_clock() - start;
    rep->waits = count_waits(r) - waits;
    return pp_recorder_read(&r->recorder, err);
}

static bool is_due(int64_t every, const struct pp_rank *r, bool last)
{
    return last || (every > 0 && r->step % every == 0);
}

/* No step comes after the last, so that training has nothing to wait for. */
static enum pp_save_manner manner_of(const struct pp_job *j, bool last)
{
    return j->save_background && !last ? PP_SAVE_BESIDE : PP_SAVE_NOW;
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

static int dump_grads(struct pp_rank *r, struct pp_err *err)
{
    return pp_exec_ops.gather(&r->worker, PP_BLOCK_G, err) ||
                   pp_ckpt_dump_grads(r->job->dump_grads, r->env.comm,
                                      &r->params, err)
               ? -1
               : 0;
}

/* Writes what the step made: gradients, a checkpoint and streamed weights. The
 * checkpoint is written if gradients cannot be, and before weights are
 * streamed; but its check of the loss overwrites gradients. */
static int write_step(struct pp_rank *r, unsigned flags, bool stop, bool last,
                      struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_err lost = {0};
    int rc = j->dump_grads && last ? dump_grads(r, &lost) : 0;
    if (r->saving && !(flags & PP_OWN_SAVING) && pp_rank_advance_save(r, err))
        return -1;
    if (!stop && j->save && is_due(j->save_every, r, last) &&
        pp_rank_save(r, manner_of(j, last), err))
        return -1;
    if (rc) {
        *err = lost;
        return -1;
    }
    if (!stop && j->stream.path &&
        (flags & PP_OWN_STREAM || is_due(j->stream.every, r, last)) &&
        pp_rank_stream(r, err))
        return -1;
    return 0;
}

int pp_rank_train(struct pp_rank *r, enum pp_exit *status, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    int stop = 0;
    if (check_steps(r, err))
        return -1;
    if (j->save && r->step >= j->optim.steps && pp_rank_save_resumed(r, err))
        return -1;
    if (j->eval_at_start && r->step == 0 && pp_rank_evaluate_alone(r, err))
        return -1;
    while (r->step < j->optim.steps && !stop) {
        struct pp_step_report rep = {0};
        unsigned flags = 0;
        if (train_step(r, &rep, &stop, &flags, err))
            return -1;
        bool last = r->step == j->optim.steps;
        rep.stop = stop;
        /* After a stop request little time may be left, so the checkpoint comes
         * first and no loss is computed with it. The reader of the report may
         * be gone. */
        if (stop && j->save && pp_rank_save(r, PP_SAVE_IN_HASTE, err))
            return -1;
        if (j->eval && is_due(j->eval_every, r, last) &&
            pp_rank_evaluate(r, &rep, err))
            return -1;
        /* The step is done: report it before a write can fail. */
        if (r->env.comm->rank == 0 && j->report(j->ctx, &rep, err))
            return -1;
        if (rep.has_val_loss && pp_rank_check_evaluation(r, rep.val_loss, err))
            return -1;
        if (write_step(r, flags, stop, last, err))
            return -1;
        if (stop && !last)
            *status = PP_EXIT_STOPPED;
        if (last && pp_rank_inspect(r, err))
            return -1;
    }
    return j->record.n_steps ? pp_rank_gather_record(r, err) : 0;
}
