/* SPDX-License-Identifier: MIT */
/* clocks - how the clocks of ranks stand by each other. */
#ifndef PP_RUN_RECORD_CLOCKS_H
#define PP_RUN_RECORD_CLOCKS_H

#include "comm/comm.h"

/* Seconds to add to this rank's clock (base/clock.h) so that it is rank 0's,
 * and how many they may be off. Both are 0 where the two may be one clock, as
 * on one machine. Collective. */
int pp_clock_offset(struct pp_comm *c, double *offset, double *error,
                    struct pp_err *err) PP_MUST_USE;

#endif
