/* SPDX-License-Identifier: MIT */
/* curve - what a rank holds over time: a step function read off the spans of
 * its actions, simulated or measured. */
#ifndef PP_SCHED_CURVE_H
#define PP_SCHED_CURVE_H

#include "sched/memory.h"
#include "sched/sim.h"

/* From time on the rank holds value. Times do not decrease; of several levels
 * at one time all are real, one after the other, the last one lasting. */
struct pp_level {
    double time, value;
};

struct pp_curve {
    struct pp_level *at; /* the first is 0 at time 0, the last 0; malloc'ed */
    size_t n;
    double peak, peak_time; /* the first time of the largest value */
};

/* Slots, one for each action: F opens one, W or B closes it; in a row that only
 * runs forward F itself does; an overlap pair is one piece. spans has one entry
 * for each action of the row, in order. */
int pp_curve_slots(const struct pp_row *row, const struct pp_span *spans,
                   struct pp_curve *c, struct pp_err *err) PP_MUST_USE;

/* Bytes: each buffer of m from the start of its first action to the end of its
 * last. The peak is m's. */
int pp_curve_bytes(const struct pp_row *row, const struct pp_span *spans,
                   const struct pp_memory *m, struct pp_curve *c,
                   struct pp_err *err) PP_MUST_USE;

/* Multiplies the values: slots as parts of something larger. */
void pp_curve_scale(struct pp_curve *c, double by);

/* Frees; accepts a zeroed struct. */
void pp_curve_finish(struct pp_curve *c);

#endif
