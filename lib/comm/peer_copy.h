/* SPDX-License-Identifier: MIT */
/* handover - one message between two devices of a process. Each side marks in
 * its own queues what the other has to wait for; that both have come is for the
 * host to know, as a mark that is not recorded yet stands for nothing. */
#ifndef PP_COMM_HANDOVER_H
#define PP_COMM_HANDOVER_H

#include "comm/queues.h"

/* A place of a channel, used again for one message after the other. Zeroed at
 * first; marks are made when they are first needed. */
struct pp_handover {
    void *ready; /* the sender's: the buffer is written */
    void *taken; /* the receiver's: it has been read */
};

/* One side. */
struct pp_handover_end {
    struct pp_device *device;
    const struct pp_queues *queues;
    void *queue; /* of copies; the receiver's alone */
    void *free;  /* mark: where they go to is not read any more */
};

/* The sender's part, before the receiver may begin. */
int pp_handover_give(struct pp_handover *h, const struct pp_handover_end *e,
                     struct pp_err *err) PP_MUST_USE;

/* The receiver's: bytes go to its memory behind all that it has queued, and
 * what it queues later finds them there. */
int pp_handover_take(struct pp_handover *h, struct pp_handover_end *e, void *to,
                     const void *from, size_t bytes,
                     struct pp_err *err) PP_MUST_USE;

/* The sender's again, once the receiver has come: what it queues from now on
 * may write the buffer. */
int pp_handover_release(const struct pp_handover *h,
                        const struct pp_handover_end *e,
                        struct pp_err *err) PP_MUST_USE;

/* The receiver's, before its device is closed. */
void pp_handover_end_close(struct pp_handover_end *e);

#endif
