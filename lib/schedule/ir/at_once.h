/* SPDX-License-Identifier: MIT */
/* at_once - the forwards that their backward follows at once.
 *
 * Between the two a row computes nothing else, so that the forward may also do
 * work of the backward, from values that are still there. */
#ifndef PP_SCHEDULE_IR_AT_ONCE_H
#define PP_SCHEDULE_IR_AT_ONCE_H

#include "schedule/ir/schedule.h"

/* Sets is[i] for the actions of a row: true for a forward whose B or I is the
 * row's next computation, and for the I, B and W of these cells. A forward of
 * an overlap pair has none. If the forwards that have it add to the gradients
 * of weights in place of B or W, the sums of a stage keep their order. */
void pp_at_once(const struct pp_schedule *s, int row, bool *is);

#endif
