/* SPDX-License-Identifier: MIT */
/* family_deepseek - DeepSeek-V2 (DeepSeek-AI, "DeepSeek-V2", 2024), DeepSeek-V3
 * (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024), and Moonlight, which is
 * a V3. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            [PP_P_Q] = "self_attn.q_proj.weight",
            [PP_P_Q_A] = "self_attn.q_a_proj.weight",
            [PP_P_Q_A_BIAS] = "self_attn.q_a_proj.bias",
            [PP_P_Q_A_NORM] = "self_attn.q_a_layernorm.weight",
            [PP_P_Q_B] = "self_attn.q_b_proj.weight",
            [PP_P_KV_A] = "self_attn.kv_a_proj_with_mqa.weight",
            [PP_P_KV_A_BIAS] = "self_attn.kv_a_proj_with_mqa.bias",
            [PP_P_KV_A_NORM] = "self_attn.kv_a_layernorm.weight",
            [PP_P_KV_B] = "self_attn.kv_b_proj.weight",
            [PP_P_O] = "self_attn.o_proj.weight",
            [PP_P_O_BIAS] = "self_attn.o_proj.bias",
            PP_NAMES_GATED_MLP,
            PP_NAMES_EXPERTS,
            PP_NAMES_SHARED_EXPERTS,
            PP_NAMES_AHEAD,
        },
    .buffers = {".inv_freq"},
};

#define FAMILY(id, text)                       \
    const struct pp_family pp_family_##id = {  \
        .model_type = #id,                     \
        .architecture = text "ForCausalLM",    \
        .names = &names,                       \
        .norm = PP_PART_RMS_NORM,              \
        .attention = PP_PART_LATENT_ATTENTION, \
        .mlp = PP_PART_EXPERTS,                \
    }

FAMILY(deepseek_v2, "DeepseekV2");
FAMILY(deepseek_v3, "DeepseekV3");
