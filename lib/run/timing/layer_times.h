/* SPDX-License-Identifier: MIT */
/* laps - how long each layer of a stage takes, stamped between layers. */
#ifndef PP_RUN_TIMING_LAYER_TIMES_H
#define PP_RUN_TIMING_LAYER_TIMES_H

#include <stdbool.h>
#include <stddef.h>

#include "run/timing/timestamps.h"

enum pp_layer_time {
    PP_LAYER_TIME_FWD,
    PP_LAYER_TIME_INPUT,
    PP_LAYER_TIME_WEIGHT,
    PP_N_LAYER_TIMES
};

/* One rank's; one thread uses it. */
struct pp_layer_times {
    struct pp_timestamps *timestamps;
    struct pp_device *device; /* whose queue the layers are in */
    size_t first;             /* stamp of the first lap that is under way */
    size_t last;              /* stamp of when the layer under way began */
    size_t *from; /* (layers of the stage, PP_N_LAYER_TIMES) of the microbatch
                     under way: stamps of when they began; NULL: nobody asks */
};

/* l may be NULL. */
static inline bool pp_layer_times_wanted(const struct pp_layer_times *l)
{
    return l && l->from;
}

/* Called when a layer of a stage has ended; l may be NULL. */
static inline void pp_layer_time(struct pp_layer_times *l, size_t layer,
                                 enum pp_layer_time lap)
{
    if (!pp_layer_times_wanted(l))
        return;
    size_t at = layer * PP_N_LAYER_TIMES + (size_t)lap;
    l->from[at] = l->last;
    l->last = l->first + at;
    pp_timestamp(l->timestamps, l->device, l->last);
}

#endif
