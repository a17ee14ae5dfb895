/* SPDX-License-Identifier: MIT */
/* walk - plays all ranks of a schedule in one thread, private to lib/sched.
 *
 * What lower, the checker's progress test and the simulator share. A rank that
 * must wait is tried again only after a rank that it exchanges messages with
 * has moved, so a walk costs about as many calls as there are actions. */
#ifndef PP_SCHED_WALK_H
#define PP_SCHED_WALK_H

#include "sched/channels.h"
#include "sched/play.h"

struct pp_walk {
    const struct pp_schedule *schedule;
    struct pp_channels channels;
    size_t *pc; /* per rank: the action it is at */
    int rank;   /* whose turn it is, for the player's callbacks */
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
