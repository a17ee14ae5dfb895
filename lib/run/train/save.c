/* SPDX-License-Identifier: MIT */
/* save - checkpoints of a run, and versions of its weights for a sampler. */
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/save.h"
#include "run/checkpoint/stream.h"
#include "run/train/finite.h"
#include "run/train/rank.h"

/* Versions that stay in a directory: a reader that has just followed `latest`
 * has the time of a whole version to open the files. */
enum { KEEP_VERSIONS = 2 };

static struct pp_ckpt_state state_of(const struct pp_rank *r)
{
    const struct pp_job *j = r->job;
    struct pp_ckpt_state s = {
        .step = r->step,
        .microbatches = r->microbatches,
        .step_microbatches = (int64_t)pp_rank_n_losses(r),
        .data_checksum = j->data->origin,
        .base_checksum = j->base_checksum,
        .optimizer = j->optim.optimizer,
        .betas = {j->optim.beta1, j->optim.beta2},
        .lr = j->optim.lr,
        .epoch_microbatches = (int64_t)pp_packed_epoch(j->data),
    };
    pp_settings_write(&j->settings, s.settings);
    return s;
}

static int write_checkpoint(struct pp_rank *r, const struct pp_ckpt *c,
                            struct pp_err *err)
{
    const struct pp_ckpt_state s = state_of(r);
    pp_progress_phase(r->job->progress, PP_PHASE_SAVE, r->step);
    return pp_ckpt_save(c, &s, err);
}

/* Returns what checkpoints and versions in directories have in common. */
static struct pp_ckpt in_directory(struct pp_rank *r, const char *dir)
{
    const struct pp_job *j = r->job;
    /* A transport of devices connects the ranks that divide tensors, and ranks
     * that hold the same ones, but not all ranks of a row (pp_job_channels). */
    const struct pp_env *env = &r->env;
    bool all = pp_env_is_host(env);
    struct pp_group owners = {0};
    if (!all)
        owners = pp_layout_group(&env->layout, &env->place, PP_GROUP_DATA);
    return (struct pp_ckpt){
        .dir = dir,
        .comm = r->env.comm,
        .model = j->model,
        .params = &r->params,
        .group = pp_layout_group(&env->layout, &env->place,
                                 all ? PP_GROUP_ROW : PP_GROUP_TP),
        .owners = owners,
        .room = r->arena,
        .room_bytes = pp_rank_arena(&r->memory.bytes),
        .source = j->model->lora ? NULL : j->model_source,
        .config_text = j->config_text,
        .generator_config = j->generator_config,
        .shard_size = j->shard_size ? j->shard_size : PP_CKPT_SHARD_SIZE,
        .save_bytes = j->save_bytes,
    };
}

int pp_rank_advance_save(struct pp_rank *r, struct pp_err *err)
{
    bool done;
    if (pp_saving_next(r->saving, &done, err))
        return -1;
    if (done) {
        pp_saving_end(r->saving);
        r->saving = NULL;
    }
    return 0;
}

int pp_rank_save(struct pp_rank *r, enum pp_save_manner how, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_ckpt c = in_directory(r, j->save);
    c.keep = j->keep;
    /* A checkpoint contains what the data taught it. After a stop request there
     * is no time to read all of them; the run that resumes does. */
    if (how != PP_SAVE_IN_HASTE)
        c.check = j->check_files;
    c.ctx = j->ctx;
    pp_progress_phase(j->progress, PP_PHASE_SAVE, r->step);
    while (r->saving)
        if (pp_rank_advance_save(r, err))
            return -1;
    if (pp_rank_check_weights(r, err) ||
        (how == PP_SAVE_NOW && pp_rank_check_loss(r, err)))
        return -1;
    if (how != PP_SAVE_BESIDE)
        return write_checkpoint(r, &c, err);
    /* The next step finds their loss and gradient before the checkpoint is
     * complete. */
    const struct pp_ckpt_state s = state_of(r);
    return pp_saving_begin(&c, &s, true, &r->saving, err);
}

/* Rank 0 looks for the checkpoint: on a network file system the others may see
 * less. */
int pp_rank_save_resumed(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    const double missing =
        r->env.comm->rank == 0 && !pp_ckpt_exists(j->save, r->step);
    if (pp_rank_add_up(r, &missing, 1, err))
        return -1;
    return r->sums[0] != 0 ? pp_rank_save(r, PP_SAVE_NOW, err) : 0;
}

static int stream_to_reader(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    char why[256];
    const struct pp_stream s = {.path = j->stream.path,
                                .comm = r->env.comm,
                                .params = &r->params,
                                .save_bytes = j->save_bytes,
                                .step = r->step,
                                .timeout = j->stream.timeout,
                                .stop = j->stop,
                                .ctx = j->ctx};
    pp_progress_phase(j->progress, PP_PHASE_SAVE, r->step);
    if (pp_ckpt_stream(&s, why, err))
        return -1;
    if (why[0] && j->stream_missed)
        j->stream_missed(j->ctx, r->step, why);
    return 0;
}

/* Rank 0 says where the weights go: the other ranks may not see a FIFO or a
 * socket of its host. */
int pp_rank_stream(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    const double to_dir = r->env.comm->rank == 0 && j->stream.is_dir;
    if (pp_rank_check_weights(r, err) || pp_rank_add_up(r, &to_dir, 1, err))
        return -1;
    if (r->sums[0] == 0)
        return stream_to_reader(r, err);
    struct pp_ckpt c = in_directory(r, j->stream.path);
    c.weights_only = true;
    c.keep = KEEP_VERSIONS;
    return write_checkpoint(r, &c, err);
}
