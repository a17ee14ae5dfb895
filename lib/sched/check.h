/* SPDX-License-Identifier: MIT */
/* check - whether a lowered schedule is complete, ordered and free of deadlock.
 *
 * In this order: every stage runs F and its backward exactly once for every
 * microbatch, on the rank that holds it; local order follows deps; every
 * message that deps asks for is sent and received once; each channel (from,
 * to, forward|backward) receives in the order it sends; all ranks reach the
 * end at the schedule's channel depth. Rows are checked before ranks are
 * played, so the message names the simplest fault. */
#ifndef PP_SCHED_CHECK_H
#define PP_SCHED_CHECK_H

#include "sched/schedule.h"

/* 0 when valid. PP_EXIT_NO with "rank 1, action 3: '1B0' before 1F0" when not;
 * a deadlock is told as the cycle of waits, with the smallest channel depth
 * that would cure it when there is one. */
int pp_check(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

#endif
