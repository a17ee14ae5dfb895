/* SPDX-License-Identifier: MIT */
/* check_rows - the static half of the check: each row by itself, and that
 * nothing is missing. Private to lib/sched. */
#ifndef PP_SCHED_CHECK_ROWS_H
#define PP_SCHED_CHECK_ROWS_H

#include "sched/schedule.h"

/* lowered: messages are there and needed. Accepts any contents whatever. After
 * 0, every index in every action is in range and every message has an edge of
 * the graph between two ranks. */
int pp_check_rows(const struct pp_schedule *s, bool lowered,
                  struct pp_err *err) PP_MUST_USE;

#endif
