/* SPDX-License-Identifier: MIT */
/* comm - the contract of a transport: bytes between ranks.
 *
 * A transport knows ranks and channels and nothing of stages or tensors. A
 * channel is (from, to, lane); lanes never share one, so that forward and
 * backward traffic between the same two ranks cannot be confused. Each channel
 * is FIFO and holds depth messages: a send does not block while fewer than
 * depth of its channel have not been received; with depth 0 it returns when
 * the message has been received (rendezvous). A message has the size that both
 * sides state; a difference is an error on the receiver. A message of zero
 * bytes is legal and counts as one.
 *
 * Memory is the host's, or where a device was attached, the device's, on all
 * lanes but PP_LANE_HOST. Then no call waits for the device: a message leaves
 * when the work that the rank had queued before the send is done, and work that
 * is queued behind recv and send_wait begins when their message has arrived and
 * left. Who waits for whom on the host stays as it is said below.
 *
 * Every function returns 0, or -1 with *err filled (PP_EXIT_SYSTEM). Once a
 * rank has called abort, all calls of all ranks fail with its message; when one
 * has failed or close has returned, buffers are the caller's again. A handle is
 * used by one thread: the rank's. */
#ifndef PP_COMM_COMM_H
#define PP_COMM_COMM_H

#include <stddef.h>

#include "base/err.h"
#include "comm/queues.h"

enum pp_lane {
    PP_LANE_FORWARD,
    PP_LANE_BACKWARD,
    PP_LANE_SYNC, /* gradients of what is there twice: outside the schedule */
    PP_LANE_HOST, /* host memory, to and from rank 0 alone: checkpoints. A send
                     may block until its message is received. */
    PP_N_LANES
};

struct pp_comm; /* one rank's handle; each transport has its own */

struct pp_transport {
    const char *name;

    /* Messages are in the memory of d from now on; before the first of them.
     * Collective where the transport has to reach other ranks for it. detach
     * comes before the device is closed, and does nothing without attach. */
    int (*attach)(struct pp_comm *c, struct pp_device *d,
                  const struct pp_queues *q, struct pp_err *err);
    void (*detach)(struct pp_comm *c);

    /* Begins to send bytes at buf. buf is the transport's until send_wait has
     * returned for it. Blocks as the depth says. */
    int (*send)(struct pp_comm *c, int to, enum pp_lane lane, const void *buf,
                size_t bytes, struct pp_err *err);

    /* Returns when all but the newest keep sends of the channel have left
     * their buffers. keep 0: all of them. */
    int (*send_wait)(struct pp_comm *c, int to, enum pp_lane lane, int keep,
                     struct pp_err *err);

    /* Receives the channel's next message into buf. */
    int (*recv)(struct pp_comm *c, int from, enum pp_lane lane, void *buf,
                size_t bytes, struct pp_err *err);

    /* Collects bytes from every rank, in rank order, at every rank: all is
     * (size, bytes). Small control data. */
    int (*allgather)(struct pp_comm *c, const void *mine, void *all,
                     size_t bytes, struct pp_err *err);

    /* Returns when every rank has called it. */
    int (*barrier)(struct pp_comm *c, struct pp_err *err);

    /* Tells every rank that this one cannot go on, and why. Never blocks and
     * does not fail; the first message wins. */
    void (*abort)(struct pp_comm *c, const char *why);

    /* Releases the handle. Accepts NULL. */
    void (*close)(struct pp_comm *c);

    /* (optional) Waits for the channel's next message, which stays there, and
     * tells its size. NULL where a message does not carry its size. */
    int (*probe)(struct pp_comm *c, int from, enum pp_lane lane, size_t *bytes,
                 struct pp_err *err);
};

/* What every transport's handle begins with. */
struct pp_comm {
    const struct pp_transport *ops;
    int rank, size;
    int local; /* this rank's number among those of its machine */
};

#endif
