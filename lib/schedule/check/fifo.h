/* SPDX-License-Identifier: MIT */
/* fifo - what travels on every channel, in the order of its two ends, private
 * to lib/schedule/check. */
#ifndef PP_SCHEDULE_CHECK_FIFO_H
#define PP_SCHEDULE_CHECK_FIFO_H

#include "schedule/ir/numbering.h"
#include "schedule/ir/schedule.h"

struct pp_end {
    struct pp_action action;
    int row;
    size_t place; /* in its row */
};

struct pp_fifo {
    struct pp_channels channels;
    bool tagged;                /* see pp_fifo_init */
    struct pp_end *send, *recv; /* by channel, n_messages of each */
    size_t *first;              /* per channel: its first message; n + 1 */
    size_t n_messages;
};

/* Lists the messages of s, whose rows are right (check_rows.h), and makes sure
 * that every channel receives in the order it sends, PP_EXIT_NO where one does
 * not. tagged: forward and backward messages from one rank to another travel
 * apart; otherwise they share the channel that pp_channel_between names. */
int pp_fifo_init(struct pp_fifo *f, const struct pp_schedule *s, bool tagged,
                 struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_fifo_finish(struct pp_fifo *f);

#endif
