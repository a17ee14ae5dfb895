/* SPDX-License-Identifier: MIT */
/* progress - whether all ranks reach their ends, by what sends and receives
 * do to each other.
 *
 * Transports differ in it: what runs over separate channels of some depth may
 * hang where a pair of ranks shares one NCCL communicator, or a rank has one
 * for all its peers. Decided on the graph of events (event_graph.h), in time
 * linear in the actions. */
#ifndef PP_SCHEDULE_CHECK_DEADLOCK_H
#define PP_SCHEDULE_CHECK_DEADLOCK_H

#include "schedule/ir/schedule.h"

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
