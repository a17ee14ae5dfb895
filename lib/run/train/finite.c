/* SPDX-License-Identifier: MIT */
/* finite - finds a run that diverged, before it updates or saves weights. */
#include "run/train/finite.h"

#include <math.h>
#include <string.h>

#include "run/checkpoint/agree.h"
#include "run/train/squares.h"

int pp_rank_leave_to_0(struct pp_rank *r, enum pp_exit code, struct pp_err *err)
{
    if (r->env.comm->rank == 0 ||
        r->env.comm->ops->barrier(r->env.comm, err) == 0)
        return 0;
    err->code = code;
    return -1;
}

int pp_rank_check_step(struct pp_rank *r, const struct pp_step_report *rep,
                       struct pp_err *err)
{
    if (isfinite(rep->grad_norm) && isfinite(rep->loss))
        return 0;
    if (pp_rank_leave_to_0(r, PP_EXIT_SYSTEM, err))
        return -1;
    /* The sign of a NaN means nothing. */
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "step %lld: loss is %g and the gradient norm %g",
                   (long long)rep->step, fabs(rep->loss), fabs(rep->grad_norm));
}

/* Checks the weights or the gradients of this rank. A sum of squares is finite
 * only if each of its terms is. */
static int check_block(struct pp_rank *r, enum pp_weights_block block,
                       struct pp_err *err)
{
    const struct pp_parameter *found;
    if (pp_squares_find_infinite(r, block, &found, err))
        return -1;
    if (!found)
        return 0;
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "after step %lld %s'%s' is not finite: no checkpoint is "
                   "written",
                   (long long)r->step,
                   block == PP_BLOCK_G ? "the gradient of " : "",
                   found->info.name);
}

int pp_rank_check_weights(struct pp_rank *r, struct pp_err *err)
{
    return pp_agree(r->env.comm, check_block(r, PP_BLOCK_W, err), err);
}

/* Plays the schedule once, unrecorded. */
static int play(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    size_t m = pp_job_microbatches(j), lane = pp_rank_lane(r);
    struct pp_recorder *recorder = r->train.recorder;
    uint64_t scored, tokens;
    pp_rank_count(r, m, &scored, &tokens);
    struct pp_objective_counts step = {0};
    if (j->objective)
        step = pp_rank_count_objective(r, m);
    const struct pp_pass pass = {
        .packed = j->data,
        .first = (uint64_t)r->microbatches + lane,
        .end = UINT64_MAX,
        .stride = (uint64_t)pp_rank_lanes(r),
        .scale = scored ? 1 / (double)scored : 0,
        .temperature = j->temperature,
        .losses = r->losses + lane,
        .objective = j->objective,
        .step = step,
        .ahead = j->model->n_mtp ? &r->ahead : NULL,
        .ctx = j->ctx,
    };
    if (pp_rank_clear_losses(r, m, err))
        return -1;
    r->train.recorder = NULL;
    int rc = pp_exec_ops.run(&r->train, &pass, err);
    r->train.recorder = recorder;
    return rc;
}

int pp_rank_check_loss(struct pp_rank *r, struct pp_err *err)
{
    size_t m = pp_job_microbatches(r->job);
    double loss = 0;
    if (play(r, err) || pp_rank_read_sums(r, m, err) ||
        pp_rank_add_up(r, r->host_sums, m, err))
        return -1;
    for (size_t i = 0; i < m; i++)
        loss += r->sums[i];
    if (isfinite(loss))
        return pp_agree(r->env.comm, check_block(r, PP_BLOCK_G, err), err);
    if (pp_rank_leave_to_0(r, PP_EXIT_SYSTEM, err))
        return -1;
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "after step %lld the loss is %g: no checkpoint is written",
                   (long long)r->step, fabs(loss));
}

int pp_rank_check_evaluation(struct pp_rank *r, double loss, struct pp_err *err)
{
    if (r->job->inspect || !r->eval_scored || isfinite(loss))
        return 0;
    if (pp_rank_leave_to_0(r, PP_EXIT_SYSTEM, err))
        return -1;
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "step %lld: the loss of the evaluation is %g",
                   (long long)r->step, fabs(loss));
}
