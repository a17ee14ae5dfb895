/* SPDX-License-Identifier: MIT */
/* device - where a rank's tensors live and its kernels run: this machine's
 * memory and processor, or a GPU's.
 *
 * Whatever a kernel reads or writes is device memory. Host code touches it
 * through this table alone: on a GPU it could not, and what runs on a CPU
 * would not show it. Work is queued in the order of the calls; only get, wait
 * and close look back, and put of much at once. A handle is used by one
 * thread, the rank's.
 *
 * Functions that can fail return 0, or -1 with *err filled (PP_EXIT_SYSTEM);
 * what queued kernels did wrong is reported by the next call that waits. */
#ifndef PP_DEVICE_DEVICE_H
#define PP_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct pp_device; /* one rank's handle; each kind has its own */

/* Streams of a device's work and events between them, for transports. They are
 * CUDA's.
 *
 * A rank has one stream for what it computes, NULL below; a transport opens
 * more. An event stands for the work that its stream had been given when the
 * event was recorded. Nothing here waits for the device. */
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

struct pp_device_ops {
    const char *name;
    bool is_host; /* its memory is the host's, and nothing is ever queued */
    const struct pp_stream_ops *streams; /* for transports; NULL with is_host */
    size_t handle_bytes; /* of the device's memory that a handle takes */

    /* Whether n_ranks of this process can be opened; says why not. */
    int (*check)(int n_ranks, struct pp_err *err);

    /* Opens a handle on the thread of the rank that has this number among those
     * of its machine. */
    int (*open)(int local_rank, struct pp_device **out, struct pp_err *err);

    /* Waits, and releases the handle, not the memory. Accepts NULL. */
    void (*close)(struct pp_device *d);

    /* Zeroed memory that begins on a cache line, or NULL when there is not
     * enough. free accepts NULL. */
    void *(*alloc)(struct pp_device *d, size_t bytes);
    void (*free)(struct pp_device *d, void *p);

    /* Host memory to the device's. from is the caller's again on return. */
    int (*put)(struct pp_device *d, void *to, const void *from, size_t bytes,
               struct pp_err *err);

    /* Device memory to the host's, once all queued work is done. */
    int (*get)(struct pp_device *d, void *to, const void *from, size_t bytes,
               struct pp_err *err);

    /* Queues a copy between memories of any device of this kind, another
     * rank's or the host's among them. */
    int (*copy)(struct pp_device *d, void *to, const void *from, size_t bytes,
                struct pp_err *err);

    int (*zero)(struct pp_device *d, void *p, size_t bytes, struct pp_err *err);

    /* Returns when all queued work is done. */
    int (*wait)(struct pp_device *d, struct pp_err *err);

    /* A mark of queues that also knows when its queue came to it. NULL with
     * is_host. */
    int (*timer_open)(struct pp_device *d, void **timer, struct pp_err *err);

    /* Seconds from one such mark to another, which handles of the same device
     * have recorded and what was queued before is done. */
    int (*elapsed)(struct pp_device *d, void *from, void *to, double *seconds,
                   struct pp_err *err);
};

/* What every handle begins with. */
struct pp_device {
    const struct pp_device_ops *ops;
    void *stream; /* what this device's kernels take; NULL on the CPU */
};

extern const struct pp_device_ops pp_device_cpu;

/* A GPU. Rank r of a process has GPU r modulo their number, so that several
 * ranks may share one. Only there where the CUDA toolkit was; the program
 * starts where there is no GPU. */
extern const struct pp_device_ops pp_device_cuda;

/* Below, a device of NULL is the CPU, which needs no handle. */
static inline const struct pp_device_ops *pp_device_ops(struct pp_device *d)
{
    return d ? d->ops : &pp_device_cpu;
}

/* Rows that a saved tensor has room for, of so many: on a GPU a few more, so
 * that what lies behind it is aligned as its kernels want it. Which of them run
 * would otherwise depend on a place, and so would bits on the split. */
static inline size_t pp_device_rows(const struct pp_device_ops *ops,
                                    size_t rows)
{
    return ops->is_host ? rows : (rows + 15) / 16 * 16;
}

/* Memory for n things of size bytes. NULL with *err filled when there is not
 * enough; what names it in the message. */
void *pp_device_alloc(struct pp_device *d, size_t n, size_t size,
                      const char *what, struct pp_err *err);

/* Accepts NULL as p. */
void pp_device_free(struct pp_device *d, void *p);

/* Device memory where the host can read it: p itself, or a copy in room. NULL
 * with *err filled on failure. */
const void *pp_device_read(struct pp_device *d, const void *p, size_t bytes,
                           void *room, struct pp_err *err);

#endif
