/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/agree.h"

#include <string.h>

#include "comm/tree.h"

int pp_give_up(struct pp_comm *c, struct pp_err *err)
{
    c->ops->abort(c, "out of memory for a checkpoint");
    return pp_fail(err, PP_EXIT_SYSTEM, "out of memory for a checkpoint");
}

int pp_agree(struct pp_comm *c, int rc, struct pp_err *err)
{
    struct pp_verdict v = {rc ? c->rank : -1, rc ? *err : (struct pp_err){0}};
    const struct pp_tree_links l = pp_tree_links_of(c);
    if (pp_tree_judge(&l, &v, err))
        return -1;
    if (v.rank < 0)
        return 0;
    pp_fail(err, v.err.code, "%s", v.err.text);
    pp_err_set_origin(err, PP_ORIGIN_AGREED, 1);
    return strcmp(err->text, v.err.text) == 0
               ? pp_err_set_origin(err, PP_ORIGIN_RANK, v.rank)
               : -1;
}
