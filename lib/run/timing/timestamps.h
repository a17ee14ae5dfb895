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

#endif
