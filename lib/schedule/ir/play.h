/* SPDX-License-Identifier: MIT */
/* play - walks one rank's list. The checker, the simulator and the executor
 * are three things handed to it. */
#ifndef PP_SCHEDULE_IR_PLAY_H
#define PP_SCHEDULE_IR_PLAY_H

#include "schedule/ir/numbering.h"
#include "schedule/ir/schedule.h"

/* Each returns 0, PP_AGAIN when it must wait (nothing was done), or -1. */
#define PP_AGAIN 1

typedef int (*pp_perform)(void *ctx, struct pp_action a, struct pp_err *err);
typedef int (*pp_pass_message)(void *ctx, struct pp_action a, int peer_row,
                               struct pp_err *err);

/* Actions whose function is NULL are passed over. */
struct pp_player {
    pp_perform compute;
    pp_pass_message send, recv;
    pp_perform sync;
};

/* Performs rank's actions from *pc on. Returns 0 at the end, PP_AGAIN with *pc
 * at the action that must wait, or -1 with *pc at the action that failed. */
int pp_play(const struct pp_schedule *s, int row, size_t *pc,
            const struct pp_player *p, void *ctx,
            struct pp_err *err) PP_MUST_USE;

/* All rows of a schedule, played in one thread. A row that must wait is tried
 * again only after a row that it exchanges messages with has moved, so a walk
 * costs about as many calls as there are actions. */
struct pp_walk {
    const struct pp_schedule *schedule;
    struct pp_channels channels;
    size_t *pc; /* per rank: the action it is at */
    int row;    /* whose turn it is, for the player's callbacks */
    int *queue; /* ranks to try, a ring of n_ranks; private */
    bool *queued;
};

int pp_walk_init(struct pp_walk *w, const struct pp_schedule *s,
                 struct pp_err *err) PP_MUST_USE;
void pp_walk_finish(struct pp_walk *w);

/* Plays from the start. 0 when every rank reached its end, PP_AGAIN when none
 * can move (pc says where each stands), -1 when a callback failed. */
int pp_walk(struct pp_walk *w, const struct pp_player *p, void *ctx,
            struct pp_err *err) PP_MUST_USE;

#endif
