/* SPDX-License-Identifier: MIT */
/* handover - one message between two devices of a process. Each side marks in
 * its own queues what the other has to wait for; that both have come is for the
 * host to know, as a mark that is not recorded yet stands for nothing. */
#ifndef PP_COMM_PEER_COPY_H
#define PP_COMM_PEER_COPY_H

#include "device/device.h"

/* A place of a channel, used again for one message after the other. Zeroed at
 * first; marks are made when they are first needed. */
struct pp_peer_copy {
    void *ready;  /* the sender's: the buffer is written */
    void *copied; /* the receiver's: it has been read */
};

/* One side. */
struct pp_peer_copy_end {
    struct pp_device *device;
    const struct pp_stream_ops *streams;
    void *copy_stream; /* of copies; the receiver's alone */
    void *writable;    /* mark: where they go to is not read any more */
};

/* The sender's part, before the receiver may begin. */
int pp_peer_copy_post(struct pp_peer_copy *h, const struct pp_peer_copy_end *e,
                      struct pp_err *err) PP_MUST_USE;

/* The receiver's: bytes go to its memory behind all that it has queued, and
 * what it queues later finds them there. */
int pp_peer_copy_receive(struct pp_peer_copy *h, struct pp_peer_copy_end *e,
                         void *to, const void *from, size_t bytes,
                         struct pp_err *err) PP_MUST_USE;

/* The sender's again, once the receiver has come: what it queues from now on
 * may write the buffer. */
int pp_peer_copy_wait(const struct pp_peer_copy *h,
                      const struct pp_peer_copy_end *e,
                      struct pp_err *err) PP_MUST_USE;

/* The receiver's, before its device is closed. */
void pp_peer_copy_end_close(struct pp_peer_copy_end *e);

#endif
