/* SPDX-License-Identifier: MIT */
/* family_olmo - OLMo (Groeneveld et al., "OLMo: Accelerating the Science of
 * Language Models", 2024), whose norms have no parameters, and OLMo 2 (Team
 * OLMo, "2 OLMo 2 Furious", 2025), which norms the outputs of attention and
 * MLP, not their inputs. */
#include "model/parts.h"

static const struct pp_names names = {
    .embedding = "model.embed_tokens.weight",
    .norm = "model.norm.weight",
    .head = "lm_head.weight",
    .layers = "model.layers",
    .layer =
        {
            [PP_P_Q] = "self_attn.q_proj.weight",
            [PP_P_K] = "self_attn.k_proj.weight",
            [PP_P_V] = "self_attn.v_proj.weight",
            [PP_P_Q_BIAS] = "self_attn.q_proj.bias",
            [PP_P_K_BIAS] = "self_attn.k_proj.bias",
            [PP_P_V_BIAS] = "self_attn.v_proj.bias",
            [PP_P_Q_NORM] = "self_attn.q_norm.weight",
            [PP_P_K_NORM] = "self_attn.k_norm.weight",
            [PP_P_O] = "self_attn.o_proj.weight",
            [PP_P_O_BIAS] = "self_attn.o_proj.bias",
            [PP_P_AFTER1] = "post_attention_layernorm.weight",
            [PP_P_GATE] = "mlp.gate_proj.weight",
            [PP_P_UP] = "mlp.up_proj.weight",
            [PP_P_DOWN] = "mlp.down_proj.weight",
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
