/* SPDX-License-Identifier: MIT */
#include "model/recompute.h"

#include <string.h>

const char *const pp_recompute_names[] = {
    [PP_RECOMPUTE_NONE] = "none",
    [PP_RECOMPUTE_SELECTIVE] = "selective",
    [PP_RECOMPUTE_FULL] = "full",
    [PP_N_RECOMPUTES] = NULL,
};

bool pp_recompute_find(const char *name, enum pp_recompute *out)
{
    for (int i = 0; i < PP_N_RECOMPUTES; i++)
        if (!strcmp(pp_recompute_names[i], name)) {
            *out = (enum pp_recompute)i;
            return true;
        }
    return false;
}

struct pp_flops pp_unit_recompute_flops(const struct pp_model *m,
                                        struct pp_unit_id u,
                                        enum pp_recompute r)
{
    struct pp_flops f = pp_unit_fwd_flops(m, u);
    /* A table says nothing of what its units could make again. */
    if (u.kind != PP_UNIT_LAYER || r == PP_RECOMPUTE_NONE || m->table)
        return (struct pp_flops){0};
    if (r == PP_RECOMPUTE_SELECTIVE)
        f.per_token = 0;
    /* The MLP's last product gives the layer's output, which no gradient asks
     * for. Those of experts are weighed by the router, whose gradient does. */
    else if (!pp_layer_set_has(&m->moe.layers, u.layer))
        f.per_token -= 2 * (double)m->hidden * (double)m->intermediate;
    return f;
}
