/* SPDX-License-Identifier: MIT */
/* play - walks one rank's list. The checker, the simulator and the executor
 * are three things handed to it. */
#ifndef PP_SCHED_PLAY_H
#define PP_SCHED_PLAY_H

#include "sched/schedule.h"

/* Each returns 0, PP_AGAIN when it must wait (nothing was done), or -1. */
#define PP_AGAIN 1

struct pp_player {
    int (*compute)(void *ctx, struct pp_action a, struct pp_err *err);
    int (*send)(void *ctx, struct pp_action a, int peer_rank,
                struct pp_err *err);
    int (*recv)(void *ctx, struct pp_action a, int peer_rank,
                struct pp_err *err);
    int (*sync)(void *ctx, struct pp_action a, struct pp_err *err);
};

/* Performs rank's actions from *pc on. Returns 0 at the end, PP_AGAIN with *pc
 * at the action that must wait, or -1 with *pc at the action that failed. */
int pp_play(const struct pp_schedule *s, int rank, size_t *pc,
            const struct pp_player *p, void *ctx,
            struct pp_err *err) PP_MUST_USE;

#endif
