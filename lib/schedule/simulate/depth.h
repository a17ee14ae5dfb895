/* SPDX-License-Identifier: MIT */
/* depth - the choice of the channel depth.
 *
 * More depth never makes a run longer, and from the number of messages on a
 * channel no send blocks. So there is a least depth at which a run takes as
 * long as with unbounded channels; the search for it halves. */
#ifndef PP_SCHEDULE_SIMULATE_DEPTH_H
#define PP_SCHEDULE_SIMULATE_DEPTH_H

#include "schedule/simulate/sim.h"

struct pp_depth_options {
    const struct pp_costs *costs;
    /* Sets *yes if the schedule fits at its channel depth. More depth needs
     * more. NULL: every depth fits. */
    int (*fits)(void *ctx, const struct pp_schedule *s, bool *yes,
                struct pp_err *err);
    void *ctx;
    int fixed;    /* the depth, which is not chosen; negative: choose it */
    bool lowered; /* the messages are as pp_lower placed them; if the depth that
                     fits does not suffice, pp_lower_again may place them */
};

struct pp_depth_found {
    double makespan;  /* of a run at the depth */
    double unbounded; /* of a run in which no send blocks */
    bool fits;        /* some depth fits; if not, s has the least that runs */
};

/* Sets the channel depth of s, which has messages, to the least from 1 on at
 * which a run takes as long as with unbounded channels, to 9 digits. If that
 * does not fit, to the one that fits with the least makespan. */
int pp_depth_choose(struct pp_schedule *s, const struct pp_depth_options *o,
                    struct pp_depth_found *found,
                    struct pp_err *err) PP_MUST_USE;

#endif
