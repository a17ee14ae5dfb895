/* SPDX-License-Identifier: MIT */
/* completion - which compute actions of a schedule have been done, for the
 * users of the player that keep a record of each action.
 *
 * The work of a cell has three parts: the forward (F), the input gradient (I or
 * B) and the weight gradient (W or B). For each part the state holds the number
 * that its user gave to the action which did it, such as an index of the user's
 * own records. */
#ifndef PP_SCHEDULE_IR_COMPLETION_H
#define PP_SCHEDULE_IR_COMPLETION_H

#include <stdint.h>

#include "schedule/ir/deps.h"
#include "schedule/ir/numbering.h"

#define PP_NOT_DONE SIZE_MAX

struct pp_completion {
    struct pp_cells cells;
    size_t *number; /* per cell and part; PP_NOT_DONE at first */
};

int pp_completion_init(struct pp_completion *c, const struct pp_schedule *s,
                       struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_completion_finish(struct pp_completion *c);

/* Notes that the compute action a has been done. B does the parts of I and W.
 */
void pp_completion_set(struct pp_completion *c, struct pp_action a,
                       size_t number);

/* The number of the action that did the part of ops, a mask as in pp_dep, or
 * PP_NOT_DONE. */
size_t pp_completion_get(const struct pp_completion *c, int stage,
                         int microbatch, int slice, unsigned ops);

/* Calls visit for each requirement of the compute action a[0], and of a[1] too
 * if they are an overlap pair, with the number of the action that met it.
 * Returns PP_AGAIN at the first requirement that is not met, else 0; if visit
 * returns nonzero, stops and returns that. */
int pp_completion_visit(const struct pp_completion *c,
                        const struct pp_action *a,
                        int (*visit)(void *ctx, struct pp_action a,
                                     struct pp_dep dep, size_t number),
                        void *ctx);

#endif
