/* SPDX-License-Identifier: MIT */
/* peer_copy - one message between two devices of a process. Each side records
 * events in its own stream for the other to wait for. An event that is not yet
 * recorded stands for nothing, so the host must first know that the other side
 * has recorded it. */
#ifndef PP_COMM_PEER_COPY_H
#define PP_COMM_PEER_COPY_H

#include "device/device.h"

/* One side of a channel. */
struct pp_peer_copy_end {
    struct pp_device *device;
    const struct pp_stream_ops *streams;
    void *copy_stream; /* stream of the copies; only at the receiver */
};

/* State of one place of a channel, at the sender and at the receiver. Later
 * messages reuse it. It is zeroed at first; events are created when they are
 * first needed. */
struct pp_peer_copy_source {
    void *ready;  /* sender's event: the buffer is written */
    void *copied; /* receiver's event: the buffer has been read */
};
struct pp_peer_copy_target {
    void *writable; /* receiver's event: the buffer is no longer read */
    void *arrived;  /* receiver's event: the buffer is written */
};

/* The sender calls it when it sends. */
int pp_peer_copy_send(struct pp_peer_copy_source *s,
                      const struct pp_peer_copy_end *sender,
                      struct pp_err *err) PP_MUST_USE;

/* The receiver calls it when it posts the receive of the message in s. The
 * buffer is free after the work of d, its device or a branch of it. */
int pp_peer_copy_post(struct pp_peer_copy_target *t,
                      struct pp_peer_copy_source *s,
                      struct pp_peer_copy_end *receiver, struct pp_device *d,
                      struct pp_err *err) PP_MUST_USE;

/* Queues the copy when both have been called, on the thread of either rank. It
 * follows the work that the sender had queued when it sent, and that the
 * receiver had queued when it posted. */
int pp_peer_copy_run(const struct pp_peer_copy_source *s,
                     const struct pp_peer_copy_target *t,
                     const struct pp_peer_copy_end *receiver, void *to,
                     const void *from, size_t bytes,
                     struct pp_err *err) PP_MUST_USE;

/* Makes the rank's later work wait for the event of a copy that is queued:
 * copied at the sender, which may then write its buffer, and arrived at the
 * receiver. */
int pp_peer_copy_wait(void *event, const struct pp_peer_copy_end *e,
                      struct pp_err *err) PP_MUST_USE;

/* The receiver calls it before it closes its device. Accepts a zeroed struct.
 */
void pp_peer_copy_end_close(struct pp_peer_copy_end *e);

#endif
