/* SPDX-License-Identifier: MIT */
/* parts_encoder - the parts of encoders of images and audio that a language
 * model does not have: what is before the layers, and the way from the last one
 * to the language model. */
#include "model/part_shapes.h"
#include "model/shard.h"
#include "model/vision.h"

static const struct pp_vision *encoder_of(const struct pp_model *m,
                                          const struct pp_model_part *p)
{
    return &m->encoders[p->encoder];
}

/* The convolution's kernel is one matrix of products, a row for each output. */
static void patches_tensors(const struct pp_model *m,
                            const struct pp_model_part *p,
                            struct pp_tensor_info *out)
{
    const struct pp_vision *v = encoder_of(m, p);
    struct pp_tensor_info *t = &out[PP_P_PATCH];
    set_matrix(t, m->hidden, v->patch_inputs, PP_SPLIT_NONE, 1);
    t->inner[0] = v->channels;
    t->n_dims = 2;
    if (v->frames)
        t->inner[t->n_dims++ - 1] = v->frames;
    t->inner[t->n_dims++ - 1] = v->patch_size;
    t->inner[t->n_dims++ - 1] = v->patch_size;
    if (v->class_token)
        set_vector(&out[PP_P_CLASS], m->hidden, PP_INIT_NORMAL, PP_SPLIT_NONE,
                   1);
}

static void patches_saved(const struct pp_shard *s,
                          const struct pp_model_part *p, struct pp_saved *out)
{
    out[PP_S_PATCH_X] = (struct pp_saved){
        PP_SAVED_ACT_W, encoder_of(s->model, p)->patch_inputs};
    out[PP_S_PATCH_DY] = (struct pp_saved){PP_SAVED_GRAD_W, s->model->hidden};
}

/* A window of three frames, or of three outputs of the first convolution, is a
 * row of the kernel's matrix. */
static void frames_tensors(const struct pp_model *m,
                           const struct pp_model_part *p,
                           struct pp_tensor_info *out)
{
    static const size_t slots[] = {PP_P_PATCH, PP_P_CONV2};
    const size_t widths[] = {encoder_of(m, p)->channels, m->hidden};
    for (size_t i = 0; i < 2; i++) {
        struct pp_tensor_info *t = &out[slots[i]];
        set_matrix(t, m->hidden, widths[i] * PP_AUDIO_FRAMES, PP_SPLIT_NONE, 1);
        t->inner[0] = widths[i];
        t->inner[1] = PP_AUDIO_FRAMES;
        t->n_dims = 3;
    }
    set_bias(&out[PP_P_CONV1_BIAS], m->hidden, PP_SPLIT_NONE, 1);
    set_bias(&out[PP_P_CONV2_BIAS], m->hidden, PP_SPLIT_NONE, 1);
}

static void frames_saved(const struct pp_shard *s,
                         const struct pp_model_part *p, struct pp_saved *out)
{
    size_t h = s->model->hidden;
    out[PP_S_PATCH_X] = (struct pp_saved){
        PP_SAVED_ACT_W, 2 * encoder_of(s->model, p)->patch_inputs};
    out[PP_S_PATCH_DY] = (struct pp_saved){PP_SAVED_GRAD_W, h};
    out[PP_S_CONV1] = (struct pp_saved){PP_SAVED_ACT_I, 2 * h};
    out[PP_S_CONV2_X] = (struct pp_saved){PP_SAVED_ACT_W, 3 * h};
    out[PP_S_CONV2] = (struct pp_saved){PP_SAVED_ACT_I, h};
    out[PP_S_DCONV1] = (struct pp_saved){PP_SAVED_GRAD_W, 2 * h};
}

/* Ranks divide what is between the products. */
static void projector_tensors(const struct pp_model *m,
                              const struct pp_model_part *p,
                              struct pp_tensor_info *out)
{
    const struct pp_vision *v = encoder_of(m, p);
    size_t in = pp_vision_read(v), middle = pp_vision_middle(m, v);
    set_matrix(&out[PP_P_LINEAR1], middle, in, PP_SPLIT_ROWS, middle);
    set_matrix(&out[PP_P_LINEAR2], m->hidden, middle, PP_SPLIT_COLUMNS, middle);
    if (!v->projector_bias)
        return;
    set_bias(&out[PP_P_LINEAR1_BIAS], middle, PP_SPLIT_ROWS, middle);
    set_bias(&out[PP_P_LINEAR2_BIAS], m->hidden, PP_SPLIT_NONE, 1);
}

