/* SPDX-License-Identifier: MIT */
/* inspect - shows a check the whole gradients and weights of a rank. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "run/execute/sync.h"
#include "run/train/rank.h"

/* Gathers divided weights behind each other, and points the tensors of a copy
 * of the parameters to them. */
static int fill_whole(const struct pp_rank *r, char *to,
                      struct pp_parameters *whole, struct pp_err *err)
{
    for (size_t i = 0; i < whole->n; i++) {
        struct pp_parameter *t = &whole->at[i];
        if (pp_sync_whole(&r->worker, &r->params.at[i], to, err))
            return -1;
        t->w = to;
        t->held = (struct pp_range){0, t->n};
        to += t->n * whole->element_bytes;
    }
    return 0;
}

/* The whole weights are not in the plan of memory, as only a check needs them.
 * What it writes to them is lost. */
static int show_whole(const struct pp_rank *r, struct pp_inspection *at,
                      struct pp_err *err)
{
    struct pp_parameters whole = r->params;
    struct pp_device *d = r->env.device;
    void *w = d->ops->alloc(d, (whole.n_elements + 1) * whole.element_bytes);
    whole.at = pp_try_calloc(whole.n + 1, sizeof *whole.at, err);
    int rc = -1;
    if (!w)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (w && whole.at) {
        memcpy(whole.at, r->params.at, whole.n * sizeof *whole.at);
        at->params = &whole;
        rc = fill_whole(r, w, &whole, err) ||
                     r->job->inspect(r->job->ctx, at, err)
                 ? -1
                 : 0;
    }
    if (w)
        d->ops->free(d, w);
    free(whole.at);
    return rc;
}

int pp_rank_inspect(const struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_inspection at = {r->env.comm->rank, r->step, &r->params};
    if (!j->inspect)
        return 0;
    if (pp_exec_ops.gather(&r->worker, PP_BLOCK_G, err))
        return -1;
    return r->params.divided ? show_whole(r, &at, err)
                             : j->inspect(j->ctx, &at, err);
}
