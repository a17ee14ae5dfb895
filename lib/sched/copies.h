/* SPDX-License-Identifier: MIT */
/* copies - which copy of the weights each microbatch passes through, private
 * to lib/sched.
 *
 * The actions say it: where a microbatch is first found at work, there it must
 * stay. Whether it does is check_rows.h's to tell. */
#ifndef PP_SCHED_COPIES_H
#define PP_SCHED_COPIES_H

#include "sched/schedule.h"

/* The copy of microbatch m, or -1 where no action works on it. Reads all
 * rows. */
int pp_copy_of(const struct pp_schedule *s, int m);

/* Fills copy[0 .. n_microbatches) with the same. Accepts any rows. */
void pp_copies_of(const struct pp_schedule *s, int *copy);

#endif
