/* SPDX-License-Identifier: MIT */
/* peer_copy - one message between two devices of a process. Each side records
 * events in its own streams for the other to wait for. An event that is not yet
 * recorded stands for nothing, so the host must first know that the other side
 * has recorded it. */
#ifndef PP_COMM_PEER_COPY_H
#define PP_COMM_PEER_COPY_H

#include "device/device.h"

/* State of one place of a channel. Later messages reuse it. It is zeroed at
 * first; events are created when they are first needed. */
struct pp_peer_copy {
    void *ready;  /* sender's event: the buffer is written */
    void *copied; /* receiver's event: the buffer has been read */
};

/* One side of a channel. */
struct pp_peer_copy_end {
    struct pp_device *device;
    const struct pp_stream_ops *streams;
    void *copy_stream; /* stream of the copies; only at the receiver */
    void *writable;    /* event: the destination is no longer read */
};

/* The sender calls it before the receiver may begin. */
int pp_peer_copy_post(struct pp_peer_copy *h, const struct pp_peer_copy_end *e,
                      struct pp_err *err) PP_MUST_USE;

/* The receiver calls it. The copy follows all work that the receiver has
 * queued, and precedes all that it queues later. */
int pp_peer_copy_receive(struct pp_peer_copy *h, struct pp_peer_copy_end *e,
                         void *to, const void *from, size_t bytes,
                         struct pp_err *err) PP_MUST_USE;

/* The sender calls it after the receiver's call. Work that the sender queues
 * from now on may write the buffer. */
int pp_peer_copy_wait(const struct pp_peer_copy *h,
                      const struct pp_peer_copy_end *e,
                      struct pp_err *err) PP_MUST_USE;

/* The receiver calls it before it closes its device. */
void pp_peer_copy_end_close(struct pp_peer_copy_end *e);

#endif
