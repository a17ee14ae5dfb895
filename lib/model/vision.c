/* SPDX-License-Identifier: MIT */
#include "model/vision.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_sizes.h"
#include "model/edge.h"
#include "model/parts.h"

#define OMNI "Qwen2_5OmniThinkerForConditionalGeneration"

/* Names and features of the families. */
static const struct {
    const char *architecture;
    const char *fqn[5], *class[5]; /* patches, norm, layer, norm, projector */
    enum pp_architecture tower;
} families[PP_END_VISIONS] = {
    [PP_VISION_LLAVA] = {"LlavaForConditionalGeneration",
                         {"vision_tower.vision_model.embeddings",
                          "vision_tower.vision_model.pre_layrnorm",
                          "vision_tower.vision_model.encoder.layers",
                          "vision_tower.vision_model.post_layernorm",
                          "multi_modal_projector"},
                         {"CLIPVisionEmbeddings", "LayerNorm",
                          "CLIPEncoderLayer", "LayerNorm",
                          "LlavaMultiModalProjector"},
                         PP_CLIP},
    [PP_VISION_QWEN2] = {"Qwen2VLForConditionalGeneration",
                         {"visual.patch_embed", NULL, "visual.blocks", NULL,
                          "visual.merger"},
                         {"PatchEmbed", NULL, "Qwen2VLVisionBlock", NULL,
                          "PatchMerger"},
                         PP_QWEN2_VIT},
    [PP_VISION_QWEN2_5] = {"Qwen2_5_VLForConditionalGeneration",
                           {"visual.patch_embed", NULL, "visual.blocks", NULL,
                            "visual.merger"},
                           {"Qwen2_5_VisionPatchEmbed", NULL,
                            "Qwen2_5_VLVisionBlock", NULL,
                            "Qwen2_5_VLPatchMerger"},
                           PP_QWEN2_5_VIT},
    [PP_VISION_QWEN2_AUDIO] = {"Qwen2AudioForConditionalGeneration",
                               {"audio_tower.conv1", NULL, "audio_tower.layers",
                                NULL, "multi_modal_projector"},
                               {"Conv1d", NULL, "Qwen2AudioEncoderLayer", NULL,
                                "Qwen2AudioMultiModalProjector"},
                               PP_WHISPER},
    [PP_VISION_OMNI] = {OMNI,
                        {"visual.patch_embed", NULL, "visual.blocks", NULL,
                         "visual.merger"},
                        {"Qwen2_5_VisionPatchEmbed", NULL,
                         "Qwen2_5OmniVisionBlock", NULL,
                         "Qwen2_5OmniPatchMerger"},
                        PP_OMNI_VIT},
    [PP_VISION_OMNI_AUDIO] = {OMNI,
                              {"audio_tower.conv1", NULL, "audio_tower.layers",
                               NULL, "audio_tower.proj"},
                              {"Conv1d", NULL, "Qwen2_5OmniAudioEncoderLayer",
                               NULL, "Linear"},
                              PP_OMNI_AUDIO},
};

const char *pp_vision_name(enum pp_vision_kind kind)
{
    return families[kind].architecture;
}

enum pp_architecture pp_vision_architecture(enum pp_vision_kind kind)
{
    return families[kind].tower;
}

/* Returns the number of units before the layers, and behind them. */
static size_t n_first(const struct pp_vision *v)
{
    return families[v->kind].fqn[1] ? 2 : 1;
}

size_t pp_vision_n_units(const struct pp_vision *v)
{
    if (v->kind == PP_VISION_NONE)
        return 0;
    return v->n_layers + 2 * n_first(v);
}

struct pp_unit_id pp_vision_unit(const struct pp_vision *v, size_t index)
{
    size_t first = n_first(v), n = pp_vision_n_units(v);
    if (index >= first && index < first + v->n_layers)
        return (struct pp_unit_id){PP_UNIT_LAYER, index - first};
    if (index == 0 || index == n - 1)
        return (struct pp_unit_id){index ? PP_UNIT_PROJECTOR : PP_UNIT_PATCHES};
    return (struct pp_unit_id){PP_UNIT_NORM, index > first};
}

size_t pp_vision_index(const struct pp_vision *v, struct pp_unit_id u)
{
    switch (u.kind) {
    case PP_UNIT_PATCHES:
        return 0;
    case PP_UNIT_LAYER:
        return n_first(v) + u.layer;
    case PP_UNIT_NORM:
        return u.layer ? pp_vision_n_units(v) - 2 : 1;
    default:
        return pp_vision_n_units(v) - 1;
    }
}

