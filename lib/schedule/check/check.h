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
#ifndef PP_SCHEDULE_CHECK_CHECK_H
#define PP_SCHEDULE_CHECK_CHECK_H

#include "schedule/ir/schedule.h"

/* The static half of the check: each row alone, and that nothing is missing.
 * lowered: messages are there and needed. Without, everything is checked but
 * channels, SYNC_COPIES, SYNC_TIED, and the order across rows, which lowering
 * finds. Accepts any contents. After 0, every index in every action is in range
 * and every message has an edge of the graph between two rows. */
int pp_check_rows(const struct pp_schedule *s, bool lowered,
                  struct pp_err *err) PP_MUST_USE;

/* The first stage without REDUCE_GRAD, or -1. Not a fault: with one replica
 * there is nothing to reduce. */
int pp_unreduced_stage(const struct pp_schedule *s);

/* pp_check without its last part: whether ranks reach the end is then left to
 * pp_check_deadlock (deadlock.h). */
int pp_check_order(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* 0 when valid. PP_EXIT_NO with "rank 1, action 3: '1B0' before 1F0" when not;
 * a deadlock is told as the shortest circle of waits, with the smallest channel
 * depth that would cure it when there is one. */
int pp_check(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

enum { PP_N_SEMANTICS = 6 };

struct pp_semantics {
    const char *name;
    const char *summary; /* one line */
    int streams;         /* private to lib/schedule/check: enum pp_streams */
    bool tagged;         /* forward and backward messages travel apart */
    bool buffered;       /* messages are never in each other's way */
    bool by_depth;       /* holds the schedule's channel_depth of messages;
                            others none unless told */
};

/* buffered, channel (ours: pprun's), rendezvous, pair, rank, blocking. */
extern const struct pp_semantics pp_semantics[PP_N_SEMANTICS];

/* The one of that name, or NULL. */
const struct pp_semantics *pp_semantics_find(const char *name);

/* The messages that a channel holds under it, where depth (-1: not given) was
 * asked for; INT_MAX: any number. */
int pp_semantics_depth(const struct pp_semantics *m,
                       const struct pp_schedule *s, int depth);

/* 0 when s, for which pp_check_order holds, runs to its end with channels of
 * that depth, which buffered does without. PP_EXIT_NO with the shortest
 * circle of waits and the smallest depth that would cure it, or with the first
 * message that would be taken for another where forward and backward ones
 * share a channel. */
int pp_check_deadlock(const struct pp_schedule *s, const struct pp_semantics *m,
                      int depth, struct pp_err *err) PP_MUST_USE;

#endif
