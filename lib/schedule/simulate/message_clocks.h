/* SPDX-License-Identifier: MIT */
/* message_clocks - the times of the messages of a run at a channel depth;
 * private to lib/schedule/simulate.
 *
 * A message holds its place in the channel until it has arrived, a receive for
 * it has been posted, and the messages before it have left the channel. */
#ifndef PP_SCHEDULE_SIMULATE_MESSAGE_CLOCKS_H
#define PP_SCHEDULE_SIMULATE_MESSAGE_CLOCKS_H

#include "schedule/ir/numbering.h"

/* The messages of one channel, by position in its FIFO. */
struct pp_channel_clock {
    double *arrival, *receipt; /* receipt: when its receive was posted, or has
                                  returned if it waits in its place */
    double left; /* when the last message counted in n_left left the channel */
    size_t n_sent, n_posted, n_received, n_left;
};

struct pp_message_clocks {
    size_t depth;
    struct pp_channel_clock *at; /* per channel */
    double *times;               /* storage of the channels' arrays */
    struct pp_cells cells;
    double *arrival; /* by link and direction; negative before the SEND */
};

/* Makes the clocks of all messages of s. channels are those of its graph. */
int pp_message_clocks_init(struct pp_message_clocks *m,
                           const struct pp_schedule *s,
                           const struct pp_channels *channels, int depth,
                           struct pp_err *err) PP_MUST_USE;
/* Frees the clocks; accepts a zeroed struct. */
void pp_message_clocks_finish(struct pp_message_clocks *m);

/* Plays SEND a at time now; the message takes `time`. Sets *end to the time at
 * which the SEND returns. Returns PP_AGAIN if the channel has no room yet. */
int pp_message_send(struct pp_message_clocks *m, struct pp_action a,
                    size_t channel, double now, double time, double *end);

/* Posts a receive, which returns at once. */
void pp_message_post(struct pp_message_clocks *m, size_t channel, double now);

/* Plays a receive that waits in its place, and sets *end to the time at which
 * it returns. Returns PP_AGAIN if the message has not been sent yet. */
int pp_message_receive(struct pp_message_clocks *m, size_t channel, double now,
                       double *end);

/* Raises *ready to the arrival of every message that compute action a needs.
 * Returns PP_AGAIN if one has not been sent yet. */
int pp_message_await(const struct pp_message_clocks *m, struct pp_action a,
                     double *ready);

#endif
