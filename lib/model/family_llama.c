/* SPDX-License-Identifier: MIT */
/* family_llama - Llama and the families that have its names. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            PP_NAMES_QK_NORM,
            PP_NAMES_GATED_MLP,
            [PP_P_GATE_BIAS] = "mlp.gate_proj.bias",
            [PP_P_UP_BIAS] = "mlp.up_proj.bias",
            [PP_P_DOWN_BIAS] = "mlp.down_proj.bias",
            PP_NAMES_EXPERTS,
            [PP_P_SHARED_GATE] = "mlp.shared_expert.gate_proj.weight",
            [PP_P_SHARED_UP] = "mlp.shared_expert.up_proj.weight",
            [PP_P_SHARED_DOWN] = "mlp.shared_expert.down_proj.weight",
            [PP_P_SHARED_WEIGHT] = "mlp.shared_expert_gate.weight",
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
