/* SPDX-License-Identifier: MIT */
/* device - the memory and the kernels of a rank, on the CPU or on a GPU.
 *
 * Kernels read and write device memory only. Host code accesses device memory
 * only through this table, because it cannot access a GPU's memory; tests on a
 * CPU would not notice a mistake. Calls queue work in order. Only get, wait and
 * close wait for the queue, and put if it is given much at once. Only the
 * rank's own thread uses its handle.
 *
 * Functions that can fail return 0, or -1 with *err filled (PP_EXIT_SYSTEM).
 * The next call that waits reports errors of queued kernels. */
#ifndef PP_DEVICE_DEVICE_H
#define PP_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pp_device; /* one rank's handle; each kind has its own */

/* Streams of a device's work and events between them, for transports. They are
 * CUDA's.
 *
 * A rank has one stream for what it computes, NULL below; a transport opens
 * more. An event stands for the work that its stream had been given when the
 * event was recorded. Nothing here waits for the device. */
struct pp_stream_ops {
    /* Enables direct copies to d from the devices of ranks 0 to n_ranks - 1,
     * which are in this process, if the machine supports them. */
    void (*enable_peer_access)(struct pp_device *d, int n_ranks);

    /* Returns the number of the GPU's multiprocessors, 0 if it is unknown. */
    int (*processors)(struct pp_device *d);

    /* *stream is a cudaStream_t, whose kernels begin before the kernels that
     * wait in the rank's own stream. */
    int (*open)(struct pp_device *d, void **stream, struct pp_err *err);
    void (*close)(struct pp_device *d, void *stream);

    int (*event_open)(struct pp_device *d, void **event, struct pp_err *err);
    /* May be called after the device is closed. Accepts NULL. */
    void (*event_close)(void *event);

    /* Makes the event stand for all work in the stream. */
    int (*event_record)(struct pp_device *d, void *event, void *stream,
                        struct pp_err *err);

    /* Makes later work of the stream wait for the event, which may be of any
     * device of this process. An event that was never recorded stands for
     * nothing. */
    int (*wait_event)(struct pp_device *d, void *stream, void *event,
                      struct pp_err *err);

    /* Allocates device memory for a transport. Returns NULL if there is not
     * enough. */
    void *(*alloc)(struct pp_device *d, size_t bytes);
    void (*free)(struct pp_device *d, void *p);

    /* Queues a copy between memories of devices of this process. */
    int (*copy)(struct pp_device *d, void *stream, void *to, const void *from,
                size_t bytes, struct pp_err *err);

    /* Sets *done to whether the stream has done all of its work. */
    int (*is_done)(struct pp_device *d, void *stream, bool *done,
                   struct pp_err *err);
};

struct pp_device_ops {
    const char *name;
    bool is_host; /* memory is the host's, and no work is queued */
    const struct pp_stream_ops *streams; /* for transports; NULL with is_host */

    /* Fails if this process cannot open n_ranks handles. */
    int (*check)(int n_ranks, struct pp_err *err);

    /* Opens a handle, on the thread of its rank. local_rank is the rank's index
     * on its machine. */
    int (*open)(int local_rank, struct pp_device **out, struct pp_err *err);

    /* Opens another handle of the device of d, on the same thread, with a queue
     * of its own for copies between devices and for kernels without products.
     * NULL with is_host. */
    int (*branch)(struct pp_device *d, struct pp_device **out,
                  struct pp_err *err);

    /* Waits, and releases the handle but not the memory. Accepts NULL. */
    void (*close)(struct pp_device *d);

    /* Returns zeroed memory that begins on a cache line, or NULL if there is
     * not enough. free accepts NULL. */
    void *(*alloc)(struct pp_device *d, size_t bytes);
    void (*free)(struct pp_device *d, void *p);

    /* The same for memory of the host that queued copies reach as fast as the
     * device allows, and that is not the device's. */
    void *(*alloc_host)(struct pp_device *d, size_t bytes);
    void (*free_host)(struct pp_device *d, void *p);

    /* Copies host memory to the device. The caller may reuse from on return. */
    int (*put)(struct pp_device *d, void *to, const void *from, size_t bytes,
               struct pp_err *err);

    /* Copies device memory to the host, after all queued work. */
    int (*get)(struct pp_device *d, void *to, const void *from, size_t bytes,
               struct pp_err *err);

    /* Queues a copy between memories of any devices of this kind, such as
     * another rank's, or of the host. */
    int (*copy)(struct pp_device *d, void *to, const void *from, size_t bytes,
                struct pp_err *err);

    int (*zero)(struct pp_device *d, void *p, size_t bytes, struct pp_err *err);

    /* Returns when all queued work is done. */
    int (*wait)(struct pp_device *d, struct pp_err *err);

    /* Creates an event that also measures when its stream reached it. NULL with
     * is_host. */
    int (*timer_open)(struct pp_device *d, void **timer, struct pp_err *err);

    /* Sets *seconds to the time from one such event to another. Handles of the
     * same device recorded both, and the work before them is done. */
    int (*elapsed)(struct pp_device *d, void *from, void *to, double *seconds,
                   struct pp_err *err);
};

/* The first member of every handle. */
struct pp_device {
    const struct pp_device_ops *ops;
    void *stream;     /* argument of this device's kernels; NULL on the CPU */
    size_t allocated; /* bytes of pp_device_alloc since open; nothing is freed
                         before the end of a run */
    uint64_t waits;   /* how often the host has waited for a GPU's queue */
};

extern const struct pp_device_ops pp_device_cpu;

/* A GPU. Local rank r has GPU r modulo the number of GPUs, so that several
 * ranks may share one. It exists only in builds with the CUDA toolkit. Such a
 * program also starts on a machine without a GPU. */
extern const struct pp_device_ops pp_device_cuda;

/* In the functions below, NULL is the CPU, which needs no handle. */
static inline const struct pp_device_ops *pp_device_ops(struct pp_device *d)
{
    return d ? d->ops : &pp_device_cpu;
}

/* Allocates n items of size bytes, in whole cache lines. Returns NULL with *err
 * filled if there is not enough memory; what names the items in the message. */
void *pp_device_alloc(struct pp_device *d, size_t n, size_t size,
                      const char *what, struct pp_err *err);

/* Accepts NULL as p. */
void pp_device_free(struct pp_device *d, void *p);

/* Lets later work of d wait for the earlier work of another handle, at an event
 * that the device's streams have opened. */
int pp_device_follow(struct pp_device *d, struct pp_device *other, void *event,
                     struct pp_err *err);

/* Returns device memory that the host can read: p itself, or a copy in room.
 * Returns NULL with *err filled on failure. */
const void *pp_device_read(struct pp_device *d, const void *p, size_t bytes,
                           void *room, struct pp_err *err);

#endif
