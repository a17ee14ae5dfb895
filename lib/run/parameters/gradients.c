/* SPDX-License-Identifier: MIT */
#include "run/parameters/gradients.h"

#include "base/num.h"

/* Gradients that are one behind the other, and are cleared at once. */
struct cleared {
    const struct pp_parameters *p;
    struct pp_device *device;
    char *from, *end;
};

static int clear(struct cleared *r, struct pp_err *err)
{
    char *from = r->from;
    size_t n = from ? (size_t)(r->end - from) : 0;
    r->from = NULL;
    return n ? pp_device_ops(r->device)->zero(r->device, from, n, err) : 0;
}

static char *end_of(const struct pp_parameters *p, const struct pp_parameter *t)
{
    return (char *)t->g + t->n * p->accumulator_bytes;
}

/* Adds a tensor to a run, unless it is not stale. The gaps between units are 0
 * and stay so. */
static int add_stale(struct cleared *r, size_t i, struct pp_err *err)
{
    const struct pp_parameter *t = &r->p->at[i];
    if (!t->g || !r->p->stale[i])
        return 0;
    r->p->stale[i] = false;
    bool follows = r->from && (char *)t->g >= r->end &&
                   (char *)t->g < r->end + PP_LINE_BYTES;
    if (!follows) {
        if (clear(r, err))
            return -1;
        r->from = t->g;
    }
    r->end = end_of(r->p, t);
    return 0;
}

int pp_gradients_begin(struct pp_parameters *p, struct pp_err *err)
{
    struct pp_device *d = p->device;
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        p->stale[i] = t->g != NULL;
        if (t->load && pp_device_ops(d)->zero(d, t->load,
                                              t->n * p->accumulator_bytes, err))
            return -1;
    }
    return 0;
}

int pp_gradients_take(const struct pp_parameters *p,
                      const struct pp_parameter *t, size_t n,
                      struct pp_device *d, bool *writes, struct pp_err *err)
{
    size_t first = (size_t)(t - p->at), last = first;
    char *end = (char *)t->g + n * p->accumulator_bytes;
    struct cleared r = {.p = p, .device = d};
    bool all = writes;
    for (; last < p->n && p->at[last].unit == t->unit &&
           p->at[last].copy == t->copy && (char *)p->at[last].g < end;
         last++)
        if (p->at[last].g)
            all = all && p->stale[last] && end_of(p, &p->at[last]) <= end;
    if (writes)
        *writes = all;
    for (size_t i = first; i < last; i++)
        if (all)
            p->stale[i] = false;
        else if (add_stale(&r, i, err))
            return -1;
    return clear(&r, err);
}

int pp_gradients_settle(const struct pp_parameters *p, int stage, int64_t unit,
                        struct pp_err *err)
{
    struct cleared r = {.p = p, .device = p->device};
    for (size_t i = 0; i < p->n; i++)
        if ((stage == PP_ALL || p->at[i].stage == stage) &&
            (unit == PP_ALL || (int64_t)p->at[i].unit == unit) &&
            add_stale(&r, i, err))
            return -1;
    return clear(&r, err);
}
