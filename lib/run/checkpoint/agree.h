/* SPDX-License-Identifier: MIT */
/* agree - all ranks fail, or none. */
#ifndef PP_RUN_CHECKPOINT_AGREE_H
#define PP_RUN_CHECKPOINT_AGREE_H

#include "comm/comm.h"

/* Collective. Fails on every rank if one has failed: a rank without an error
 * takes that of the lowest rank that failed, which is also the origin of the
 * same error on other ranks. rc is the result of this rank: 0, or -1 with err
 * filled. Errors go to rank 0, which sends each rank one. */
int pp_agree(struct pp_comm *c, int rc, struct pp_err *err) PP_MUST_USE;

/* Aborts all ranks and fails when memory runs out between two messages: the
 * other ranks would wait forever. */
int pp_give_up(struct pp_comm *c, struct pp_err *err) PP_MUST_USE;

#endif
