/* SPDX-License-Identifier: MIT */
/* order - one global order of a schedule's compute actions, private to
 * lib/sched.
 *
 * Every action takes a unit of time (B two, being I then W), starts when its
 * rank is free and what it waits for is done, and gives two events: its start
 * and its completion. Sorted by time, completions first, ties by stage and
 * microbatch, the events are a linear extension of both the rows and deps. An
 * overlap pair is one piece of work: it waits for what either waits for and
 * its two starts follow each other. */
#ifndef PP_SCHED_ORDER_H
#define PP_SCHED_ORDER_H

#include "sched/schedule.h"

struct pp_event {
    struct pp_action action;
    bool completion;
};

struct pp_order {
    struct pp_event *events; /* 2 for each compute action; malloc'ed */
    size_t n;
};

/* Fails with PP_EXIT_NO when the rows cannot run to the end, naming the first
 * action of each stuck rank. Actions other than compute are passed over. */
int pp_order(const struct pp_schedule *s, struct pp_order *o,
             struct pp_err *err) PP_MUST_USE;

#endif
