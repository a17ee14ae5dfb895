/* SPDX-License-Identifier: MIT */
#include "run/execute/sent_arrays.h"

#include <string.h>

int pp_sent_init(struct pp_sent_arrays *s, struct pp_device *d, size_t bytes,
                 struct pp_err *err)
{
    *s = (struct pp_sent_arrays){.device = d};
    if (pp_device_ops(d)->is_host)
        return 0;
    s->host = pp_device_alloc(NULL, 1, bytes, "integers of kernels", err);
    s->there = s->host
                   ? pp_device_alloc(d, 1, bytes, "integers of kernels", err)
                   : NULL;
    return s->there ? 0 : -1;
}

void pp_sent_finish(struct pp_sent_arrays *s)
{
    pp_device_free(NULL, s->host);
    pp_device_free(s->device, s->there);
    *s = (struct pp_sent_arrays){0};
}

void pp_sent_add(struct pp_sent_arrays *s, const struct pp_sent_array *arrays,
                 size_t n)
{
    for (size_t i = 0; s->there && i < n; i++) {
        if (!arrays[i].n)
            continue;
        memcpy(s->host + s->used, *arrays[i].at,
               arrays[i].n * sizeof **arrays[i].at);
        *arrays[i].at = s->there + s->used;
        s->used += arrays[i].n;
    }
}

int pp_sent_put(struct pp_sent_arrays *s, struct pp_err *err)
{
    size_t n = s->used;
    s->used = 0;
    return n ? s->device->ops->put(s->device, s->there, s->host,
                                   n * sizeof *s->host, err)
             : 0;
}
