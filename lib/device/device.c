/* SPDX-License-Identifier: MIT */
/* device - the CPU as a device, and functions for all devices. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static int cpu_check(int n_ranks, struct pp_err *err)
{
    (void)n_ranks, (void)err;
    return 0;
}

static int cpu_open(int local_rank, struct pp_device **out, struct pp_err *err)
{
    (void)local_rank;
    struct pp_device *d = malloc(sizeof *d);
    if (!d)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    *d = (struct pp_device){.ops = &pp_device_cpu};
    *out = d;
    return 0;
}

static void cpu_close(struct pp_device *d)
{
    free(d);
}

/* Writes all pages, so that no page fault falls inside a step. */
static void *cpu_alloc(struct pp_device *d, size_t bytes)
{
    (void)d;
    void *p = aligned_alloc(PP_LINE_BYTES, pp_line_bytes(bytes));
    if (p)
        memset(p, 0, bytes);
    return p;
}

static void cpu_free(struct pp_device *d, void *p)
{
    (void)d;
    free(p);
}

static int cpu_copy(struct pp_device *d, void *to, const void *from,
                    size_t bytes, struct pp_err *err)
{
    (void)d, (void)err;
    if (bytes)
        memcpy(to, from, bytes);
    return 0;
}

static int cpu_zero(struct pp_device *d, void *p, size_t bytes,
                    struct pp_err *err)
{
    (void)d, (void)err;
    if (bytes)
        memset(p, 0, bytes);
    return 0;
}

static int cpu_wait(struct pp_device *d, struct pp_err *err)
{
    (void)d, (void)err;
    return 0;
}

const struct pp_device_ops pp_device_cpu = {
    .name = "cpu",
    .is_host = true,
    .check = cpu_check,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = cpu_alloc,
    .free_host = cpu_free,
    .put = cpu_copy,
    .get = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .wait = cpu_wait,
};

void *pp_device_alloc(struct pp_device *d, size_t n, size_t size,
                      const char *what, struct pp_err *err)
{
    char text[32];
    size_t bytes;
    if (pp_mul(n ? n : 1, size, &bytes, err))
        return NULL;
    void *p = bytes <= SIZE_MAX - PP_LINE_BYTES
                  ? pp_device_ops(d)->alloc(d, bytes)
                  : NULL;
    if (!p) {
        pp_format_size(bytes, text);
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory: %s need %s", what, text);
    } else if (d) {
        d->allocated += pp_line_bytes(bytes);
    }
    return p;
}

void pp_device_free(struct pp_device *d, void *p)
{
    pp_device_ops(d)->free(d, p);
}

int pp_device_follow(struct pp_device *d, struct pp_device *other, void *event,
                     struct pp_err *err)
{
    const struct pp_stream_ops *q = d->ops->streams;
    return q->event_record(other, event, NULL, err) ||
                   q->wait_event(d, NULL, event, err)
               ? -1
               : 0;
}

const void *pp_device_read(struct pp_device *d, const void *p, size_t bytes,
                           void *room, struct pp_err *err)
{
    if (pp_device_ops(d)->is_host)
        return p;
    return d->ops->get(d, room, p, bytes, err) ? NULL : room;
}
