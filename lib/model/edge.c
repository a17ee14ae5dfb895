/* SPDX-License-Identifier: MIT */
#include "model/edge.h"

#include "model/vision.h"

struct pp_edge pp_edge_before(const struct pp_model *m, size_t at)
{
    size_t vision = m->table ? 0 : pp_vision_n_units(m);
    /* A layer for multi-token prediction also passes on all that it gets. */
    size_t mtp = vision + m->n_layers + 2;
    size_t n = m->n_mtp && at > mtp ? 1 + at - mtp : 1;
    if (at == 0 || at == pp_model_n_units(m))
        return (struct pp_edge){0};
    if (at > vision)
        return (struct pp_edge){PP_ROWS_TOKENS, n * m->hidden, 0};
    struct pp_unit_id before = pp_vision_unit(m, at - 1);
    if (before.kind == PP_UNIT_PROJECTOR)
        return (struct pp_edge){PP_ROWS_FEATURES, m->hidden, before.encoder};
    return (struct pp_edge){PP_ROWS_PATCHES, pp_unit_encoder(m, before)->hidden,
                            before.encoder};
}

enum pp_rows pp_unit_rows(struct pp_unit_id u)
{
    if (u.kind == PP_UNIT_PROJECTOR)
        return PP_ROWS_FEATURES;
    return pp_unit_is_vision(u) ? PP_ROWS_PATCHES : PP_ROWS_TOKENS;
}

size_t pp_image_rows(const struct pp_vision *v, size_t patches,
                     enum pp_rows rows)
{
    return rows == PP_ROWS_PATCHES ? patches + v->class_token
                                   : patches / v->merge + v->class_out;
}

double pp_rows_rate(const struct pp_vision *v, enum pp_rows rows)
{
    return rows == PP_ROWS_TOKENS
               ? 1
               : pp_vision_rate(v, pp_image_rows(v, v->patches, rows));
}

double pp_edge_rate(const struct pp_model *m, size_t at)
{
    struct pp_edge e = pp_edge_before(m, at);
    return (double)e.width * pp_rows_rate(&m->encoders[e.encoder], e.rows);
}
