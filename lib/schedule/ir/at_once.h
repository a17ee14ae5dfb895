/* SPDX-License-Identifier: MIT */
/* at_once - the forwards that their backward follows at once.
 *
 * Between the two a row computes nothing else, so that the forward may also do
 * work of the backward, from values that are still there. */
#ifndef PP_SCHEDULE_IR_AT_ONCE_H
#define PP_SCHEDULE_IR_AT_ONCE_H

#include "schedule/ir/schedule.h"

/* A forward may add to the gradients of weights in place of its B or W, if the
 * sums of the stage then keep their order. */
enum pp_at_once {
    PP_AT_ONCE_NONE,
    PP_AT_ONCE_ALL, /* it may, if all others with ALL or EACH do */
    PP_AT_ONCE_EACH /* it may, whatever others do */
};

/* Sets is[i] for the actions of a row: more than NONE for a forward whose B or
 * I is the row's next computation, and for the I, B and W of these cells. A
 * forward of an overlap pair has NONE. */
void pp_at_once(const struct pp_schedule *s, int row, enum pp_at_once *is);

/* Sets cells[(stage * n_microbatches + microbatch) * slices + slice] for the
 * forwards of a schedule that its rows have more than NONE for. */
void pp_at_once_cells(const struct pp_schedule *s, bool *cells);

#endif
