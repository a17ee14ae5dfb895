/* SPDX-License-Identifier: MIT */
/* family_mixtral - Mixtral (Jiang et al., "Mixtral of Experts", 2024). */
#include "model/parts.h"

static const struct pp_names names = {
    .embedding = "model.embed_tokens.weight",
    .norm = "model.norm.weight",
    .head = "lm_head.weight",
    .layers = "model.layers",
    .layer =
        {
            [PP_P_NORM1] = "input_layernorm.weight",
            [PP_P_Q] = "self_attn.q_proj.weight",
            [PP_P_K] = "self_attn.k_proj.weight",
            [PP_P_V] = "self_attn.v_proj.weight",
            [PP_P_O] = "self_attn.o_proj.weight",
            [PP_P_NORM2] = "post_attention_layernorm.weight",
            [PP_P_ROUTER] = "block_sparse_moe.gate.weight",
            [PP_P_EXPERT_GATE] = "block_sparse_moe.experts.%.w1.weight",
            [PP_P_EXPERT_UP] = "block_sparse_moe.experts.%.w3.weight",
            [PP_P_EXPERT_DOWN] = "block_sparse_moe.experts.%.w2.weight",
        },
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_mixtral = {
    .architecture = "MixtralForCausalLM",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};
