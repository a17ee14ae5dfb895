/* SPDX-License-Identifier: MIT */
/* comm - the contract of a transport, which moves bytes between ranks.
 *
 * A transport knows ranks and channels, but no stages or tensors. A channel is
 * (from, to, direction), so that forward and backward messages between the same
 * two ranks never mix. Each channel is FIFO: message k goes to receive k. A
 * message is received when it has been sent and its receive is posted; neither
 * rank needs to call again for that. A channel holds depth messages: a send
 * does not block while fewer than depth messages of its channel are not yet
 * received. With depth 0 a send returns when its message has been received
 * (rendezvous). Both sides state the size of a message; a difference is an
 * error at the receiver, in recv_wait. A message of zero bytes is legal and
 * counts as one.
 *
 * Messages are in host memory, or in device memory after attach, except in
 * PP_DIRECTION_HOST. With a device, no call waits for the device: a message
 * leaves when the work that the rank queued before the send is done, and
 * arrives when the work that its receiver queued before the recv is done. Work
 * queued after send_wait and recv_wait begins when their messages have left or
 * arrived. That is the work of the handle pp_comm.device at the time of the
 * call. The host itself blocks as described above.
 *
 * Every function returns 0, or -1 with *err filled (PP_EXIT_SYSTEM). After a
 * rank calls abort, all calls of all ranks fail with its message. A buffer
 * belongs to the caller again when one of its calls has failed, or when abort
 * or close has returned. Only the rank's own thread uses its handle. */
#ifndef PP_COMM_COMM_H
#define PP_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/group.h"
#include "device/device.h"

enum pp_direction {
    PP_DIRECTION_FORWARD,
    PP_DIRECTION_BACKWARD,
    PP_DIRECTION_SYNC, /* gradients of shared weights, outside the schedule */
    PP_DIRECTION_DATA, /* between the ranks of a row: keys and values of
                          sequences and rows of products that they divide */
    PP_DIRECTION_WEIGHTS, /* likewise: weights that both hold, or divide, and
                             their gradients. They may travel beside the
                             computation, and messages of DATA must not wait for
                             them. */
    PP_DIRECTION_HOST,    /* host memory, for checkpoints and sums: to and from
                             rank 0, and along the tree (tree.h). send and recv
                             may block until their message is received. */
    PP_N_DIRECTIONS
};

/* Messages of a batch from a rank to another. */
enum { PP_BATCH_MOST = 32 };

struct pp_comm; /* one rank's handle; each transport has its own */

struct pp_transport {
    const char *name;

    /* Puts messages in the memory of d from now on. The rank calls it before
     * its first message. It is collective if the transport has to reach other
     * ranks. The rank calls detach before it closes the device; detach does
     * nothing without attach. */
    int (*attach)(struct pp_comm *c, struct pp_device *d,
                  const struct pp_stream_ops *q, struct pp_err *err);
    void (*detach)(struct pp_comm *c);

    /* Begins to send bytes at buf. buf belongs to the transport until send_wait
     * has returned for it. Blocks while the channel is full. */
    int (*send)(struct pp_comm *c, int to, enum pp_direction direction,
                const void *buf, size_t bytes, struct pp_err *err);

    /* Returns when all but the newest keep sends of the channel have left
     * their buffers. keep is 0 to wait for all. */
    int (*send_wait)(struct pp_comm *c, int to, enum pp_direction direction,
                     int keep, struct pp_err *err);

    /* Posts a receive: the channel's next message goes to buf. buf belongs to
     * the transport until recv_wait has returned for it. Blocks only while as
     * many receives of the channel are posted as the transport was opened
     * for. */
    int (*recv)(struct pp_comm *c, int from, enum pp_direction direction,
                void *buf, size_t bytes, struct pp_err *err);

    /* Returns when all but the newest keep receives of the channel have their
     * messages. keep is 0 to wait for all. */
    int (*recv_wait)(struct pp_comm *c, int from, enum pp_direction direction,
                     int keep, struct pp_err *err);

