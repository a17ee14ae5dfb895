/* SPDX-License-Identifier: MIT */
/* family_olmo - OLMo (Groeneveld et al., "OLMo: Accelerating the Science of
 * Language Models", 2024), whose norms have no parameters, and OLMo 2 (Team
 * OLMo, "2 OLMo 2 Furious", 2025), which norms the outputs of attention and
 * MLP, not their inputs, with the families that do so, too. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            PP_NAMES_QK_NORM,
            [PP_P_AFTER1] = "post_attention_layernorm.weight",
            PP_NAMES_GATED_MLP,
            [PP_P_AFTER2] = "post_feedforward_layernorm.weight",
            PP_NAMES_EXPERTS,
        },
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_olmo = {
    .model_type = "olmo",
    .architecture = "OlmoForCausalLM",
    .config = "longest=max_position_embeddings|2048 eps=0.00001 mlp_bias=0",
    .names = &names,
    .norm = PP_PART_PLAIN_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

const struct pp_family pp_family_olmo2 = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .config = "longest=max_position_embeddings|2048 eps=rms_norm_eps|0.00001 "
              "qk_norm=1 norms_all_heads=1 mlp_bias=0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .norms_after = true,
    .only_after = true,
};

/* Team OLMo, "Olmo 3", 2025. Full layers alone have scaled positions. */
const struct pp_family pp_family_olmo3 = {
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .config = "qk_norm=1 norms_all_heads=1 eps=rms_norm_eps|0.00001 "
              "theta=500000 local_theta=500000 span=4096 pattern=(l+1)%4!=0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .norms_after = true,
    .only_after = true,
};

/* LG AI Research, "EXAONE 4.0", 2025. If layers have windows, the others have
 * no rotary positions. */
const struct pp_family pp_family_exaone4 = {
    .model_type = "exaone4",
    .architecture = "Exaone4ForCausalLM",
    .config = "kv=32 qk_norm=1 eps=rms_norm_eps|0.00001 span=4096 "
              "pattern=(l+1)%(sliding_window_pattern|4)!=0 "
              "rotates=!wide||sliding qkv_bias=0 o_bias=0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .norms_after = true,
    .only_after = true,
};

/* Shi et al., "FlexOlmo: Open Language Models for Flexible Data Use", 2025. */
const struct pp_family pp_family_flex_olmo = {
    .model_type = "flex_olmo",
    .architecture = "FlexOlmoForCausalLM",
    .config = "qk_norm=1 norms_all_heads=1 theta=500000 Ie=I S=0 sparse=1",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
    .norms_after = true,
    .only_after = true,
};
