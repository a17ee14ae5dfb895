/* SPDX-License-Identifier: MIT */
/* family_qwen3_5 - Qwen3-Next (Qwen Team, 2025) and the language models of
 * Qwen3.5 (2026). Most layers have linear attention by the gated delta rule; in
 * the others each query has a gate behind it. */
#include "model/family_names.h"
#include "model/parts.h"

#define CONFIG                                                         \
    "head=256 rot=floor((part|0.25)*hd) qk_norm=1 gates=1 qkv_bias=0 " \
    "o_bias=0 mlp_bias=0 lk=linear_num_key_heads|16 "                  \
    "lv=linear_num_value_heads|32 dk=linear_key_head_dim|128 "         \
    "dv=linear_value_head_dim|128 ltaps=linear_conv_kernel_dim|4 "     \
    "recurs=typed?type(linear_attention):"                             \
    "(l+1)%(full_attention_interval|4)!=0 "

#define EXPERTS                               \
    "Ie=moe_intermediate_size E=num_experts " \
    "K=num_experts_per_tok shared_gate=1 "    \
    "S=shared_expert_intermediate_size "

/* All names but the names of the products that linear attention begins with. */
/* clang-format off */
#define NAMES                                            \
    PP_NAMES_NORMS_BEFORE,                               \
    PP_NAMES_ATTENTION,                                  \
    PP_NAMES_QK_NORM,                                    \
    [PP_P_DELTA_CONV] = "linear_attn.conv1d.weight",     \
    [PP_P_DELTA_DT] = "linear_attn.dt_bias",             \
    [PP_P_DELTA_LOG] = "linear_attn.A_log",              \
    [PP_P_DELTA_NORM] = "linear_attn.norm.weight",       \
    [PP_P_DELTA_O] = "linear_attn.out_proj.weight",      \
    PP_NAMES_GATED_MLP,                                  \
    PP_NAMES_EXPERTS,                                    \
    PP_NAMES_SHARED("shared_expert"),                    \
    [PP_P_SHARED_WEIGHT] = "mlp.shared_expert_gate.weight"
/* clang-format on */

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            NAMES,
            [PP_P_DELTA_QKV] = "linear_attn.in_proj_qkv.weight",
            [PP_P_DELTA_Z] = "linear_attn.in_proj_z.weight",
            [PP_P_DELTA_B] = "linear_attn.in_proj_b.weight",
            [PP_P_DELTA_A] = "linear_attn.in_proj_a.weight",
        },
    .buffers = {".inv_freq"},
};

static const struct pp_names grouped_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            NAMES,
            [PP_P_DELTA_QKV] = "linear_attn.in_proj_qkvz.weight",
            [PP_P_DELTA_B] = "linear_attn.in_proj_ba.weight",
        },
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_qwen3_5 = {
    .model_type = "qwen3_5_text",
    .architecture = "Qwen3_5ForCausalLM",
    .config = CONFIG "kv=4",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .from_zero = true,
};

const struct pp_family pp_family_qwen3_5_moe = {
    .model_type = "qwen3_5_moe_text",
    .architecture = "Qwen3_5MoeForCausalLM",
    .config = CONFIG EXPERTS "kv=2 I=Ie sparse=1 topk_norm=1",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
    .from_zero = true,
};

const struct pp_family pp_family_qwen3_next = {
    .model_type = "qwen3_next",
    .architecture = "Qwen3NextForCausalLM",
    .config = CONFIG EXPERTS "kv=2 topk_norm=norm_topk_prob|1 sparse=steps",
    .names = &grouped_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
    .from_zero = true,
};
