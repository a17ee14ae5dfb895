/* SPDX-License-Identifier: MIT */
/* event_order - one global order of the starts and completions of the compute
 * actions of a schedule.
 *
 * An action starts when its row is free and its requirements are met. Sorted by
 * time, completions first, ties by stage and microbatch, the events are a
 * linear extension of the rows and of deps. An overlap pair is one piece of
 * work: it waits for the requirements of both actions, and its two starts are
 * adjacent. */
#ifndef PP_SCHEDULE_IR_EVENT_ORDER_H
#define PP_SCHEDULE_IR_EVENT_ORDER_H

#include "schedule/ir/schedule.h"

struct pp_event {
    struct pp_action action;
    bool completion;
};

struct pp_event_order {
    struct pp_event *events; /* 2 per compute action; malloc'ed */
    size_t n;
};

/* Lists the events of s. If costs is NULL an action takes one unit of time
 * (B two, as I and W) and a message none. Fails with PP_EXIT_NO if the compute
 * actions deadlock. The caller frees o->events, also after a failure. */
int pp_event_order(const struct pp_schedule *s, const struct pp_costs *costs,
                   struct pp_event_order *o, struct pp_err *err) PP_MUST_USE;

#endif
