/* SPDX-License-Identifier: MIT */
#include "model/edge.h"

#include "model/unit_bytes.h"
#include "model/vision.h"

struct pp_edge pp_edge_before(const struct pp_model *m, size_t at)
{
    size_t vision = pp_component_first(m, PP_LANGUAGE);
    size_t own = pp_component_first(m, PP_GENERATOR);
    if (at >= own && m->generator) {
        struct pp_edge e = pp_edge_before(m->generator, at - own);
        e.rows = PP_ROWS_GENERATED;
        return e;
    }
    /* A layer for multi-token prediction also passes on all that it gets. */
    size_t mtp = vision + m->n_layers + 2;
    size_t n = m->n_mtp && at > mtp ? 1 + at - mtp : 1;
    if (at == 0 || at == own)
        return (struct pp_edge){PP_ROWS_TOKENS, at == 0 ? m->reads : 0};
    if (m->head_stages && pp_model_unit(m, at - 1).kind == PP_UNIT_HEAD)
        return (struct pp_edge){PP_ROWS_TOKENS, PP_HEAD_STATISTICS, true};
    if (at > vision)
        return (struct pp_edge){PP_ROWS_TOKENS, n * m->hidden};
    struct pp_unit_id before = pp_model_unit(m, at - 1);
    const struct pp_vision *v = pp_unit_encoder(m, before);
    size_t width = before.kind == PP_UNIT_PROJECTOR
                       ? m->hidden * pp_vision_makes(v)
                       : v->hidden * (1 + pp_vision_kept(v, before));
    return (struct pp_edge){pp_unit_rows(before), width};
}

struct pp_edge pp_edge_read(const struct pp_model *m, size_t at)
{
    struct pp_unit_id u = {0};
    for (size_t k = 1; k < PP_MAX_ENCODERS; k++)
        if (at == pp_component_first(m, k) && pp_component_n_units(m, k) > 0)
            return (struct pp_edge){0};
    if (m->head_stages && at < pp_model_n_units(m))
        u = pp_model_unit(m, at);
    return pp_edge_before(m, u.kind == PP_UNIT_HEAD ? at - u.layer : at);
}

/* Reports whether units first to first + n - 1 have the projector of an encoder
 * of the model. */
static bool has_projector(const struct pp_model *m, size_t first, size_t n,
                          size_t encoder)
{
    size_t end = pp_component_first(m, encoder + 1);
    return pp_component_n_units(m, encoder) > 0 && first < end &&
           end <= first + n;
}

struct pp_edges pp_stage_edges(const struct pp_model *m, size_t first, size_t n)
{
    size_t end = first + n, vision = pp_component_first(m, PP_LANGUAGE);
    struct pp_edge last = pp_edge_before(m, end);
    struct pp_edges out = {0};
    for (size_t k = 0; k < PP_MAX_ENCODERS && end <= vision; k++)
        if (has_projector(m, first, n, k))
            out.at[out.n++] = pp_edge_before(m, pp_component_first(m, k + 1));
    if (last.width && (n == 0 || last.rows < PP_ROWS_FEATURES))
        out.at[out.n++] = last;
    return out;
}

bool pp_stage_holds(const struct pp_model *m, size_t first, size_t n,
                    size_t encoder)
{
    size_t vision = pp_component_first(m, PP_LANGUAGE);
    return has_projector(m, first, n, encoder) && first + n > vision &&
           pp_component_first(m, encoder + 1) < vision;
}

size_t pp_unit_rows(struct pp_unit_id u)
{
    return u.component + (u.kind == PP_UNIT_PROJECTOR ? PP_ROWS_FEATURES : 0);
}

size_t pp_image_rows(const struct pp_vision *v, size_t patches, size_t rows)
{
    return rows < PP_ROWS_FEATURES ? patches + v->class_token
                                   : patches / v->merge + v->class_out;
}

double pp_rows_rate(const struct pp_shard *s, size_t rows)
{
    size_t k = pp_rows_component(rows);
    if (pp_rows_of_tokens(rows))
        return 1;
    return pp_vision_rate(
        &s->images[k],
        pp_image_rows(&s->model->encoders[k], s->images[k].patches, rows));
}

static double rate_of(const struct pp_shard *s, struct pp_edge e)
{
    return (double)e.width * pp_rows_rate(s, e.rows);
}

double pp_edge_rate(const struct pp_shard *s, size_t at)
{
    return rate_of(s, pp_edge_before(s->model, at));
}

double pp_stage_edges_rate(const struct pp_shard *s, size_t first, size_t n,
                           const struct pp_backend *b)
{
    const struct pp_edges x = pp_stage_edges(s->model, first, n);
    double sum = 0;
    for (size_t i = 0; i < x.n; i++)
        sum += pp_rows_rate(s, x.at[i].rows) *
               (double)pp_edge_bytes(x.at[i], b->element_bytes,
                                     b->accumulator_bytes);
    return sum;
}

double pp_stage_held_rate(const struct pp_shard *s, size_t first, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        if (pp_stage_holds(s->model, first, n, k))
            sum += pp_edge_rate(s, pp_component_first(s->model, k + 1));
    return sum;
}
