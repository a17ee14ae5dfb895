/* SPDX-License-Identifier: MIT */
#include "model/vision.h"

#include <stdio.h>

/* How the kinds call their parts. */
static const struct {
    const char *architecture;
    const char *fqn[5], *class[5]; /* by kind of unit, from PP_UNIT_PATCHES */
    bool norms;    /* one before the layers and one behind them */
    bool gated;    /* MLPs of three products ... */
    bool rms_norm; /* ... and norms without bias */
} families[PP_N_VISIONS] = {
    [PP_VISION_LLAVA] = {"LlavaForConditionalGeneration",
                         {"vision_tower.vision_model.embeddings",
                          "vision_tower.vision_model.pre_layrnorm",
                          "vision_tower.vision_model.encoder.layers",
                          "vision_tower.vision_model.post_layernorm",
                          "multi_modal_projector"},
                         {"CLIPVisionEmbeddings", "LayerNorm",
                          "CLIPEncoderLayer", "LayerNorm",
                          "LlavaMultiModalProjector"},
                         .norms = true},
    [PP_VISION_QWEN2] = {"Qwen2VLForConditionalGeneration",
                         {"visual.patch_embed", NULL, "visual.blocks", NULL,
                          "visual.merger"},
                         {"PatchEmbed", NULL, "Qwen2VLVisionBlock", NULL,
                          "PatchMerger"}},
    [PP_VISION_QWEN2_5] = {"Qwen2_5_VLForConditionalGeneration",
                           {"visual.patch_embed", NULL, "visual.blocks", NULL,
                            "visual.merger"},
                           {"Qwen2_5_VisionPatchEmbed", NULL,
                            "Qwen2_5_VLVisionBlock", NULL,
                            "Qwen2_5_VLPatchMerger"},
                           .gated = true,
                           .rms_norm = true},
};

const char *pp_vision_name(enum pp_vision_kind kind)
{
    return families[kind].architecture;
}

size_t pp_vision_n_units(const struct pp_model *m)
{
    const struct pp_vision *v = &m->vision;
    if (v->kind == PP_VISION_NONE)
        return 0;
    return v->n_layers + (families[v->kind].norms ? 4 : 2);
}

/* Units before the layers. */
static size_t n_first(const struct pp_vision *v)
{
    return families[v->kind].norms ? 2 : 1;
}

struct pp_unit_id pp_vision_unit(const struct pp_model *m, size_t index)
{
    size_t first = n_first(&m->vision), last = first + m->vision.n_layers;
    if (index >= first && index < last)
        return (struct pp_unit_id){PP_UNIT_VISION_LAYER, index - first};
    if (index + 1 == pp_vision_n_units(m))
        return (struct pp_unit_id){PP_UNIT_PROJECTOR, 0};
    return (struct pp_unit_id){index == 0   ? PP_UNIT_PATCHES
                               : index == 1 ? PP_UNIT_PRE_NORM
                                            : PP_UNIT_POST_NORM,
                               0};
}

size_t pp_vision_index(const struct pp_model *m, struct pp_unit_id u)
{
    switch (u.kind) {
    case PP_UNIT_PATCHES:
        return 0;
    case PP_UNIT_PRE_NORM:
        return 1;
    case PP_UNIT_VISION_LAYER:
        return n_first(&m->vision) + u.layer;
    case PP_UNIT_POST_NORM:
        return pp_vision_n_units(m) - 2;
    default:
        return pp_vision_n_units(m) - 1;
    }
}

void pp_vision_fqn(const struct pp_model *m, struct pp_unit_id u,
                   char buf[PP_FQN_TEXT])
{
    const char *name = families[m->vision.kind].fqn[u.kind - PP_UNIT_PATCHES];
    if (u.kind == PP_UNIT_VISION_LAYER)
        snprintf(buf, PP_FQN_TEXT, "%.64s.%zu", name, u.layer);
    else
        snprintf(buf, PP_FQN_TEXT, "%s", name);
}

void pp_vision_class(const struct pp_model *m, struct pp_unit_id u,
                     char buf[PP_FQN_TEXT])
{
    snprintf(buf, PP_FQN_TEXT, "%s",
             families[m->vision.kind].class[u.kind - PP_UNIT_PATCHES]);
}

struct list {
    struct pp_weight_group *at;
    size_t n, used; /* used: 1 where the products are done, else 0 */
};

static void add_vector(struct list *l, size_t n, enum pp_share share)
{
    l->at[l->n++] = (struct pp_weight_group){n, 1, 1, 0, share};
}

static void add_matrix(struct list *l, size_t rows, size_t cols,
                       enum pp_share share)
{
    l->at[l->n++] = (struct pp_weight_group){rows, cols, 1, l->used, share};
}

static void add_norm(struct list *l, const struct pp_vision *v)
{
    add_vector(l, v->hidden, PP_SHARE_NONE);
    if (!families[v->kind].rms_norm)
        add_vector(l, v->hidden, PP_SHARE_NONE);
}

