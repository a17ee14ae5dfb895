/* SPDX-License-Identifier: MIT */
/* play - runs through the rows of a schedule.
 *
 * The checker, the simulator and the executor are callbacks for it. */
#ifndef PP_SCHEDULE_IR_PLAY_H
#define PP_SCHEDULE_IR_PLAY_H

#include "schedule/ir/numbering.h"
#include "schedule/ir/schedule.h"

/* Callbacks return 0, PP_AGAIN if the action must wait (nothing was done), or
 * -1. */
#define PP_AGAIN 1

typedef int (*pp_perform)(void *ctx, struct pp_action a, struct pp_err *err);
typedef int (*pp_pass_message)(void *ctx, struct pp_action a, int peer_row,
                               struct pp_err *err);

/* Actions with a NULL callback are skipped. */
struct pp_player {
    pp_perform compute;
    pp_pass_message send, recv;
    pp_perform sync;
};

/* Performs the actions of row from *pc on. Returns 0 at the end of the row,
 * PP_AGAIN with *pc at the action that must wait, or -1 with *pc at the action
 * that failed. */
int pp_play(const struct pp_schedule *s, int row, size_t *pc,
            const struct pp_player *p, void *ctx,
            struct pp_err *err) PP_MUST_USE;

#endif
