/* SPDX-License-Identifier: MIT */
/* family_gpt_oss - GPT-OSS (OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card",
 * 2025). One tensor has all experts of a layer. */
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
            [PP_P_Q_BIAS] = "self_attn.q_proj.bias",
            [PP_P_K_BIAS] = "self_attn.k_proj.bias",
            [PP_P_V_BIAS] = "self_attn.v_proj.bias",
            [PP_P_O] = "self_attn.o_proj.weight",
            [PP_P_O_BIAS] = "self_attn.o_proj.bias",
            [PP_P_SINKS] = "self_attn.sinks",
            [PP_P_NORM2] = "post_attention_layernorm.weight",
            [PP_P_ROUTER] = "mlp.router.weight",
            [PP_P_ROUTER_OFFSET] = "mlp.router.bias",
            [PP_P_EXPERT_GATE] = "mlp.experts.gate_up_proj",
            [PP_P_EXPERT_GATE_BIAS] = "mlp.experts.gate_up_proj_bias",
            [PP_P_EXPERT_DOWN] = "mlp.experts.down_proj",
            [PP_P_EXPERT_DOWN_BIAS] = "mlp.experts.down_proj_bias",
        },
    .stacks = true,
};

const struct pp_family pp_family_gpt_oss = {
    .architecture = "GptOssForCausalLM",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};
