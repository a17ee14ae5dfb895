/* SPDX-License-Identifier: MIT */
/* sent_arrays - the integers of a microbatch that kernels read. On a GPU they
 * are gathered in host memory and copied at once. */
#ifndef PP_RUN_EXECUTE_SENT_ARRAYS_H
#define PP_RUN_EXECUTE_SENT_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "device/device.h"

struct pp_sent_arrays {
    struct pp_device *device;
    int32_t *host,
        *there; /* the same integers; NULL if the device is the CPU */
    size_t used;
};

/* An array to send. */
struct pp_sent_array {
    const int32_t **at;
    size_t n; /* integers */
};

/* Makes room for so many bytes. The device, NULL for the CPU, outlives s. */
int pp_sent_init(struct pp_sent_arrays *s, struct pp_device *d, size_t bytes,
                 struct pp_err *err) PP_MUST_USE;
void pp_sent_finish(struct pp_sent_arrays *s);

/* Adds arrays to the arrays to send, and points to where they will be. Does
 * nothing on the CPU. */
void pp_sent_add(struct pp_sent_arrays *s, const struct pp_sent_array *arrays,
                 size_t n);

/* Copies what was added. Kernels that are queued already are not affected. */
int pp_sent_put(struct pp_sent_arrays *s, struct pp_err *err) PP_MUST_USE;

#endif
