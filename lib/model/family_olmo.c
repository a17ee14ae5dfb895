/* SPDX-License-Identifier: MIT */
/* family_olmo - OLMo (Groeneveld et al., "OLMo: Accelerating the Science of
 * Language Models", 2024), whose norms have no parameters, and OLMo 2 (Team
 * OLMo, "2 OLMo 2 Furious", 2025), which norms the outputs of attention and
 * MLP, not their inputs. */
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
        },
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_olmo = {
    .architecture = "OlmoForCausalLM",
    .names = &names,
    .norm = PP_PART_PLAIN_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

const struct pp_family pp_family_olmo2 = {
    .architecture = "Olmo2ForCausalLM",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .norms_after = true,
    .only_after = true,
};
