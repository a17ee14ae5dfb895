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
              PP_NAMES_GATED_MLP,
              PP_NAMES_EXPERTS,
              PP_NAMES_SHARED("shared_experts")},
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

/* Cohere's experts, 2026: the weights of a token are a softmax of the logits of
 * its experts, or their sigmoids. Dense layers before the others may have
 * windows and rotary positions of their own. */
const struct pp_family pp_family_cohere2_moe = {
    .model_type = "cohere2_moe",
    .architecture = "Cohere2MoeForCausalLM",
    .config = "hd=head_dim|128 " CONFIG "Ie=intermediate_size span=4096 "
              "I=prefix_dense_intermediate_size|intermediate_size "
              "first=first_k_dense_replace|0 "
              "before=prefix_dense_sliding_window_pattern|1 "
              "pattern=l<first?(l+1)%before!=0:"
              "(l-first+1)%(sliding_window_pattern|4)!=0 "
              "rotates=wide>0&&sliding||!sparse&&before==1 "
              "sigmoid=is(expert_selection_fn,sigmoid) "
              "topk_norm=sigmoid?norm_topk_prob|1:1 "
              "mean=n_shared>0&&!is(shared_expert_combination_strategy,sum) "
              "scale=mean?0.5:1 shared_scale=scale",
    .names = &names,
    .norm = PP_PART_LAYER_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
    .parallel = true,
    .no_norm_bias = true,
};
