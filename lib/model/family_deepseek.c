/* SPDX-License-Identifier: MIT */
/* family_deepseek - DeepSeek-V2 (DeepSeek-AI, "DeepSeek-V2", 2024), DeepSeek-V3
 * (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024), and Moonlight, which is
 * a V3, and GLM-4.7-Flash, which attends and routes as a V3 does. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            [PP_P_Q] = "self_attn.q_proj.weight",
            [PP_P_Q_A] = "self_attn.q_a_proj.weight",
            [PP_P_Q_A_BIAS] = "self_attn.q_a_proj.bias",
            [PP_P_Q_A_NORM] = "self_attn.q_a_layernorm.weight",
            [PP_P_Q_B] = "self_attn.q_b_proj.weight",
            [PP_P_KV_A] = "self_attn.kv_a_proj_with_mqa.weight",
            [PP_P_KV_A_BIAS] = "self_attn.kv_a_proj_with_mqa.bias",
            [PP_P_KV_A_NORM] = "self_attn.kv_a_layernorm.weight",
            [PP_P_KV_B] = "self_attn.kv_b_proj.weight",
            [PP_P_O] = "self_attn.o_proj.weight",
            [PP_P_O_BIAS] = "self_attn.o_proj.bias",
            PP_NAMES_GATED_MLP,
            PP_NAMES_EXPERTS,
            PP_NAMES_SHARED_EXPERTS,
            PP_NAMES_AHEAD,
        },
    .buffers = {".inv_freq"},
};

#define FAMILY(id, text, config_)                                            \
    const struct pp_family pp_family_##id = {                                \
        .model_type = #id,                                                   \
        .architecture = text "ForCausalLM",                                  \
        .config = "nkv=nh E=n_routed_experts K=num_experts_per_tok "         \
                  "Ie=moe_intermediate_size ahead=num_nextn_predict_layers|" \
                  "0 mlp_bias=0 " config_,                                   \
        .names = &names,                                                     \
        .norm = PP_PART_RMS_NORM,                                            \
        .attention = PP_PART_LATENT_ATTENTION,                               \
        .mlp = PP_PART_EXPERTS,                                              \
    }

/* A softmax; groups only with group_limited_greedy, and then by their best
 * expert. transformers ignores norm_topk_prob. */
FAMILY(deepseek_v2, "DeepseekV2",
       "longest=max_position_embeddings|2048 adjacent=1 "
       "sparse=l>=(first_k_dense_replace|0) n_shared=n_shared_experts|2 "
       "scale=routed_scaling_factor "
       "topk_norm=0 grouped=is(topk_method,group_limited_greedy) "
       "groups=grouped?n_group|1:1 kept=grouped?topk_group|1:1");
/* Sigmoids, and a bias that only chooses. Where no group is set and the
 * defaults of transformers do not suit the experts, it fails; here there is one
 * group. */
FAMILY(deepseek_v3, "DeepseekV3",
       "longest=max_position_embeddings|4096 adjacent=rope_interleave|1 "
       "sparse=l>=(first_k_dense_replace|3) n_shared=n_shared_experts|1 "
       "sigmoid=1 score_bias=1 two_best=1 topk_norm=norm_topk_prob|1 "
       "scale=routed_scaling_factor|2.5 "
       "single=!has(n_group)&&!has(topk_group)&&(E%8!=0||E<16||E/2<K) "
       "groups=single?1:n_group|8 kept=single?1:topk_group|4");
/* Zhipu AI, "GLM-4.7-Flash", 2026. */
FAMILY(glm4_moe_lite, "Glm4MoeLite",
       "adjacent=rope_interleave|1 q_rank=null(q_lora_rank)?0:q_lora_rank|768 "
       "eps=rms_norm_eps|0.00001 "
       "sparse=has(mlp_layer_types)?mlp(sparse):l>=1 "
       "n_shared=n_shared_experts|1 sigmoid=1 score_bias=1 two_best=1 "
       "topk_norm=norm_topk_prob|1 scale=routed_scaling_factor|1.8 "
       "groups=n_group|1 kept=topk_group|1");
