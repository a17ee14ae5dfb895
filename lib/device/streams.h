/* SPDX-License-Identifier: MIT */
/* queues - what a transport needs of a rank whose memory is a device's: queues
 * of work, and marks between them, as CUDA's streams and events.
 *
 * A rank has one queue for what it computes, NULL below; a transport opens more
 * of them. A mark stands for what its queue had been given when it was
 * recorded. Nothing here waits for the device. Functions return 0, or -1 with
 * *err filled (PP_EXIT_SYSTEM). */
#ifndef PP_DEVICE_STREAMS_H
#define PP_DEVICE_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct pp_device; /* device/device.h */

struct pp_stream_ops {
    /* Ranks 0 to n_ranks - 1 are in this process, and d will copy from their
     * devices: lets it do so without a way round where the machine can. */
    void (*enable_peer_access)(struct pp_device *d, int n_ranks);

    /* A queue is what the device's own library calls one: a cudaStream_t. */
    int (*open)(struct pp_device *d, void **stream, struct pp_err *err);
    void (*close)(struct pp_device *d, void *stream);

    int (*event_open)(struct pp_device *d, void **event, struct pp_err *err);
    /* Also when the device has been closed. Accepts NULL. */
    void (*event_close)(void *event);

    /* The mark now stands for all that queue has been given. */
    int (*event_record)(struct pp_device *d, void *event, void *stream,
                        struct pp_err *err);

    /* What queue is given from now on begins when what the mark stands for is
     * done, on whichever device of this process. A mark that was never recorded
     * stands for nothing. */
    int (*wait_event)(struct pp_device *d, void *stream, void *event,
                      struct pp_err *err);

    /* Memory for what a transport keeps there; NULL when there is none. */
    void *(*alloc)(struct pp_device *d, size_t bytes);
    void (*free)(struct pp_device *d, void *p);

    /* Queues a copy between memories of devices of this process. */
    int (*copy)(struct pp_device *d, void *stream, void *to, const void *from,
                size_t bytes, struct pp_err *err);

    /* Whether queue has done all that it was given. */
    int (*is_done)(struct pp_device *d, void *stream, bool *done,
                   struct pp_err *err);
};

#endif
