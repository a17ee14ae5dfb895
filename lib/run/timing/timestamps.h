/* SPDX-License-Identifier: MIT */
/* timestamps - the times at which a rank reaches the places of its step.
 *
 * On the CPU a timestamp is a reading of the clock. On a GPU, whose host runs
 * ahead, it is a marker in the queue; its time is read after the step. So a
 * timestamp never waits, and nothing is allocated after pp_timestamps_init. */
#ifndef PP_RUN_TIMING_TIMESTAMPS_H
#define PP_RUN_TIMING_TIMESTAMPS_H

#include "device/device.h"

/* The timestamps of one step. */
struct pp_timestamps {
    size_t n;
    double *times; /* (n) by base/clock.h; negative: not set in this step, or
                      not read yet */
    struct pp_device *device; /* borrowed */
    void **timers;            /* (n + 2) of the device; the last two measure the
                                 offset of its clock; NULL on the CPU */
    double error;             /* largest error of the times read, in seconds */
    struct pp_err err;        /* the first failure to set a timestamp */
};

int pp_timestamps_init(struct pp_timestamps *s, struct pp_device *d, size_t n,
                       struct pp_err *err) PP_MUST_USE;
/* Call it before the device is closed. Accepts a zeroed struct. */
void pp_timestamps_finish(struct pp_timestamps *s);

/* Clears all timestamps, at the start of a step. */
void pp_timestamps_clear(struct pp_timestamps *s);

/* Sets a timestamp to the time when d, a handle of the same device, has done
 * its work queued so far. pp_timestamps_read returns a failure of it. */
void pp_timestamp(struct pp_timestamps *s, struct pp_device *d, size_t at);

/* Fills times. All work queued on the device must be done. */
int pp_timestamps_read(struct pp_timestamps *s, struct pp_err *err) PP_MUST_USE;

enum pp_layer_time {
    PP_LAYER_TIME_FWD,
    PP_LAYER_TIME_INPUT,
    PP_LAYER_TIME_WEIGHT,
    PP_N_LAYER_TIMES
};

/* The times of the layers of a stage, from timestamps between layers. The
 * thread of the rank uses it. */
struct pp_layer_times {
    struct pp_timestamps *timestamps;
    struct pp_device *device; /* the layers run in its queue */
    size_t first;             /* timestamp of the first layer */
    size_t last;              /* start of the current layer */
    size_t *from; /* (layers of the stage, PP_N_LAYER_TIMES) starts, for the
                     current microbatch; NULL: not recorded */
};

/* Reports whether layers are recorded. l may be NULL. */
static inline bool pp_layer_times_wanted(const struct pp_layer_times *l)
{
    return l && l->from;
}

/* Records the end of a layer. l may be NULL. */
static inline void pp_layer_time(struct pp_layer_times *l, size_t layer,
                                 enum pp_layer_time time)
{
    if (!pp_layer_times_wanted(l))
        return;
    size_t at = layer * PP_N_LAYER_TIMES + (size_t)time;
    l->from[at] = l->last;
    l->last = l->first + at;
    pp_timestamp(l->timestamps, l->device, l->last);
}

#endif