    /* (optional) Begins and ends a batch: the messages between that the rank
     * sends to members of the group in the direction, or receives from them,
     * are one operation, which leaves at the end. The group has this rank, and
     * its other members make such a batch too; its messages of a pair are in
     * the order of the calls. await_batches returns when all but the newest
     * keep batches of the group are done. A transport that has these moves
     * messages of SYNC, DATA and WEIGHTS in batches only. */
    int (*begin_batch)(struct pp_comm *c, const struct pp_group *g,
                       enum pp_direction direction, struct pp_err *err);
    int (*end_batch)(struct pp_comm *c, struct pp_err *err);
    int (*await_batches)(struct pp_comm *c, const struct pp_group *g,
                         enum pp_direction direction, int keep,
                         struct pp_err *err);

    /* (optional) Adds to a batch: replaces n floats at buf of a rank by their
     * sum over the group, in an order of the transport's own; buf of the other
     * ranks stays. Only if can_sum, which is the same at all ranks of it. */
    bool (*can_sum)(struct pp_comm *c, const struct pp_group *g,
                    enum pp_direction direction);
    int (*sum)(struct pp_comm *c, int rank, void *buf, size_t n,
               struct pp_err *err);

    /* Collects bytes from every rank, in rank order, at every rank. all is
     * (size, bytes). It is for small control data. */
    int (*allgather)(struct pp_comm *c, const void *mine, void *all,
                     size_t bytes, struct pp_err *err);

    /* Returns when every rank has called it. */
    int (*barrier)(struct pp_comm *c, struct pp_err *err);

    /* Tells every rank that this one cannot continue, and why. Waits for no
     * other rank and never fails. The first message wins. */
    void (*abort)(struct pp_comm *c, const char *why);

    /* Releases the handle, and drops receives whose message was not sent.
     * Accepts NULL. */
    void (*close)(struct pp_comm *c);

    /* (optional) Waits for the next message without a receive, leaves it
     * there, and returns its size. NULL if messages do not carry their size. */
    int (*probe)(struct pp_comm *c, int from, enum pp_direction direction,
                 size_t *bytes, struct pp_err *err);
};

/* The first member of every transport's handle. */
struct pp_comm {
    const struct pp_transport *ops;
    int rank, size;
    int local; /* index of this rank on its machine */
    /* The one of attach, or a branch of it that the rank sets for a while
     * (device.h); NULL without. */
    struct pp_device *device;
};

/* A batch; with a transport that has none, messages by themselves. */
static inline int pp_comm_begin_batch(struct pp_comm *c,
                                      const struct pp_group *g,
                                      enum pp_direction direction,
                                      struct pp_err *err)
{
    return c->ops->begin_batch ? c->ops->begin_batch(c, g, direction, err) : 0;
}

static inline int pp_comm_end_batch(struct pp_comm *c, struct pp_err *err)
{
    return c->ops->end_batch ? c->ops->end_batch(c, err) : 0;
}

static inline int pp_comm_await_batches(struct pp_comm *c,
                                        const struct pp_group *g,
                                        enum pp_direction direction, int keep,
                                        struct pp_err *err)
{
    if (c->ops->await_batches)
        return c->ops->await_batches(c, g, direction, keep, err);
    for (int k = 1; k < g->n; k++) {
        int from = pp_group_rank(g, (g->index + g->n - k) % g->n);
        int to = pp_group_rank(g, (g->index + k) % g->n);
        if (c->ops->recv_wait(c, from, direction, keep, err) ||
            c->ops->send_wait(c, to, direction, keep, err))
            return -1;
    }
    return 0;
}

/* Receives the channel's next message. */
static inline int pp_comm_receive(struct pp_comm *c, int from,
                                  enum pp_direction direction, void *buf,
                                  size_t bytes, struct pp_err *err)
{
    return c->ops->recv(c, from, direction, buf, bytes, err) ||
                   c->ops->recv_wait(c, from, direction, 0, err)
               ? -1
               : 0;
}

