/* SPDX-License-Identifier: MIT */
/* laps - how long each layer of a stage takes, read between layers. */
#ifndef PP_RUN_LAPS_H
#define PP_RUN_LAPS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

enum pp_lap { PP_LAP_FWD, PP_LAP_INPUT, PP_LAP_WEIGHT, PP_N_LAPS };

/* One rank's; one thread uses it. */
struct pp_laps {
    double last;     /* when the layer under way began */
    double *seconds; /* (layers of the stage, PP_N_LAPS) of the microbatch
                        under way; NULL: nobody asks */
};

/* l may be NULL. */
static inline bool pp_laps_wanted(const struct pp_laps *l)
{
    return l && l->seconds;
}

/* Called when a layer of a stage has ended; l may be NULL. */
static inline void pp_lap(struct pp_laps *l, size_t layer, enum pp_lap lap)
{
    if (!pp_laps_wanted(l))
        return;
    double now = pp_clock();
    l->seconds[layer * PP_N_LAPS + (size_t)lap] = now - l->last;
    l->last = now;
}

#endif
