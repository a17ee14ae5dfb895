/* SPDX-License-Identifier: MIT */
/* check - whether a lowered schedule is complete, ordered and free of deadlock.
 *
 * In this order: every stage runs F and its backward exactly once for every
 * slice of every microbatch, on the rank that holds it, or where there are
 * copies of the weights, every stage of one of them and none of the others;
 * local order follows deps; every message that deps asks for is sent and
 * received once; parameters are unsharded and resharded in turn, if at all;
 * each channel (from, to, forward|backward) receives in the order it sends; all
 * ranks reach the end at the schedule's channel depth. Rows are checked before
 * ranks are played, so the message names the simplest fault. */
#ifndef PP_SCHED_CHECK_H
#define PP_SCHED_CHECK_H

#include "sched/schedule.h"

/* The same for rows without messages, before they are lowered: everything but
 * channels, SYNC_COPIES, SYNC_TIED, and the order across ranks, which lowering
 * finds. */
int pp_check_computes(const struct pp_schedule *s,
                      struct pp_err *err) PP_MUST_USE;

/* The first stage without REDUCE_GRAD, or -1. Not a fault: with one replica
 * there is nothing to reduce. */
int pp_unreduced_stage(const struct pp_schedule *s);

/* pp_check without its last part: whether ranks reach the end is then left to
 * pp_check_progress (progress.h). */
int pp_check_order(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* 0 when valid. PP_EXIT_NO with "rank 1, action 3: '1B0' before 1F0" when not;
 * a deadlock is told as the shortest circle of waits, with the smallest channel
 * depth that would cure it when there is one. */
int pp_check(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

#endif
