/* SPDX-License-Identifier: MIT */
#include "run/parameters/staging.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "run/parameters/weights.h"

static bool is_host(const struct pp_staging *s)
{
    return pp_device_ops(s->params->device)->is_host;
}

int pp_staging_init(struct pp_staging *s, const struct pp_parameters *p,
                    struct pp_err *err)
{
    size_t most = 1, bytes;
    *s = (struct pp_staging){.params = p};
    if (is_host(s))
        return 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].n > most)
            most = p->at[i].n;
    if (pp_mul(most, p->accumulator_bytes, &bytes, err))
        return -1;
    s->buf = malloc(bytes);
    if (!s->buf)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory: %zu bytes", bytes);
    return 0;
}

void pp_staging_finish(struct pp_staging *s)
{
    free(s->buf);
    *s = (struct pp_staging){0};
}

const void *pp_staging_read(struct pp_staging *s, const struct pp_parameter *t,
                            enum pp_weights_block block, struct pp_err *err)
{
    return pp_device_read(s->params->device, pp_parameter_data(t, block),
                          t->n * pp_parameters_bytes(s->params, block), s->buf,
                          err);
}

void *pp_staging_open(struct pp_staging *s, const struct pp_parameter *t,
                      enum pp_weights_block block)
{
    return is_host(s) ? pp_parameter_data(t, block) : s->buf;
}

static int put(struct pp_staging *s, const struct pp_parameter *t,
               enum pp_weights_block block, struct pp_err *err)
{
    struct pp_device *d = s->params->device;
    return d->ops->put(d, pp_parameter_data(t, block), s->buf,
                       t->n * pp_parameters_bytes(s->params, block), err);
}

/* float to bfloat16 in place, to nearest even: an element is written behind
 * those that are still to be read. */
static void round_to_bf16(void *buf, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t x;
        memcpy(&x, (char *)buf + i * sizeof x, sizeof x);
        bool is_nan = (x & 0x7fffffff) > 0x7f800000;
        uint16_t y =
            is_nan ? 0x7fff : (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
        memcpy((char *)buf + i * sizeof y, &y, sizeof y);
    }
}

int pp_staging_store(struct pp_staging *s, const struct pp_parameter *t,
                     enum pp_weights_block block, struct pp_err *err)
{
    const struct pp_parameters *p = s->params;
    if (is_host(s))
        return 0;
    if (block != PP_BLOCK_W || p->element_bytes == p->accumulator_bytes)
        return put(s, t, block, err);
    if (t->master && put(s, t, PP_BLOCK_MASTER, err))
        return -1;
    round_to_bf16(s->buf, t->n);
    return put(s, t, PP_BLOCK_W, err);
}
