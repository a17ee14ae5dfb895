/* SPDX-License-Identifier: MIT */
/* messages - which transfer went from where to where, and when, read off the
 * spans of a run, simulated or measured. */
#ifndef PP_SCHED_MESSAGES_H
#define PP_SCHED_MESSAGES_H

#include "sched/sim.h"

struct pp_message {
    struct pp_action action;   /* the SEND */
    int from, to;              /* ranks */
    size_t producer, consumer; /* places of the compute actions in their rows */
    size_t send, recv;         /* places of the two ends */
    double leaves, arrives;
};

struct pp_messages {
    struct pp_message *at; /* by sender, then as its row has them; malloc'ed */
    size_t n;
};

/* Finds the messages of s, whose ranks' spans are given. With costs the spans
 * are pp_simulate's at that depth and messages take their cost; with costs
 * NULL they are measured, and a message is under way from the start of its SEND
 * to the end of its RECV. s must be valid. */
int pp_messages_find(const struct pp_schedule *s,
                     const struct pp_sim_rank *ranks,
                     const struct pp_costs *costs, int depth,
                     struct pp_messages *m, struct pp_err *err) PP_MUST_USE;

/* Frees; accepts a zeroed struct. */
void pp_messages_finish(struct pp_messages *m);

#endif
