/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/ckpt_agree.h"

#include <string.h>

#include "comm/tree.h"

int pp_give_up(struct pp_comm *c, struct pp_err *err)
{
    c->ops->abort(c, "out of memory for a checkpoint");
    return pp_fail(err, PP_EXIT_SYSTEM, "out of memory for a checkpoint");
}

/* An error on its way through the tree. */
struct verdict {
    int rank; /* the first that failed, or -1 */
    struct pp_err err;
};

/* Returns the error of the lowest rank that failed. Children have higher ranks
 * than their parent, each lower ones than the next. */
static int find_first(struct pp_comm *c, struct verdict *v, struct pp_err *err)
{
    int end = pp_tree_end(c->rank, c->size);
    for (int k = c->rank + 1; k < end; k = pp_tree_end(k, c->size)) {
        struct verdict other;
        if (pp_comm_receive(c, k, PP_DIRECTION_HOST, &other, sizeof other, err))
            return -1;
        if (v->rank < 0)
            *v = other;
    }
    return c->rank > 0 ? pp_comm_send_host(c, pp_tree_parent(c->rank), v,
                                           sizeof *v, err)
                       : 0;
}

int pp_agree(struct pp_comm *c, int rc, struct pp_err *err)
{
    struct verdict v = {rc ? c->rank : -1, rc ? *err : (struct pp_err){0}};
    if (find_first(c, &v, err) || pp_tree_broadcast(c, &v, sizeof v, err))
        return -1;
    if (v.rank < 0)
        return 0;
    pp_fail(err, v.err.code, "%s", v.err.text);
    pp_err_set_origin(err, PP_ORIGIN_AGREED, 1);
    return strcmp(err->text, v.err.text) == 0
               ? pp_err_set_origin(err, PP_ORIGIN_RANK, v.rank)
               : -1;
}
