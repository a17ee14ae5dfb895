/* SPDX-License-Identifier: MIT */
/* cycle - the shortest circle of waits in a deadlock, in words, private to
 * lib/sched. */
#ifndef PP_SCHED_CYCLE_H
#define PP_SCHED_CYCLE_H

#include "sched/events.h"

/* Writes "rank 0 waits in '0SEND_F1' for rank 1 to reach '1RECV_F1'; rank 1
 * waits in ..." to text of bytes (at least 64), after a run of e that could not
 * end. A wait is that of the first action of a stream that has not happened;
 * of the circles through few enough of them to look at, it is a shortest.
 * What does not fit is counted: "; and 3 more". */
int pp_cycle_tell(const struct pp_events *e, char *text, size_t bytes,
                  struct pp_err *err) PP_MUST_USE;

#endif
