/* SPDX-License-Identifier: MIT */
/* channels - numbers the channels (from rank, to rank, lane) that a stage
 * graph can use, private to lib/sched. */
#ifndef PP_SCHED_CHANNELS_H
#define PP_SCHED_CHANNELS_H

#include <stddef.h>

#include "base/err.h"
#include "sched/action.h"
#include "sched/graph.h"

struct pp_channel {
    int from, to, backward;
};

struct pp_channels {
    struct pp_channel *at; /* sorted; every edge gives one each way */
    size_t n;
    size_t *first; /* per rank: its first outgoing channel; n_ranks + 1 */
};

int pp_channels_init(struct pp_channels *c, const struct pp_graph *g,
                     struct pp_err *err) PP_MUST_USE;
void pp_channels_finish(struct pp_channels *c);

/* The channel of a SEND or RECV performed by rank, whose other end is on
 * peer_rank. There must be an edge between the two. */
size_t pp_channel_of(const struct pp_channels *c, struct pp_action a, int rank,
                     int peer_rank);

/* The first channel from one rank to another: forward where there is one.
 * There must be an edge between the two. */
size_t pp_channel_between(const struct pp_channels *c, int from, int to);

#endif
