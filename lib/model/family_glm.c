/* SPDX-License-Identifier: MIT */
/* family_glm - GLM-4 (Team GLM, "ChatGLM: A Family of Large Language Models
 * from GLM-130B to GLM-4 All Tools", 2024) and its successor of 2025, which
 * norms outputs, too. Half of a head rotates, by neighbours, and a tensor holds
 * gate and up. family_routed has GLM-4.5. */
#include "model/family_names.h"
#include "model/parts.h"

#define CONFIG                                      \
    "head=128 rot=floor((part|0.5)*hd) adjacent=1 " \
    "eps=rms_norm_eps|0.00000015625 qkv_bias=attention_bias|1 o_bias=0"
#define NAMES                                                               \
    PP_NAMES_ATTENTION,                                                     \
        PP_NAMES_ATTENTION_BIASES, [PP_P_GATE] = "mlp.gate_up_proj.weight", \
                                   [PP_P_DOWN] = "mlp.down_proj.weight"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer = {PP_NAMES_NORMS_BEFORE, NAMES},
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_glm = {
    .model_type = "glm",
    .architecture = "GlmForCausalLM",
    .config = CONFIG,
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

static const struct pp_names names_after = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            [PP_P_NORM1] = "input_layernorm.weight",
            [PP_P_AFTER1] = "post_self_attn_layernorm.weight",
            [PP_P_NORM2] = "post_attention_layernorm.weight",
            [PP_P_AFTER2] = "post_mlp_layernorm.weight",
            NAMES,
        },
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_glm4 = {
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .config = CONFIG,
    .names = &names_after,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .norms_after = true,
};