/* Sends a message of PP_DIRECTION_HOST; buf may change when it returns. */
static inline int pp_comm_send_host(struct pp_comm *c, int to, const void *buf,
                                    size_t bytes, struct pp_err *err)
{
    return c->ops->send(c, to, PP_DIRECTION_HOST, buf, bytes, err) ||
                   c->ops->send_wait(c, to, PP_DIRECTION_HOST, 0, err)
               ? -1
               : 0;
}

/* The size of the channels of the directions FORWARD and BACKWARD. Channels of
 * the others hold at least 1 message and 1 receive. */
struct pp_comm_capacity {
    int depth;    /* messages not yet received */
    int receives; /* posted and not yet waited for; at least 1 */
};

/* A channel that a job uses. Lists are sorted by sender, then receiver, then
 * direction, and have no channel twice. */
struct pp_comm_channel {
    int from, to;
    enum pp_direction direction;
};

struct pp_rendezvous; /* rendezvous.h */
struct pp_mpi;        /* mpi.h */

/* --- comm_threads: ranks are threads of one process --- */

struct pp_comm_world;

/* Creates n channels of size ranks, and no others; channels NULL: all. The list
 * stays the caller's. */
int pp_comm_world_create(int size, struct pp_comm_capacity capacity,
                         const struct pp_comm_channel *channels, size_t n,
                         struct pp_comm_world **out,
                         struct pp_err *err) PP_MUST_USE;

/* Sets *bytes to what a world with n channels allocates: all that its ranks
 * hold of each other. */
int pp_comm_world_bytes(int size, struct pp_comm_capacity capacity, size_t n,
                        size_t *bytes, struct pp_err *err) PP_MUST_USE;

/* Opens the handle of a rank, which is the world's. Never NULL. */
struct pp_comm *pp_comm_threads_open(struct pp_comm_world *w, int rank);

/* Accepts NULL. The caller has closed every handle. */
void pp_comm_world_destroy(struct pp_comm_world *w);

/* --- comm_mpi: ranks are processes; messages are in host memory and go through
 * MPI ---
 *
 * A direction is a tag. Every send is synchronous in the sense of MPI: it
 * completes when the message has been received. Ranks find each other, notice
 * lost ranks and pass on errors over the job's own connections (rendezvous.h),
 * because MPI would wait for a lost rank for ever or end the job without a
 * message. */

struct pp_mpi_options {
    const struct pp_mpi *mpi;
    struct pp_comm_capacity capacity;
    /* The channels from this rank and to it; NULL: all. The list stays the
     * caller's.
     */
    const struct pp_comm_channel *channels;
    size_t n_channels;
    size_t most; /* bytes of one block; 0: the limit of MPI */
};

/* Opens this rank's handle and starts MPI; closing ends MPI. A process can do
 * this once. Opening and closing are collective. Opening fails at all ranks or
 * at none. join outlives the handle. */
int pp_comm_mpi_open(struct pp_rendezvous *join, const struct pp_mpi_options *o,
                     struct pp_comm **out, struct pp_err *err) PP_MUST_USE;

/* --- comm_nccl: ranks are processes with a GPU each; messages go through NCCL
 * ---
 *
 * A set (sets.h) has a communicator and a stream of its own, so that it waits
 * only for its own messages. A rank issues messages in the order of its checked
 * list. All ranks of a set are connected before the first step, because a first
 * message that waits for its peer's host would not keep the channel's depth.
 * NCCL does not tell a receiver the size of a message, so this transport does
 * not detect a size difference. */

struct pp_comm_sets; /* sets.h */

struct pp_nccl_options {
    const char *library; /* NULL: NCCL's own name */
    struct pp_comm_capacity capacity;
    const struct pp_comm_sets *sets; /* the same at every rank */
    bool sums; /* NCCL adds over sets of PP_DIRECTION_WEIGHTS */
};

/* Opens this rank's handle. join outlives it. Messages are possible after
 * attach, to a device whose streams are CUDA streams. */
int pp_comm_nccl_open(struct pp_rendezvous *join,
                      const struct pp_nccl_options *o, struct pp_comm **out,
                      struct pp_err *err) PP_MUST_USE;

#endif
