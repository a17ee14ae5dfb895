/* SPDX-License-Identifier: MIT */
/* family_mixtral - Mixtral (Jiang et al., "Mixtral of Experts", 2024), and
 * MiniMax-M2 (MiniMax, 2025), which has its names. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            PP_NAMES_ATTENTION,
            PP_NAMES_QK_NORM,
            [PP_P_ROUTER] = "block_sparse_moe.gate.weight",
            [PP_P_ROUTER_BIAS] = "block_sparse_moe.e_score_correction_bias",
            [PP_P_EXPERT_GATE] = "block_sparse_moe.experts.%.w1.weight",
            [PP_P_EXPERT_UP] = "block_sparse_moe.experts.%.w3.weight",
            [PP_P_EXPERT_DOWN] = "block_sparse_moe.experts.%.w2.weight",
        },
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_mixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .config = "kv=8 longest=max_position_embeddings|131072 theta=1000000 "
              "eps=rms_norm_eps|0.00001 span=0 typed=0 pattern=1 qkv_bias=0 "
              "o_bias=0 mlp_bias=0 E=num_local_experts|num_experts "
              "K=num_experts_per_tok Ie=I S=0 sparse=1 topk_norm=1",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};

const struct pp_family pp_family_minimax_m2 = {
    .model_type = "minimax_m2",
    .architecture = "MiniMaxM2ForCausalLM",
    .config = "rot=rotary_dim|floor((part|1)*hd) theta=5000000 qk_norm=1 "
              "norms_all_heads=1 qkv_bias=0 o_bias=0 Ie=I S=0 sparse=1 "
              "sigmoid=1 score_bias=1 topk_norm=1",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};