/* Returns the number of a unit's name in a family. */
static size_t name_of(struct pp_unit_id u)
{
    return u.kind == PP_UNIT_PATCHES ? 0
           : u.kind == PP_UNIT_LAYER ? 2
           : u.kind == PP_UNIT_NORM  ? 1 + 2 * u.layer
                                     : 4;
}

void pp_vision_fqn(const struct pp_model *m, struct pp_unit_id u,
                   char buf[PP_FQN_TEXT])
{
    const char *name = families[pp_unit_encoder(m, u)->kind].fqn[name_of(u)];
    if (u.kind == PP_UNIT_LAYER)
        snprintf(buf, PP_FQN_TEXT, "%.64s.%zu", name, u.layer);
    else
        snprintf(buf, PP_FQN_TEXT, "%s", name);
}

void pp_vision_class(const struct pp_model *m, struct pp_unit_id u,
                     char buf[PP_FQN_TEXT])
{
    snprintf(buf, PP_FQN_TEXT, "%s",
             families[pp_unit_encoder(m, u)->kind].class[name_of(u)]);
}

static const struct pp_family *family_of(const struct pp_vision *v)
{
    return pp_family_of(families[v->kind].tower);
}

enum pp_part_kind pp_vision_projector(const struct pp_vision *v)
{
    return pp_vision_hears(v)    ? PP_PART_POOLER
           : pp_vision_merges(v) ? PP_PART_MERGER
                                 : PP_PART_PROJECTOR;
}

bool pp_vision_is_rms(const struct pp_vision *v)
{
    return family_of(v)->norm == PP_PART_RMS_NORM;
}

struct pp_model pp_vision_tower(const struct pp_model *m, size_t encoder)
{
    const struct pp_vision *v = &m->encoders[encoder];
    bool merges = pp_vision_merges(v);
    size_t axis = merges ? v->hidden / v->n_heads / 4 : 0;
    struct pp_model tower = {
        .architecture = families[v->kind].tower,
        .hidden = v->hidden,
        .intermediate = v->intermediate,
        .n_layers = v->n_layers,
        .n_heads = v->n_heads,
        .n_kv_heads = v->n_heads,
        .head_dim = v->hidden / v->n_heads,
        .vocab = 1,
        .max_position =
            v->most ? v->most : pp_image_rows(v, v->patches, encoder),
        .rope = {.theta = PP_VISION_THETA, .attention_factor = 1},
        .rope_axes = {axis, axis},
        .norm_eps = v->norm_eps,
        .init_range = m->init_range,
        .dtype = m->dtype,
        .qkv_bias = true,
        .no_k_bias = pp_vision_hears(v),
        .o_bias = true,
        .mlp_bias = true,
        .gelu = v->gelu,
        .roles = m->roles,
    };
    memcpy(tower.encoders, m->encoders, sizeof tower.encoders);
    return tower;
}

struct pp_shard pp_vision_shard(const struct pp_shard *s,
                                const struct pp_model *tower, size_t encoder)
{
    const struct pp_mesh x = {1, 1, (int)s->images[encoder].tp, 1, 1};
    struct pp_shard of = pp_shard_of(tower, &x);
    of.whole_rows = true;
    return of;
}

size_t pp_vision_kept(const struct pp_vision *v, struct pp_unit_id behind)
{
    size_t states = behind.kind == PP_UNIT_PATCHES ? 0
                    : behind.kind == PP_UNIT_LAYER ? behind.layer + 2
                    : behind.kind == PP_UNIT_NORM && !behind.layer
                        ? 1
                        : v->n_run + 1;
    return pp_layer_set_before(&v->kept, states);
}

size_t pp_vision_middle(const struct pp_model *m, const struct pp_vision *v)
{
    return pp_vision_merges(v)  ? v->merge * v->hidden
           : pp_vision_hears(v) ? v->hidden
                                : m->hidden;
}

size_t pp_vision_rank_images(const struct pp_image_load *l)
{
    size_t images = l->n_images * l->lanes;
    return images / l->makers + (images % l->makers > 0);
}

size_t pp_vision_features(const struct pp_shard *s, size_t encoder)
{
    const struct pp_image_load *l = &s->images[encoder];
    return pp_vision_rank_images(l) *
           pp_image_rows(&s->model->encoders[encoder], l->patches,
                         PP_ROWS_FEATURES);
}

double pp_vision_rate(const struct pp_image_load *l, size_t tokens)
{
    return (double)(pp_vision_rank_images(l) * l->sharers) * (double)tokens /
           (double)l->seq_len;
}

