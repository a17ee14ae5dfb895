/* SPDX-License-Identifier: MIT */
/* stuck - how far a schedule runs that deadlocks, and a circle of waits.
 *
 * check.h says in one line why a schedule deadlocks; this lists it for
 * pictures and for files whose lines can be named. */
#ifndef PP_SCHEDULE_CHECK_STUCK_H
#define PP_SCHEDULE_CHECK_STUCK_H

#include "schedule/ir/schedule.h"

/* A rank stands before an action and waits for one that comes later in the row
 * of another rank. */
struct pp_wait {
    int row, on_row;
    size_t place, on_place; /* in the rows */
};

struct pp_stuck {
    size_t *done; /* per row: the actions before that it runs */
    struct pp_wait
        *circle;     /* each waits for the next, the last for the first */
    size_t n_circle; /* 0: s runs to its end */
};

/* Runs s, for which pp_check_rows holds. If it has messages, it runs at its
 * channel depth, and each receive waits in its place; otherwise each action
 * waits for its inputs alone. Finish *k after success. */
int pp_stuck_find(const struct pp_schedule *s, bool messages,
                  struct pp_stuck *k, struct pp_err *err) PP_MUST_USE;

/* Frees; accepts a zeroed struct. */
void pp_stuck_finish(struct pp_stuck *k);

#endif
