/* SPDX-License-Identifier: MIT */
/* traffic - how many messages each channel carries, and for how long. */
#ifndef PP_SCHED_TRAFFIC_H
#define PP_SCHED_TRAFFIC_H

#include "sched/sim.h"

struct pp_channel_traffic {
    int from, to; /* ranks */
    bool backward;
    size_t messages;
    double time; /* of all of them, one after the other */
};

/* The channels in use, by from, to and direction, forward first. *at is
 * malloc'ed. */
int pp_traffic(const struct pp_schedule *s, const struct pp_costs *costs,
               struct pp_channel_traffic **at, size_t *n,
               struct pp_err *err) PP_MUST_USE;

#endif
