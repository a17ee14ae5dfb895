/* SPDX-License-Identifier: MIT */
/* family_gemma - Gemma 2 (Gemma Team, "Gemma 2: Improving Open Language Models
 * at a Practical Size", 2024) and the language model of Gemma 3 (Gemma Team,
 * "Gemma 3 Technical Report", 2025). Norms are before and after attention and
 * MLP. */
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
            [PP_P_AFTER1] = "post_attention_layernorm.weight",
            [PP_P_NORM2] = "pre_feedforward_layernorm.weight",
            [PP_P_GATE] = "mlp.gate_proj.weight",
            [PP_P_UP] = "mlp.up_proj.weight",
            [PP_P_DOWN] = "mlp.down_proj.weight",
            [PP_P_AFTER2] = "post_feedforward_layernorm.weight",
        },
    .buffers = {".inv_freq"},
};

#define FAMILY(id, text)                      \
    const struct pp_family pp_family_##id = { \
        .architecture = text "ForCausalLM",   \
        .names = &names,                      \
        .norm = PP_PART_RMS_NORM,             \
        .attention = PP_PART_ATTENTION,       \
        .mlp = PP_PART_GATED_MLP,             \
        .norms_after = true,                  \
        .from_zero = true,                    \
        .scales_embedding = true,             \
        .geglu = true,                        \
    }

FAMILY(gemma2, "Gemma2");
FAMILY(gemma3, "Gemma3");
