/* SPDX-License-Identifier: MIT */
#include "model/precision.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "model/vision.h"

const struct pp_precision pp_precisions[] = {
    {"fp32", "float32", 4, 4},
    {"fp64", "float64", 8, 8},
    {"bf16", "bfloat16", 2, 4},
    {NULL, NULL, 0, 0},
};

const struct pp_precision *pp_precision_find(const char *name)
{
    for (const struct pp_precision *p = pp_precisions; p->name; p++)
        if (!strcmp(p->name, name))
            return p;
    return NULL;
}

size_t pp_unit_saved_bytes(const struct pp_model *m, struct pp_unit_id u,
                           enum pp_recompute r, enum pp_saved_block block,
                           const struct pp_precision *p)
{
    struct pp_saved s[PP_MAX_SAVED];
    size_t most = 0;
    m = pp_unit_model(m, &u);
    if (m->table) /* a table has no workspace */
        return block == PP_SAVED_WORKSPACE
                   ? 0
                   : pp_size_of(ceil(pp_unit_row(m, u)->costs.act_bytes[block] *
                                     pp_table_bytes_of(m, p->element_bytes)));
    if (pp_unit_is_vision(u) && !pp_model_is_tower(m)) {
        if (!pp_vision_runs(m, u))
            return 0;
        if (u.kind != PP_UNIT_PROJECTOR) {
            const struct pp_model tower = pp_vision_tower(m, u.encoder);
            return pp_unit_saved_bytes(&tower, pp_vision_in_tower(u), r, block,
                                       p);
        }
    }
    for (int when = PP_IN_FORWARD; when <= PP_IN_BACKWARD; when++) {
        size_t n = pp_unit_saved(m, u, r, (enum pp_saved_when)when, s), sum = 0;
        for (size_t i = 0; i < n; i++)
            if (s[i].block == block)
                sum += s[i].width * (s[i].is_statistic ? p->accumulator_bytes
                                                       : p->element_bytes);
        most = sum > most ? sum : most;
    }
    return most;
}
