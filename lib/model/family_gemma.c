/* SPDX-License-Identifier: MIT */
/* family_gemma - Gemma 2 (Gemma Team, "Gemma 2: Improving Open Language Models
 * at a Practical Size", 2024) and the language model of Gemma 3 (Gemma Team,
 * "Gemma 3 Technical Report", 2025). Norms are before and after attention and
 * MLP. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            [PP_P_NORM1] = "input_layernorm.weight",
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            PP_NAMES_QK_NORM,
            [PP_P_AFTER1] = "post_attention_layernorm.weight",
            [PP_P_NORM2] = "pre_feedforward_layernorm.weight",
            PP_NAMES_GATED_MLP,
            [PP_P_AFTER2] = "post_feedforward_layernorm.weight",
        },
    .buffers = {".inv_freq"},
};

#define FAMILY(id, type, text, config_)       \
    const struct pp_family pp_family_##id = { \
        .model_type = type,                   \
        .architecture = text "ForCausalLM",   \
        .config = config_,                    \
        .names = &names,                      \
        .norm = PP_PART_RMS_NORM,             \
        .attention = PP_PART_ATTENTION,       \
        .mlp = PP_PART_GATED_MLP,             \
        .norms_after = true,                  \
        .from_zero = true,                    \
        .scales_embedding = true,             \
        .geglu = true,                        \
    }

#define CONFIG                                                             \
    "kv=4 hd=head_dim|(null(head_dim)?head_dim:256) span=4096 mlp_bias=0 " \
    "tied=tie_word_embeddings|1 query_scalar=query_pre_attn_scalar|256 "
FAMILY(gemma2, "gemma2", "Gemma2",
       CONFIG "longest=max_position_embeddings|8192 pattern=l%2==0 "
              "logit_cap=null(final_logit_softcapping)?0:"
              "final_logit_softcapping|30 "
              "score_cap=null(attn_logit_softcapping)?0:"
              "attn_logit_softcapping|50");
FAMILY(gemma3, "gemma3_text", "Gemma3",
       CONFIG "longest=max_position_embeddings|131072 theta=1000000 "
              "local_theta=10000 qk_norm=1 logit_cap=final_logit_softcapping "
              "pattern=(l+1)%(sliding_window_pattern|6)!=0");
