/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/ckpt_agree.h"

int pp_give_up(struct pp_comm *c, struct pp_err *err)
{
    c->ops->abort(c, "out of memory for a checkpoint");
    return pp_fail(err, PP_EXIT_SYSTEM, "out of memory for a checkpoint");
}

/* Rank 0 tells this to the others. */
struct verdict {
    int rank; /* the first that failed, or -1 */
    struct pp_err err;
};

/* Returns the error of the lowest rank that failed. Rank 0 alone calls it. */
static int judge(struct pp_comm *c, const struct pp_err *mine,
                 struct verdict *v, struct pp_err *err)
{
    struct pp_err other;
    *v = (struct verdict){mine->code == PP_EXIT_OK ? -1 : 0, *mine};
    for (int r = 1; r < c->size; r++) {
        if (pp_comm_receive(c, r, PP_DIRECTION_HOST, &other, sizeof other, err))
            return -1;
        if (v->rank < 0 && other.code != PP_EXIT_OK)
            *v = (struct verdict){r, other};
    }
    for (int r = 1; r < c->size; r++)
        if (pp_comm_send_host(c, r, v, sizeof *v, err))
            return -1;
    return 0;
}

int pp_agree(struct pp_comm *c, int rc, struct pp_err *err)
{
    struct pp_err mine = {0};
    struct verdict v;
    if (rc != 0)
        mine = *err;
    if (c->rank == 0)
        rc = judge(c, &mine, &v, err);
    else
        rc = pp_comm_send_host(c, 0, &mine, sizeof mine, err) ||
             pp_comm_receive(c, 0, PP_DIRECTION_HOST, &v, sizeof v, err);
    if (rc || v.rank < 0)
        return rc ? -1 : 0;
    pp_fail(err, v.err.code, "%s", v.err.text);
    return mine.code == PP_EXIT_OK
               ? pp_err_set_origin(err, PP_ORIGIN_RANK, v.rank)
               : -1;
}
