/* SPDX-License-Identifier: MIT */
/* family_qwen2_vit - the encoder of images of Qwen2-VL (Wang et al., "Qwen2-VL:
 * Enhancing Vision-Language Model's Perception of the World at Any Resolution",
 * 2024): rotary positions of row and column, and no norms around its layers. */
#include "model/parts.h"

static const struct pp_names names = {
    .patches = "visual.patch_embed.proj.weight",
    .layers = "visual.blocks",
    .layer =
        {
            [PP_P_NORM1] = "norm1.weight",
            [PP_P_NORM1_BIAS] = "norm1.bias",
            [PP_P_Q] = "attn.qkv.weight",
            [PP_P_Q_BIAS] = "attn.qkv.bias",
            [PP_P_O] = "attn.proj.weight",
            [PP_P_O_BIAS] = "attn.proj.bias",
            [PP_P_NORM2] = "norm2.weight",
            [PP_P_NORM2_BIAS] = "norm2.bias",
            [PP_P_UP] = "mlp.fc1.weight",
            [PP_P_UP_BIAS] = "mlp.fc1.bias",
            [PP_P_DOWN] = "mlp.fc2.weight",
            [PP_P_DOWN_BIAS] = "mlp.fc2.bias",
        },
};

const struct pp_family pp_family_qwen2_vit = {
    .architecture = "Qwen2VisionTransformerPretrainedModel",
    .names = &names,
    .norm = PP_PART_LAYER_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_PLAIN_MLP,
    .whole = true,
};