static void projector_saved(const struct pp_shard *s,
                            const struct pp_model_part *p, struct pp_saved *out)
{
    const struct pp_vision *v = encoder_of(s->model, p);
    size_t middle = pp_vision_middle(s->model, v) / s->images[p->encoder].tp;
    out[PP_S_FEATURES] = (struct pp_saved){PP_SAVED_ACT_W, pp_vision_read(v)};
    out[PP_S_PROJECTED] = (struct pp_saved){PP_SAVED_ACT_I, middle};
    out[PP_S_PROJECTED_ACT] = (struct pp_saved){PP_SAVED_ACT_W, middle};
    out[PP_S_DPROJECTED] = (struct pp_saved){PP_SAVED_GRAD_W, middle};
    out[PP_S_PROJECTOR_DY] =
        (struct pp_saved){PP_SAVED_GRAD_W, s->model->hidden};
}

static void merger_tensors(const struct pp_model *m,
                           const struct pp_model_part *p,
                           struct pp_tensor_info *out)
{
    const struct pp_vision *v = encoder_of(m, p);
    projector_tensors(m, p, out);
    set_vector(&out[PP_P_MERGER_NORM], v->hidden, PP_INIT_ONES, PP_SPLIT_NONE,
               1);
    if (!pp_vision_is_rms(v))
        set_bias(&out[PP_P_MERGER_NORM_BIAS], v->hidden, PP_SPLIT_NONE, 1);
}

static void merger_saved(const struct pp_shard *s,
                         const struct pp_model_part *p, struct pp_saved *out)
{
    size_t merge = encoder_of(s->model, p)->merge,
           in = merge * encoder_of(s->model, p)->hidden;
    projector_saved(s, p, out);
    out[PP_S_MERGER_X] = (struct pp_saved){PP_SAVED_ACT_W, in};
    out[PP_S_MERGER_RSTD] = (struct pp_saved){PP_SAVED_ACT_W, merge, true};
    if (!pp_vision_is_rms(encoder_of(s->model, p)))
        out[PP_S_MERGER_MEAN] = (struct pp_saved){PP_SAVED_ACT_W, merge, true};
    out[PP_S_DMERGER] = (struct pp_saved){PP_SAVED_GRAD_W, in};
}

static void pooler_tensors(const struct pp_model *m,
                           const struct pp_model_part *p,
                           struct pp_tensor_info *out)
{
    const struct pp_vision *v = encoder_of(m, p);
    size_t in = v->hidden;
    if (v->kind == PP_VISION_OMNI_AUDIO) {
        set_matrix(&out[PP_P_CLIP_ENDS], 2, m->hidden, PP_SPLIT_NONE, 1);
        out[PP_P_CLIP_ENDS].frozen = true;
    }
    set_matrix(&out[PP_P_LINEAR2], m->hidden, in, PP_SPLIT_NONE, 1);
    set_bias(&out[PP_P_LINEAR2_BIAS], m->hidden, PP_SPLIT_NONE, 1);
    set_vector(&out[PP_P_MERGER_NORM], in, PP_INIT_ONES, PP_SPLIT_NONE, 1);
    set_bias(&out[PP_P_MERGER_NORM_BIAS], in, PP_SPLIT_NONE, 1);
}

static void pooler_saved(const struct pp_shard *s,
                         const struct pp_model_part *p, struct pp_saved *out)
{
    size_t in = encoder_of(s->model, p)->hidden;
    out[PP_S_FEATURES] = (struct pp_saved){PP_SAVED_ACT_W, in};
    out[PP_S_PROJECTOR_DY] =
        (struct pp_saved){PP_SAVED_GRAD_W, s->model->hidden};
    out[PP_S_MERGER_X] = (struct pp_saved){PP_SAVED_ACT_W, in};
    out[PP_S_MERGER_RSTD] = (struct pp_saved){PP_SAVED_ACT_W, 1, true};
    out[PP_S_MERGER_MEAN] = (struct pp_saved){PP_SAVED_ACT_W, 1, true};
    out[PP_S_DMERGER] = (struct pp_saved){PP_SAVED_GRAD_W, in};
}

const struct pp_part_row *pp_encoder_part_row(enum pp_part_kind kind)
{
    static const struct pp_part_row rows[PP_N_PARTS] = {
        [PP_PART_PATCHES] = {patches_tensors, patches_saved},
        [PP_PART_PROJECTOR] = {projector_tensors, projector_saved},
        [PP_PART_MERGER] = {merger_tensors, merger_saved},
        [PP_PART_FRAMES] = {frames_tensors, frames_saved},
        [PP_PART_POOLER] = {pooler_tensors, pooler_saved},
    };
    return &rows[kind];
}
