/* SPDX-License-Identifier: MIT */
/* stamps - when a rank's work comes to the places of its step.
 *
 * On the CPU a stamp is a reading of the clock. On a GPU, where the host runs
 * ahead, it is a mark in the queue of the work, whose time is asked for when
 * the step is through: nothing is waited for before, and nothing is made after
 * pp_timestamps_init. */
#ifndef PP_RUN_TIMING_TIMESTAMPS_H
#define PP_RUN_TIMING_TIMESTAMPS_H

#include "device/device.h"

/* One step's. */
struct pp_timestamps {
    size_t n;
    double *times; /* (n) by base/clock.h; negative: not set in this step, or
                      not read yet */
    struct pp_device *device; /* borrowed */
    void **timers;            /* (n + 2) of the device, two of them to find its
                                 clock with; NULL on the CPU */
    double error;      /* most seconds that times read may be off the clock */
    struct pp_err err; /* the first failure to set one */
};

int pp_timestamps_init(struct pp_timestamps *s, struct pp_device *d, size_t n,
                       struct pp_err *err) PP_MUST_USE;
/* Before the device is closed. Accepts a zeroed struct. */
void pp_timestamps_finish(struct pp_timestamps *s);

/* A step begins: none is set. */
void pp_timestamps_clear(struct pp_timestamps *s);

/* Sets one to when d, a handle of the same device, is done with what it has
 * been given. A failure is kept for pp_timestamps_read. */
void pp_timestamp(struct pp_timestamps *s, struct pp_device *d, size_t at);

/* Fills times; all that the device was given must be done. */
int pp_timestamps_read(struct pp_timestamps *s, struct pp_err *err) PP_MUST_USE;

/* How long each layer of a stage takes: a timestamp between layers. */
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
