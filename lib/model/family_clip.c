/* SPDX-License-Identifier: MIT */
/* family_clip - CLIP's encoder of images (Radford et al., "Learning
 * Transferable Visual Models From Natural Language Supervision", ICML 2021), as
 * a part of LLaVA. */
#include "model/parts.h"

static const struct pp_names names = {
    .embedding = "vision_tower.vision_model.embeddings.class_embedding",
    .positions =
        "vision_tower.vision_model.embeddings.position_embedding.weight",
    .norm = "vision_tower.vision_model.pre_layrnorm.weight",
    .norm_bias = "vision_tower.vision_model.pre_layrnorm.bias",
    .patches = "vision_tower.vision_model.embeddings.patch_embedding.weight",
    .layers = "vision_tower.vision_model.encoder.layers",
    .layer =
        {
            [PP_P_NORM1] = "layer_norm1.weight",
            [PP_P_NORM1_BIAS] = "layer_norm1.bias",
            [PP_P_Q] = "self_attn.q_proj.weight",
            [PP_P_K] = "self_attn.k_proj.weight",
            [PP_P_V] = "self_attn.v_proj.weight",
            [PP_P_Q_BIAS] = "self_attn.q_proj.bias",
            [PP_P_K_BIAS] = "self_attn.k_proj.bias",
            [PP_P_V_BIAS] = "self_attn.v_proj.bias",
            [PP_P_O] = "self_attn.out_proj.weight",
            [PP_P_O_BIAS] = "self_attn.out_proj.bias",
            [PP_P_NORM2] = "layer_norm2.weight",
            [PP_P_NORM2_BIAS] = "layer_norm2.bias",
            [PP_P_UP] = "mlp.fc1.weight",
            [PP_P_UP_BIAS] = "mlp.fc1.bias",
            [PP_P_DOWN] = "mlp.fc2.weight",
            [PP_P_DOWN_BIAS] = "mlp.fc2.bias",
        },
};

const struct pp_family pp_family_clip = {
    .architecture = "CLIPVisionModel",
    .names = &names,
    .norm = PP_PART_LAYER_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_PLAIN_MLP,
    .whole = true,
};
