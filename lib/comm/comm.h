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
 * lanes but PP_DIRECTION_HOST. Then no call waits for the device: a message
 * leaves when the work that the rank had queued before the send is done, and
 * work that is queued behind recv and send_wait begins when their message has
 * arrived and left. Who waits for whom on the host stays as it is said below.
 *
 * Every function returns 0, or -1 with *err filled (PP_EXIT_SYSTEM). Once a
 * rank has called abort, all calls of all ranks fail with its message; when one
 * has failed or close has returned, buffers are the caller's again. A handle is
 * used by one thread: the rank's. */
#ifndef PP_COMM_COMM_H
#define PP_COMM_COMM_H

#include <stddef.h>

#include "base/err.h"
#include "device/device.h"

enum pp_direction {
    PP_DIRECTION_FORWARD,
    PP_DIRECTION_BACKWARD,
    PP_DIRECTION_SYNC, /* gradients of what is there twice: outside the schedule
                        */
    PP_DIRECTION_HOST, /* host memory, to and from rank 0 alone: checkpoints. A
                     send may block until its message is received. */
    PP_N_DIRECTIONS
};

struct pp_comm; /* one rank's handle; each transport has its own */

struct pp_transport {
    const char *name;

    /* Messages are in the memory of d from now on; before the first of them.
     * Collective where the transport has to reach other ranks for it. detach
     * comes before the device is closed, and does nothing without attach. */
    int (*attach)(struct pp_comm *c, struct pp_device *d,
                  const struct pp_stream_ops *q, struct pp_err *err);
    void (*detach)(struct pp_comm *c);

    /* Begins to send bytes at buf. buf is the transport's until send_wait has
     * returned for it. Blocks as the depth says. */
    int (*send)(struct pp_comm *c, int to, enum pp_direction direction,
                const void *buf, size_t bytes, struct pp_err *err);

    /* Returns when all but the newest keep sends of the channel have left
     * their buffers. keep 0: all of them. */
    int (*send_wait)(struct pp_comm *c, int to, enum pp_direction direction,
                     int keep, struct pp_err *err);

    /* Receives the channel's next message into buf. */
    int (*recv)(struct pp_comm *c, int from, enum pp_direction direction,
                void *buf, size_t bytes, struct pp_err *err);

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
    int (*probe)(struct pp_comm *c, int from, enum pp_direction direction,
                 size_t *bytes, struct pp_err *err);
};

/* What every transport's handle begins with. */
struct pp_comm {
    const struct pp_transport *ops;
    int rank, size;
    int local; /* this rank's number among those of its machine */
};

struct pp_rendezvous; /* rendezvous.h */
struct pp_mpi;        /* mpi.h */

/* comm_threads - ranks as threads of one process. */

struct pp_comm_world;

/* What size ranks share: channels of the given depth (those of the
 * SYNC and HOST lanes at least 1). */
int pp_comm_world_create(int size, int depth, struct pp_comm_world **out,
                         struct pp_err *err) PP_MUST_USE;

/* Opens rank's handle. The world outlives its handles. */
int pp_comm_threads_open(struct pp_comm_world *w, int rank,
                         struct pp_comm **out, struct pp_err *err) PP_MUST_USE;

/* Accepts NULL. Every handle has been closed. */
void pp_comm_world_destroy(struct pp_comm_world *w);

/* comm_mpi - ranks as processes, on one machine or many, their messages in the
 * host's memory and through MPI.
 *
 * A lane is a tag, and every send is one that MPI calls synchronous: its end
 * tells that the message has been received. How ranks find each other, who is
 * lost and why the job ends goes by the job's own connections (rendezvous.h),
 * as MPI would wait for a lost rank for ever, or end all without a word. */

struct pp_mpi_options {
    const struct pp_mpi *mpi;
    int depth;   /* of the schedule's channels */
    size_t most; /* bytes of one block; 0: as many as MPI takes */
};

/* Opens this rank's handle and starts MPI, which closing ends: once in the life
 * of a process. Collective, and so is closing; it fails at all ranks or at
 * none. join outlives the handle. */
int pp_comm_mpi_open(struct pp_rendezvous *join, const struct pp_mpi_options *o,
                     struct pp_comm **out, struct pp_err *err) PP_MUST_USE;

/* comm_nccl - ranks as processes with a GPU each, their messages through NCCL.
 *
 * A channel is a communicator of two ranks and a queue of its own, so that
 * channels wait for nothing but their own messages, and a rank issues them in
 * the order of its checked list. All of them are connected before the first
 * step: a first message that had to wait for its peer's host would not keep the
 * channel's depth. NCCL does not tell a receiver how long a message is, so here
 * a difference between the two sides is not found. */

/* A channel that will be used; not one of PP_DIRECTION_HOST. */
struct pp_comm_channel {
    int from, to;
    enum pp_direction direction;
};

struct pp_nccl_options {
    const char *library;                    /* NULL: NCCL's own name */
    int depth;                              /* of the schedule's channels */
    const struct pp_comm_channel *channels; /* the same list at every rank */
    size_t n_channels;
};

/* Opens this rank's handle. join outlives it. Messages are possible once it has
 * been attached to a device, whose queues are CUDA streams. */
int pp_comm_nccl_open(struct pp_rendezvous *join,
                      const struct pp_nccl_options *o, struct pp_comm **out,
                      struct pp_err *err) PP_MUST_USE;

#endif