void pp_vision_scale(const struct pp_shard *s, size_t encoder, double c[2])
{
    const struct pp_image_load *l = &s->images[encoder];
    double each = (double)pp_image_rows(&s->model->encoders[encoder],
                                        l->patches, encoder);
    double length = (double)l->seq_len;
    double rows = (double)pp_vision_rank_images(l) * each / (double)l->tp;
    c[0] *= rows / length;
    c[1] *= rows * each / (length * (length + 1) / 2);
}

struct pp_flops pp_vision_flops(const struct pp_shard *s, struct pp_unit_id u,
                                double products, double pair)
{
    const struct pp_vision *v = pp_unit_encoder(s->model, u);
    const struct pp_image_load *l = &s->images[u.component];
    size_t tokens = pp_image_rows(v, l->patches, u.component);
    double length = (double)l->seq_len;
    struct pp_flops f = {0};
    f.per_token =
        products *
        pp_vision_rate(l, u.kind == PP_UNIT_PATCHES
                              ? l->patches
                              : pp_image_rows(v, l->patches, pp_unit_rows(u)));
    if (u.kind != PP_UNIT_LAYER || u.layer >= v->n_run)
        return f;
    /* Every token attends its whole image, window or chunk. */
    double seen = (double)tokens, side = (double)v->window;
    if (pp_layer_set_has(&v->windowed, u.layer))
        seen = fmin(seen, v->chunk ? (double)v->chunk
                                   : side * side * (double)v->merge);
    f.per_pair = pair * pp_vision_rate(l, tokens) * seen / ((length + 1) / 2);
    return f;
}

double pp_vision_read_width(const struct pp_shard *s, size_t encoder)
{
    return (double)pp_vision_read(&s->model->encoders[encoder]) *
           pp_rows_rate(s, PP_ROWS_FEATURES + encoder);
}

double pp_vision_saved_bytes(const struct pp_shard *s, struct pp_unit_id u,
                             enum pp_saved_block block,
                             const struct pp_precision *p, bool is_host)
{
    const struct pp_vision *v = pp_unit_encoder(s->model, u);
    const struct pp_image_load *l = &s->images[u.component];
    size_t rows = pp_vision_rank_images(l) *
                  pp_image_rows(v, l->patches, pp_unit_rows(u));
    double rate = (double)(pp_saved_rows(is_host, rows) * l->sharers) /
                  (double)l->seq_len;
    return rate *
           (double)pp_unit_saved_bytes(s, u, PP_RECOMPUTE_NONE, block, p);
}

int pp_vision_check_images(const struct pp_model *m,
                           const struct pp_image_set *s, struct pp_err *err)
{
    const struct pp_vision *v = m->encoders;
    const struct pp_modality_words words = pp_modality_words(s->modality);
    if (s->n == 0)
        return 0;
    if (!pp_model_has_encoder(m))
        return pp_fail(err, PP_EXIT_INPUT, "'%s' has no encoder for the %zu %s",
                       pp_model_architecture(m), s->n, words.items);
    if (pp_model_n_encoders(m) > 1 && s->modality == pp_vision_modality(&v[1]))
        v++;
    if (s->modality != pp_vision_modality(v))
        return pp_fail(err, PP_EXIT_INPUT,
                       "the data have %s, which '%s' does not take",
                       words.items, pp_model_architecture(m));
    if (s->token != v->image_token)
        return pp_fail(err, PP_EXIT_INPUT,
                       "token '%zu' stands for %s, but %zu in the model; "
                       "pack them with this one",
                       s->token, words.items, v->image_token);
    if (s->patch_inputs != v->patch_inputs || s->merge != v->merge)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s have '%zu' values and %zu of them make a feature, "
                       "but the model takes %zu and %zu",
                       words.rows, s->patch_inputs, s->merge, v->patch_inputs,
                       v->merge);
    if (s->class_out != v->class_out)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s have %s feature of a class token, but the model "
                       "takes %s; pack them %s it",
                       words.items, s->class_out ? "a" : "no",
                       s->class_out ? "none" : "one",
                       s->class_out ? "without" : "with");
    if (v->fixed_size &&
        (s->max_image > v->patches || s->n_patches != s->n * v->patches))
        return pp_fail(err, PP_EXIT_INPUT,
                       "images have up to '%zu' patches, but the model takes "
                       "%zu of each",
                       s->max_image, v->patches);
    if (v->most && s->max_image > v->most)
        return pp_fail(err, PP_EXIT_INPUT,
                       "one of the %s has '%zu' %s, but the model takes at "
                       "most %zu",
                       words.items, s->max_image, words.rows, v->most);
    /* The frames of a video would be sequences of their own. */
    if (!v->fixed_size && s->max_frames > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "a video of '%zu' frames; pprun takes images so far",
                       s->max_frames);
    return 0;
}
