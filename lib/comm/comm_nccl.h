/* SPDX-License-Identifier: MIT */
/* comm_nccl - ranks as processes with a GPU each, their messages through NCCL.
 *
 * A channel is a communicator of two ranks and a queue of its own, so that
 * channels wait for nothing but their own messages, and a rank issues them in
 * the order of its checked list. All of them are connected before the first
 * step: a first message that had to wait for its peer's host would not keep the
 * channel's depth. NCCL does not tell a receiver how long a message is, so here
 * a difference between the two sides is not found. */
#ifndef PP_COMM_COMM_NCCL_H
#define PP_COMM_COMM_NCCL_H

#include "comm/comm.h"
#include "comm/join.h"

/* A channel that will be used; not one of PP_LANE_HOST. */
struct pp_comm_channel {
    int from, to;
    enum pp_lane lane;
};

struct pp_nccl_options {
    const char *library;                    /* NULL: NCCL's own name */
    int depth;                              /* of the schedule's channels */
    const struct pp_comm_channel *channels; /* the same list at every rank */
    size_t n_channels;
};

/* Opens this rank's handle. join outlives it. Messages are possible once it has
 * been attached to a device, whose queues are CUDA streams. */
int pp_comm_nccl_open(struct pp_join *join, const struct pp_nccl_options *o,
                      struct pp_comm **out, struct pp_err *err) PP_MUST_USE;

#endif
