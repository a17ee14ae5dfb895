/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/ckpt_agree.h"

#include <stdlib.h>

int pp_give_up(struct pp_comm *c, struct pp_err *err)
{
    c->ops->abort(c, "out of memory for a checkpoint");
    return pp_fail(err, PP_EXIT_SYSTEM, "out of memory for a checkpoint");
}

int pp_agree(struct pp_comm *c, int rc, struct pp_err *err)
{
    struct pp_err mine = {0}; /* allgather may fill err */
    if (rc != 0)
        mine = *err;
    struct pp_err *all = calloc((size_t)c->size, sizeof *all);
    if (!all)
        return pp_give_up(c, err);
    rc = c->ops->allgather(c, &mine, all, sizeof mine, err);
    for (int r = 0; rc == 0 && r < c->size; r++)
        if (all[r].code != PP_EXIT_OK) {
            rc = pp_fail(err, all[r].code, "%s", all[r].text);
            if (mine.code == PP_EXIT_OK)
                pp_err_set_origin(err, PP_ORIGIN_RANK, r);
        }
    free(all);
    return rc;
}
