/* SPDX-License-Identifier: MIT */
/* family_cohere - Command R and Command R7B and A (Cohere, "Command A: An
 * Enterprise-Ready Large Language Model", 2025). Attention and MLP read the
 * same layer norm, which has no bias. */
#include "model/family_names.h"
#include "model/parts.h"

#define CONFIG                                                       \
    "hd=H/nh eps=layer_norm_eps|0.00001 tied=tie_word_embeddings|1 " \
    "adjacent=1 logits_by=logit_scale|0.0625 "

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer = {[PP_P_NORM1] = "input_layernorm.weight",
              PP_NAMES_ATTENTION,
              PP_NAMES_ATTENTION_BIASES,
              PP_NAMES_GATED_MLP},
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_cohere = {
    .model_type = "cohere",
    .architecture = "CohereForCausalLM",
    .config = CONFIG "theta=500000",
    .names = &names,
    .norm = PP_PART_LAYER_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .parallel = true,
    .no_norm_bias = true,
};

/* Layers without a window have no rotary positions. */
const struct pp_family pp_family_cohere2 = {
    .model_type = "cohere2",
    .architecture = "Cohere2ForCausalLM",
    .config = CONFIG "span=4096 pattern=(l+1)%(sliding_window_pattern|4)!=0 "
                     "rotates=wide>0&&sliding",
    .names = &names,
    .norm = PP_PART_LAYER_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .parallel = true,
    .no_norm_bias = true,
};
