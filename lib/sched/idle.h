/* SPDX-License-Identifier: MIT */
/* idle - why a rank does nothing, read off a simulated run.
 *
 * A rank's makespan is its busy time and these four, exactly. The time before
 * its first compute action is fill, that after its last is drain. A gap between
 * two compute actions is wait_forward where it ends in an F, alone or first of
 * a pair, and wait_backward where it ends in I, W or B: the rank had nothing
 * else to run in that order, and the next action's input had not come. */
#ifndef PP_SCHED_IDLE_H
#define PP_SCHED_IDLE_H

#include "sched/sim.h"

struct pp_idle {
    double fill, wait_forward, wait_backward, drain;
};

/* Of a rank of sim, simulated with unbounded channels. A rank that computes
 * nothing only fills. */
struct pp_idle pp_idle_of(const struct pp_sim *sim, int rank);

#endif
