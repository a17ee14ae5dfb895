/* SPDX-License-Identifier: MIT */
#include "cost/plan.h"

#include "model/vision.h"

const struct pp_plan_mode *pp_plan_mode(const struct pp_plan_unit *u,
                                        enum pp_recompute r)
{
    for (size_t k = 0; r && k < PP_MOST_MODES; k++)
        if (u->modes[k].recompute == r)
            return &u->modes[k];
    return NULL;
}

const double *pp_plan_act_bytes(const struct pp_plan_unit *u,
                                enum pp_recompute r)
{
    const struct pp_plan_mode *mode = pp_plan_mode(u, r);
    return mode ? mode->act_bytes : u->costs.act_bytes;
}

void pp_plan_stage_add(struct pp_plan_stage *s, const struct pp_plan_unit *u)
{
    const struct pp_plan_mode *mode = pp_plan_mode(u, s->recompute);
    const double *act = pp_plan_act_bytes(u, s->recompute);
    s->costs.params += u->costs.params;
    for (int k = 0; k < 2; k++) {
        s->costs.fwd_flops[k] += u->costs.fwd_flops[k];
        s->recompute_flops[k] += mode ? mode->recompute_flops[k] : 0;
    }
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        s->costs.act_bytes[k] += act[k];
    if (mode && mode->workspace_bytes > s->workspace_bytes)
        s->workspace_bytes = mode->workspace_bytes;
    s->costs.out_bytes = u->costs.out_bytes;
    s->state_bytes += u->state_bytes;
}

struct pp_layout pp_plan_layout(struct pp_plan p)
{
    struct pp_layout l = {.components = {{.mesh = *p.mesh}}, .n_components = 1};
    if (p.n_components == 0 || !p.components[0].apart)
        return l;
    l.generates = pp_plan_generates(p);
    l.n_components = 0;
    for (size_t i = 0; i < p.n_components; i++) {
        const struct pp_component *c = &p.components[i];
        struct pp_layout_component *to = &l.components[l.n_components];
        if (!c->apart)
            continue;
        *to = (struct pp_layout_component){c->mesh, c->first_rank,
                                           c->rank_offset};
        if (i == pp_plan_language(p))
            to->mesh.encoder_tp = p.mesh->encoder_tp;
        l.n_components++;
    }
    return l;
}

bool pp_plan_generates(struct pp_plan p)
{
    return p.n_components && p.components[p.n_components - 1].source;
}

size_t pp_plan_language(struct pp_plan p)
{
    size_t n = p.n_components ? p.n_components - 1 : 0;
    return n - (n > 0 && pp_plan_generates(p));
}

size_t pp_plan_encoders(struct pp_plan p)
{
    size_t n = pp_plan_language(p);
    return n < PP_MAX_ENCODERS ? n : PP_MAX_ENCODERS;
}

size_t pp_plan_encoder_of(struct pp_plan p, size_t unit)
{
    for (size_t e = 0; e < pp_plan_encoders(p); e++)
        if (unit < p.components[e].first_unit + p.components[e].n_units)
            return e;
    return PP_MAX_ENCODERS;
}

size_t pp_plan_counted(struct pp_plan p)
{
    const struct pp_item_counts *items = p.microbatch->items;
    return items[0].n || items[1].n ? pp_plan_encoders(p) : 0;
}

enum pp_modality pp_plan_modality(struct pp_plan p, size_t encoder,
                                  enum pp_modality of_data)
{
    if (pp_plan_encoders(p) < 2)
        return of_data;
    return encoder == 0 ? PP_MODALITY_IMAGES : PP_MODALITY_AUDIO;
}

size_t pp_plan_merge_any(struct pp_plan p, size_t encoder)
{
    return encoder > 0 ? PP_AUDIO_MERGE : p.model->image_merge;
}

size_t pp_plan_merge(struct pp_plan p, size_t encoder)
{
    size_t merge = pp_plan_merge_any(p, encoder);
    return merge ? merge : 1;
}

size_t pp_plan_states(struct pp_plan p, size_t encoder)
{
    size_t n = encoder == 0 ? p.model->feature_layers : 0;
    return n ? n : 1;
}

struct pp_image_load pp_plan_images(struct pp_plan p, size_t encoder)
{
    const struct pp_layout l = pp_plan_layout(p);
    struct pp_image_load of = {.n_images =
                                   (size_t)p.microbatch->items[encoder].n,
                               .seq_len = (size_t)p.microbatch->seq_len};
    pp_layout_divide_images(&l, encoder, &of);
    return of;
}

size_t pp_plan_item_ranks(struct pp_plan p, size_t encoder, double *bins)
{
    const struct pp_layout l = pp_plan_layout(p);
    size_t lanes, makers = pp_layout_makers(&l, encoder, &lanes);
    *bins = makers < lanes ? (double)lanes / (double)makers : 1;
    return makers > lanes ? makers / lanes : 1;
}
