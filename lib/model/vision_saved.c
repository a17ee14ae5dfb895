/* SPDX-License-Identifier: MIT */
/* What the units of an encoder of images keep between forward and backward: as
 * saved_widths.c counts a decoder layer that makes nothing again. */
#include "model/vision.h"

/* Numbers for each token of the encoder, and those of them that are
 * statistics. */
struct widths {
    double numbers[PP_N_SAVED_BLOCKS], statistics[PP_N_SAVED_BLOCKS];
};

/* LayerNorm keeps a mean beside the deviation. */
static double norm_statistics(const struct pp_vision *v)
{
    return v->kind == PP_VISION_QWEN2_5 ? 1 : 2;
}

/* Queries, keys, values, and the output of attention; the input, the middle,
 * both normed; and the MLP before and behind its activation. */
static struct widths layer(const struct pp_vision *v)
{
    double h = (double)v->hidden, i = (double)v->intermediate;
    double wide = v->kind == PP_VISION_QWEN2_5 ? 2 * i : i;
    return (struct widths){{[PP_SAVED_ACT_I] = 3 * h + wide,
                            [PP_SAVED_ACT_W] = 5 * h + i,
                            [PP_SAVED_GRAD_W] = 7 * h + wide},
                           {[PP_SAVED_ACT_I] = (double)v->n_heads,
                            [PP_SAVED_ACT_W] = 2 * norm_statistics(v)}};
}

/* For each token that comes out: the products' inputs, and what the activation
 * was given. Qwen's norm comes first, on patches. */
static struct widths projector(const struct pp_model *m)
{
    const struct pp_vision *v = &m->vision;
    bool llava = v->kind == PP_VISION_LLAVA;
    double in = (double)(v->merge * v->hidden), out = (double)m->hidden;
    double middle = llava ? out : in, norm = llava ? 0 : in;
    return (struct widths){
        {[PP_SAVED_ACT_I] = middle,
         [PP_SAVED_ACT_W] = norm + in + middle,
         [PP_SAVED_GRAD_W] = norm + middle + out},
        {[PP_SAVED_ACT_W] = llava ? 0 : (double)v->merge * norm_statistics(v)}};
}

static struct widths widths_of(const struct pp_model *m, struct pp_unit_id u)
{
    const struct pp_vision *v = &m->vision;
    double h = (double)v->hidden;
    switch (u.kind) {
    case PP_UNIT_PATCHES:
        return (struct widths){
            {[PP_SAVED_ACT_W] = (double)v->patch_inputs, [PP_SAVED_GRAD_W] = h},
            {0}};
    case PP_UNIT_PRE_NORM:
        return (struct widths){{[PP_SAVED_ACT_W] = h, [PP_SAVED_GRAD_W] = h},
                               {[PP_SAVED_ACT_W] = norm_statistics(v)}};
    case PP_UNIT_VISION_LAYER:
        if (u.layer < v->n_run)
            return layer(v);
        break;
    case PP_UNIT_PROJECTOR:
        return projector(m);
    default:
        break;
    }
    return (struct widths){{0}, {0}};
}

double pp_vision_saved_bytes(const struct pp_model *m, struct pp_unit_id u,
                             enum pp_saved_block block,
                             const struct pp_precision *p)
{
    const struct pp_vision *v = &m->vision;
    size_t tokens = u.kind == PP_UNIT_PROJECTOR ? pp_vision_out_tokens(v)
                    : u.kind == PP_UNIT_PATCHES ? v->patches
                                                : pp_vision_tokens(v);
    if (block == PP_SAVED_WORKSPACE)
        return 0;
    struct widths w = widths_of(m, u);
    return (w.numbers[block] * (double)p->element_bytes +
            w.statistics[block] * (double)p->accumulator_bytes) *
           (double)v->n_images * (double)tokens / (double)v->seq_len;
}
