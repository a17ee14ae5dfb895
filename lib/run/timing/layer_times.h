/* SPDX-License-Identifier: MIT */
/* laps - how long each layer of a stage takes, stamped between layers. */
#ifndef PP_RUN_LAPS_H
#define PP_RUN_LAPS_H

#include <stdbool.h>
#include <stddef.h>

#include "run/stamps.h"

enum pp_lap { PP_LAP_FWD, PP_LAP_INPUT, PP_LAP_WEIGHT, PP_N_LAPS };

/* One rank's; one thread uses it. */
struct pp_laps {
    struct pp_stamps *stamps;
    struct pp_device *device; /* whose queue the layers are in */
    size_t first;             /* stamp of the first lap that is under way */
    size_t last;              /* stamp of when the layer under way began */
    size_t *from; /* (layers of the stage, PP_N_LAPS) of the microbatch under
                     way: stamps of when they began; NULL: nobody asks */
};

/* l may be NULL. */
static inline bool pp_laps_wanted(const struct pp_laps *l)
{
    return l && l->from;
}

/* Called when a layer of a stage has ended; l may be NULL. */
static inline void pp_lap(struct pp_laps *l, size_t layer, enum pp_lap lap)
{
    if (!pp_laps_wanted(l))
        return;
    size_t at = layer * PP_N_LAPS + (size_t)lap;
    l->from[at] = l->last;
    l->last = l->first + at;
    pp_stamp(l->stamps, l->device, l->last);
}

#endif
