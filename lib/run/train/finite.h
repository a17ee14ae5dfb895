/* SPDX-License-Identifier: MIT */
/* finite - finds a run that diverged, before it updates or saves weights. All
 * functions are collective and fail with PP_EXIT_SYSTEM. */
#ifndef PP_RUN_TRAIN_FINITE_H
#define PP_RUN_TRAIN_FINITE_H

#include "run/train/rank.h"

/* Leaves the report of an error that all ranks find to rank 0: the others wait
 * until it aborts the job, and fail with its message. Returns 0 on rank 0. */
int pp_rank_leave_to_0(struct pp_rank *r, enum pp_exit code,
                       struct pp_err *err) PP_MUST_USE;

/* Checks the loss and the gradient norm of a step, before its update. */
int pp_rank_check_step(struct pp_rank *r, const struct pp_step_report *rep,
                       struct pp_err *err) PP_MUST_USE;

/* Checks every weight, before a checkpoint. */
int pp_rank_check_weights(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Checks that the weights give a loss and gradients, before a checkpoint: plays
 * the schedule once on the next microbatches, without an update. */
int pp_rank_check_loss(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Checks the loss of the last evaluation, unless nothing was scored. A
 * verification judges it itself. */
int pp_rank_check_evaluation(struct pp_rank *r, double loss,
                             struct pp_err *err) PP_MUST_USE;

#endif
