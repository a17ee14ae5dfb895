/* SPDX-License-Identifier: MIT */
/* family_llama - Llama and the families that have its names. */
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
            [PP_P_Q_NORM] = "self_attn.q_norm.weight",
            [PP_P_K_NORM] = "self_attn.k_norm.weight",
            [PP_P_O] = "self_attn.o_proj.weight",
            [PP_P_O_BIAS] = "self_attn.o_proj.bias",
            [PP_P_NORM2] = "post_attention_layernorm.weight",
            [PP_P_GATE] = "mlp.gate_proj.weight",
            [PP_P_UP] = "mlp.up_proj.weight",
            [PP_P_GATE_BIAS] = "mlp.gate_proj.bias",
            [PP_P_UP_BIAS] = "mlp.up_proj.bias",
            [PP_P_DOWN] = "mlp.down_proj.weight",
            [PP_P_DOWN_BIAS] = "mlp.down_proj.bias",
            [PP_P_ROUTER] = "mlp.gate.weight",
            [PP_P_SHARED_GATE] = "mlp.shared_expert.gate_proj.weight",
            [PP_P_SHARED_UP] = "mlp.shared_expert.up_proj.weight",
            [PP_P_SHARED_DOWN] = "mlp.shared_expert.down_proj.weight",
            [PP_P_SHARED_WEIGHT] = "mlp.shared_expert_gate.weight",
            [PP_P_EXPERT_GATE] = "mlp.experts.%.gate_proj.weight",
            [PP_P_EXPERT_UP] = "mlp.experts.%.up_proj.weight",
            [PP_P_EXPERT_DOWN] = "mlp.experts.%.down_proj.weight",
        },
    /* Old checkpoints hold the frequencies of the rotary positions. */
    .buffers = {".inv_freq"},
};

#define FAMILY(id, text, attention_, mlp_)           \
    const struct pp_family pp_family_##id = {        \
        .architecture = text "ForCausalLM",          \
        .scoring = text "ForSequenceClassification", \
        .names = &names,                             \
        .norm = PP_PART_RMS_NORM,                    \
        .attention = attention_,                     \
        .mlp = mlp_,                                 \
    }

FAMILY(llama, "Llama", PP_PART_ATTENTION, PP_PART_GATED_MLP);
FAMILY(qwen2, "Qwen2", PP_PART_ATTENTION, PP_PART_GATED_MLP);
FAMILY(qwen3, "Qwen3", PP_PART_ATTENTION, PP_PART_GATED_MLP);
FAMILY(mistral, "Mistral", PP_PART_ATTENTION, PP_PART_GATED_MLP);
FAMILY(qwen2_moe, "Qwen2Moe", PP_PART_ATTENTION, PP_PART_EXPERTS);
FAMILY(smollm3, "SmolLM3", PP_PART_ATTENTION, PP_PART_GATED_MLP);
FAMILY(qwen3_moe, "Qwen3Moe", PP_PART_ATTENTION, PP_PART_EXPERTS);

/* Gemma Team, "Gemma: Open Models Based on Gemini Research and Technology",
 * 2024. family_gemma has its successors, which norm outputs too. */
const struct pp_family pp_family_gemma = {
    .architecture = "GemmaForCausalLM",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .from_zero = true,
    .scales_embedding = true,
    .geglu = true,
};