/* A class embedding and positions, or neither. */
static void add_patches(struct list *l, const struct pp_vision *v)
{
    add_matrix(l, v->hidden, v->patch_inputs, PP_SHARE_NONE);
    if (!v->class_token)
        return;
    add_vector(l, v->hidden, PP_SHARE_NONE);
    l->at[l->n++] = (struct pp_weight_group){pp_vision_tokens(v), v->hidden, 1,
                                             0, PP_SHARE_NONE};
}

/* Every product has a bias. Queries, keys and values count as one. */
static void add_layer(struct list *l, const struct pp_vision *v)
{
    size_t h = v->hidden, i = v->intermediate;
    size_t widenings = families[v->kind].gated ? 2 : 1;
    add_norm(l, v);
    add_matrix(l, 3 * h, h, PP_SHARE_TENSOR);
    add_vector(l, 3 * h, PP_SHARE_TENSOR);
    add_matrix(l, h, h, PP_SHARE_TENSOR);
    add_vector(l, h, PP_SHARE_NONE);
    add_norm(l, v);
    for (size_t k = 0; k < widenings; k++) {
        add_matrix(l, i, h, PP_SHARE_TENSOR);
        add_vector(l, i, PP_SHARE_TENSOR);
    }
    add_matrix(l, h, i, PP_SHARE_TENSOR);
    add_vector(l, h, PP_SHARE_NONE);
}

/* LLaVA's goes to the language model's width at once, Qwen's merges. */
static void add_projector(struct list *l, const struct pp_model *m)
{
    const struct pp_vision *v = &m->vision;
    bool llava = v->kind == PP_VISION_LLAVA;
    size_t in = v->merge * v->hidden, middle = llava ? m->hidden : in;
    if (!llava)
        add_norm(l, v);
    add_matrix(l, middle, in, PP_SHARE_TENSOR);
    if (v->projector_bias)
        add_vector(l, middle, PP_SHARE_TENSOR);
    add_matrix(l, m->hidden, middle, PP_SHARE_TENSOR);
    if (v->projector_bias)
        add_vector(l, m->hidden, PP_SHARE_NONE);
}

size_t pp_vision_inventory(const struct pp_model *m, struct pp_unit_id u,
                           struct pp_weight_group out[PP_MAX_WEIGHT_GROUPS])
{
    const struct pp_vision *v = &m->vision;
    struct list l = {out, 0, 1};
    switch (u.kind) {
    case PP_UNIT_PATCHES:
        add_patches(&l, v);
        break;
    case PP_UNIT_VISION_LAYER:
        l.used = u.layer < v->n_run;
        add_layer(&l, v);
        break;
    case PP_UNIT_PROJECTOR:
        add_projector(&l, m);
        break;
    default:
        add_norm(&l, v);
        break;
    }
    return l.n;
}

size_t pp_vision_tokens(const struct pp_vision *v)
{
    return v->patches + v->class_token;
}

size_t pp_vision_out_tokens(const struct pp_vision *v)
{
    return v->patches / v->merge + v->class_out;
}

/* For each token of the language model, as many as an image has. */
static double rate(const struct pp_vision *v, size_t tokens)
{
    return (double)v->n_images * (double)tokens / (double)v->seq_len;
}

struct pp_flops pp_vision_flops(const struct pp_model *m, struct pp_unit_id u)
{
    const struct pp_vision *v = &m->vision;
    struct pp_weight_group w[PP_MAX_WEIGHT_GROUPS];
    size_t n = pp_vision_inventory(m, u, w), tokens = pp_vision_tokens(v);
    double length = (double)v->seq_len, products = 0;
    struct pp_flops f = {0};
    for (size_t i = 0; i < n; i++)
        products +=
            2 * (double)w[i].rows * (double)w[i].cols * (double)w[i].used;
    f.per_token = products * rate(v, u.kind == PP_UNIT_PATCHES ? v->patches
                                     : u.kind == PP_UNIT_PROJECTOR
                                         ? pp_vision_out_tokens(v)
                                         : tokens);
    if (u.kind != PP_UNIT_VISION_LAYER || u.layer >= v->n_run)
        return f;
    /* Every token attends its whole image, or window, in both directions. */
    bool windowed = pp_layer_set_has(&v->windowed, u.layer);
    size_t seen = windowed && v->window < tokens ? v->window : tokens;
    f.per_pair = 4 * (double)v->hidden * rate(v, tokens) * (double)seen /
                 ((length + 1) / 2);
    return f;
}

double pp_vision_out_width(const struct pp_model *m, struct pp_unit_id u)
{
    const struct pp_vision *v = &m->vision;
    return u.kind == PP_UNIT_PROJECTOR
               ? (double)m->hidden * rate(v, pp_vision_out_tokens(v))
               : (double)v->hidden * rate(v, pp_vision_tokens(v));
}
