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
    {"bf16-grads", "bfloat16", 2, 4, .narrow_gradients = true},
    {"bf16-moments", "bfloat16", 2, 4, .narrow_moments = true},
    {"bf16-state", "bfloat16", 2, 4, .narrow_gradients = true,
     .narrow_moments = true},
    {NULL, NULL, 0, 0},
};

const struct pp_precision *pp_precision_find(const char *name)
{
    for (const struct pp_precision *p = pp_precisions; name && p->name; p++)
        if (!strcmp(p->name, name))
            return p;
    return NULL;
}

/* Returns what a unit of a table saves. A layer that recomputes keeps its input
 * and, selectively, the sum after attention and the outputs of products. A file
 * of units has no workspace. */
static double table_saved(const struct pp_unit_row *row, enum pp_recompute r,
                          enum pp_saved_block block)
{
    const double *kept = row->costs.act_bytes;
    double again = row->costs.out_bytes;
    if (r == PP_RECOMPUTE_NONE || row->kind != PP_UNIT_LAYER)
        return block == PP_SAVED_WORKSPACE ? 0 : kept[block];
    bool full = r == PP_RECOMPUTE_FULL;
    double rest = kept[PP_SAVED_ACT_W] - (full ? 1 : 2) * again +
                  (full ? kept[PP_SAVED_ACT_I] : 0);
    return block == PP_SAVED_WORKSPACE       ? rest
           : block == PP_SAVED_ACT_W         ? (full ? 1 : 2) * again
           : block == PP_SAVED_ACT_I && full ? 0
                                             : kept[block];
}

size_t pp_unit_saved_bytes(const struct pp_shard *s, struct pp_unit_id u,
                           enum pp_recompute r, enum pp_saved_block block,
                           const struct pp_precision *p)
{
    const struct pp_shard of = pp_unit_shard(s, &u);
    const struct pp_model *m = of.model;
    struct pp_saved saved[PP_MAX_SAVED];
    size_t most = 0;
    if (m->table) {
        const struct pp_unit_row *row = pp_unit_row(m, u);
        double kept = table_saved(row, r, block);
        if (pp_unit_is_vision(u) && block < PP_N_SAVED_BLOCKS)
            kept -= row->divided[block] *
                    (1 - 1 / (double)s->images[u.component].tp);
        return pp_size_of(ceil(kept * pp_table_bytes_of(m, p->element_bytes)));
    }
    if (!pp_unit_runs(m, u))
        return 0;
    if (pp_unit_is_vision(u) && u.kind != PP_UNIT_PROJECTOR &&
        !pp_model_is_tower(m)) {
        const struct pp_model tower = pp_vision_tower(m, u.component);
        const struct pp_shard in = pp_vision_shard(&of, &tower, u.component);
        return pp_unit_saved_bytes(&in, u, r, block, p);
    }
    for (int when = PP_IN_FORWARD; when <= PP_IN_BACKWARD; when++) {
        size_t n = pp_unit_saved(&of, u, r, (enum pp_saved_when)when, saved);
        size_t sum = 0;
        for (size_t i = 0; i < n; i++)
            if (saved[i].block == block)
                sum += saved[i].width * (saved[i].is_statistic
                                             ? p->accumulator_bytes
                                             : p->element_bytes);
        most = sum > most ? sum : most;
    }
    return most;
}
