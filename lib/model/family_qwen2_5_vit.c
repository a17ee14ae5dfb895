/* SPDX-License-Identifier: MIT */
/* family_qwen2_5_vit - the encoder of images of Qwen2.5-VL (Bai et al.,
 * "Qwen2.5-VL Technical Report", 2025): that of Qwen2-VL with RMSNorm and gated
 * MLPs. Most of its layers attend to windows. */
#include "model/parts.h"

static const struct pp_names names = {
    .patches = "visual.patch_embed.proj.weight",
    .layers = "visual.blocks",
    .layer =
        {
            [PP_P_NORM1] = "norm1.weight",
            [PP_P_Q] = "attn.qkv.weight",
            [PP_P_Q_BIAS] = "attn.qkv.bias",
            [PP_P_O] = "attn.proj.weight",
            [PP_P_O_BIAS] = "attn.proj.bias",
            [PP_P_NORM2] = "norm2.weight",
            [PP_P_GATE] = "mlp.gate_proj.weight",
            [PP_P_UP] = "mlp.up_proj.weight",
            [PP_P_GATE_BIAS] = "mlp.gate_proj.bias",
            [PP_P_UP_BIAS] = "mlp.up_proj.bias",
            [PP_P_DOWN] = "mlp.down_proj.weight",
            [PP_P_DOWN_BIAS] = "mlp.down_proj.bias",
        },
};

const struct pp_family pp_family_qwen2_5_vit = {
    .architecture = "Qwen2_5_VisionTransformerPretrainedModel",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .whole = true,
};
