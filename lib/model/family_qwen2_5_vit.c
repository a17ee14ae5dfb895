/* SPDX-License-Identifier: MIT */
/* family_qwen2_5_vit - the encoder of images of Qwen2.5-VL (Bai et al.,
 * "Qwen2.5-VL Technical Report", 2025): that of Qwen2-VL with RMSNorm and gated
 * MLPs. Most of its layers attend to windows. Qwen2.5-Omni (Xu et al.,
 * "Qwen2.5-Omni Technical Report", 2025) has the same with queries, keys and
 * values apart. */
#include "model/parts.h"

#define NAMES(...)                                   \
    {                                                \
        .patches = "visual.patch_embed.proj.weight", \
        .layers = "visual.blocks", .layer = {        \
            [PP_P_NORM1] = "norm1.weight",           \
            __VA_ARGS__,                             \
            [PP_P_O] = "attn.proj.weight",           \
            [PP_P_O_BIAS] = "attn.proj.bias",        \
            [PP_P_NORM2] = "norm2.weight",           \
            [PP_P_GATE] = "mlp.gate_proj.weight",    \
            [PP_P_UP] = "mlp.up_proj.weight",        \
            [PP_P_GATE_BIAS] = "mlp.gate_proj.bias", \
            [PP_P_UP_BIAS] = "mlp.up_proj.bias",     \
            [PP_P_DOWN] = "mlp.down_proj.weight",    \
            [PP_P_DOWN_BIAS] = "mlp.down_proj.bias", \
        }                                            \
    }

static const struct pp_names names =
    NAMES([PP_P_Q] = "attn.qkv.weight", [PP_P_Q_BIAS] = "attn.qkv.bias");
static const struct pp_names apart =
    NAMES([PP_P_Q] = "attn.q.weight", [PP_P_K] = "attn.k.weight",
          [PP_P_V] = "attn.v.weight", [PP_P_Q_BIAS] = "attn.q.bias",
          [PP_P_K_BIAS] = "attn.k.bias", [PP_P_V_BIAS] = "attn.v.bias");

#define FAMILY(id, text, names_)              \
    const struct pp_family pp_family_##id = { \
        .architecture = text,                 \
        .names = &names_,                     \
        .norm = PP_PART_RMS_NORM,             \
        .attention = PP_PART_ATTENTION,       \
        .mlp = PP_PART_GATED_MLP,             \
        .whole = true,                        \
    }

FAMILY(qwen2_5_vit, "Qwen2_5_VisionTransformerPretrainedModel", names);
FAMILY(omni_vit, "Qwen2_5OmniVisionEncoder", apart);
