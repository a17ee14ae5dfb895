/* SPDX-License-Identifier: MIT */
/* comm_threads - ranks as threads of one process. */
#ifndef PP_COMM_COMM_THREADS_H
#define PP_COMM_COMM_THREADS_H

#include "comm/comm.h"

struct pp_comm_world;

/* What size ranks share: channels of the given depth (those of the
 * SYNC and HOST lanes at least 1). */
int pp_comm_world_create(int size, int depth, struct pp_comm_world **out,
                         struct pp_err *err) PP_MUST_USE;

/* Opens rank's handle. The world outlives its handles. */
int pp_comm_threads_open(struct pp_comm_world *w, int rank,
                         struct pp_comm **out, struct pp_err *err) PP_MUST_USE;

/* Accepts NULL. Every handle has been closed. */
void pp_comm_world_destroy(struct pp_comm_world *w);

#endif
