/* SPDX-License-Identifier: MIT */
/* family_routed - families that have the router of DeepSeek-V3, but attend with
 * grouped queries: sigmoids, of which a bias chooses, and shared experts. */
#include "model/family_names.h"
#include "model/parts.h"

#define ROUTER                           \
    "sigmoid=1 score_bias=1 two_best=1 " \
    "groups=n_group|1 kept=topk_group|1 "
/* All names but the router's and the shared experts'. */
#define NAMES                                                    \
    PP_NAMES_NORMS_BEFORE, PP_NAMES_ATTENTION, PP_NAMES_QK_NORM, \
        PP_NAMES_ATTENTION_BIASES, PP_NAMES_GATED_MLP,           \
        [PP_P_EXPERT_GATE] = "mlp.experts.%.gate_proj.weight",   \
        [PP_P_EXPERT_UP] = "mlp.experts.%.up_proj.weight",       \
        [PP_P_EXPERT_DOWN] = "mlp.experts.%.down_proj.weight"
#define ROUTED(router, bias, shared)                                          \
    {                                                                         \
        NAMES, PP_NAMES_SHARED(shared),                                       \
            [PP_P_ROUTER] = router, [PP_P_ROUTER_BIAS] = bias, PP_NAMES_AHEAD \
    }

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer = ROUTED("mlp.gate.weight", "mlp.gate.e_score_correction_bias",
                    "shared_experts"),
    .buffers = {".inv_freq"},
};

/* GLM-4.5 Team, "GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation
 * Models", 2025. */
const struct pp_family pp_family_glm4_moe = {
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .config = ROUTER "hd=head_dim|floor(H/nh) rot=floor((part|0.5)*hd) "
                     "eps=rms_norm_eps|0.00001 qk_norm=use_qk_norm o_bias=0 "
                     "sparse=l>=(first_k_dense_replace|1) "
                     "n_shared=n_shared_experts|1 topk_norm=norm_topk_prob|1 "
                     "scale=routed_scaling_factor "
                     "ahead=num_nextn_predict_layers|num_mtp_layers|1",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};

/* rednote-hilab, "dots.llm1 Technical Report", 2025. */
const struct pp_family pp_family_dots1 = {
    .model_type = "dots1",
    .architecture = "Dots1ForCausalLM",
    .config = ROUTER "kv=32 qk_norm=1 span=4096 scale=routed_scaling_factor "
                     "pattern=l>=(max_window_layers|62)",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};

/* Upstage, "Solar Open Technical Report", 2026. */
const struct pp_family pp_family_solar_open = {
    .model_type = "solar_open",
    .architecture = "SolarOpenForCausalLM",
    .config = ROUTER "I=Ie hd=head_dim|128 rot=floor((part|1)*hd) "
                     "theta=1000000 eps=rms_norm_eps|0.00001 sparse=1 "
                     "n_shared=n_shared_experts|1 topk_norm=norm_topk_prob|1 "
                     "scale=routed_scaling_factor "
                     "Ie=moe_intermediate_size",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};

static const struct pp_names exaone_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer = ROUTED("mlp.gate.weight", "mlp.e_score_correction_bias",
                    "shared_experts"),
    .buffers = {".inv_freq"},
};

/* LG AI Research, "K-EXAONE Technical Report", 2026. */
const struct pp_family pp_family_exaone_moe = {
    .model_type = "exaone_moe",
    .architecture = "ExaoneMoeForCausalLM",
    .config = ROUTER "kv=32 qk_norm=1 eps=rms_norm_eps|0.00001 span=4096 "
                     "pattern=(l+1)%(sliding_window_pattern|4)!=0 "
                     "rotates=!wide||sliding qkv_bias=0 o_bias=0 "
                     "sparse=has(mlp_layer_types)?mlp(sparse):"
                     "l>=(first_k_dense_replace|1) "
                     "n_shared=num_shared_experts|1 topk_norm=norm_topk_prob|1 "
                     "scale=routed_scaling_factor|2.5",
    .names = &exaone_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};

static const struct pp_names hunyuan_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer = ROUTED("mlp.router.gate.weight", "mlp.expert_bias", "shared_mlp"),
    .buffers = {".inv_freq"},
};

/* Tencent, "Hy3", 2026. */
const struct pp_family pp_family_hy_v3 = {
    .model_type = "hy_v3",
    .architecture = "HYV3ForCausalLM",
    .config = ROUTER "hd=head_dim|128 theta=11158840 qk_norm=1 "
                     "eps=rms_norm_eps|0.00001 "
                     "sparse=has(mlp_layer_types)?mlp(sparse):l>=1 "
                     "n_shared=num_shared_experts|1 topk_norm=1 "
                     "scale=router_scaling_factor|2.826",
    .names = &hunyuan_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};

static const struct pp_names afmoe_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            [PP_P_NORM1] = "input_layernorm.weight",
            PP_NAMES_ATTENTION,
            [PP_P_ATTN_GATE] = "self_attn.gate_proj.weight",
            PP_NAMES_QK_NORM,
            [PP_P_AFTER1] = "post_attention_layernorm.weight",
            [PP_P_NORM2] = "pre_mlp_layernorm.weight",
            PP_NAMES_GATED_MLP,
            [PP_P_ROUTER] = "mlp.router.gate.weight",
            [PP_P_ROUTER_BIAS] = "mlp.expert_bias",
            [PP_P_EXPERT_GATE] = "mlp.experts.%.gate_proj.weight",
            [PP_P_EXPERT_UP] = "mlp.experts.%.up_proj.weight",
            [PP_P_EXPERT_DOWN] = "mlp.experts.%.down_proj.weight",
            PP_NAMES_SHARED("shared_experts"),
            [PP_P_AFTER2] = "post_mlp_layernorm.weight",
        },
    .buffers = {".inv_freq"},
};

/* Arcee AI, "Trinity", 2025. Layers without a window have no rotary positions.
 */
const struct pp_family pp_family_afmoe = {
    .model_type = "afmoe",
    .architecture = "AfmoeForCausalLM",
    .config = "sigmoid=1 score_bias=1 topk_norm=1 scale=route_scale|1 "
              "hd=head_dim|128 eps=rms_norm_eps|0.00001 qk_norm=1 gates=1 "
              "embed_scale=mup_enabled?sqrt(H):0 "
              "span=1024 pattern=(l+1)%(global_attn_every_n_layers|4)!=0 "
              "rotates=sliding "
              "sparse=l>=(num_dense_layers|1) n_shared=num_shared_experts|2",
    .names = &afmoe_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
    .norms_after = true,
};

static const struct pp_names mimo_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            NAMES,
            [PP_P_ROUTER] = "mlp.gate.weight",
            [PP_P_ROUTER_BIAS] = "mlp.gate.e_score_correction_bias",
            [PP_P_SINKS] = "self_attn.attention_sink_bias",
        },
    .buffers = {".inv_freq"},
};

/* Xiaomi, "MiMo-V2-Flash Technical Report", 2026. Layers with a window have
 * sinks, and twice the heads of keys and values. */
const struct pp_family pp_family_mimo_v2_flash = {
    .model_type = "mimo_v2_flash",
    .architecture = "MiMoV2FlashForCausalLM",
    .config = ROUTER "kv=4 head=192 values=v_head_dim|128 "
                     "eps=rms_norm_eps|0.00001 o_bias=0 wkv=2*nkv "
                     "theta=5000000 local_theta=10000 "
                     "part=rope_parameters.full_attention."
                     "partial_rotary_factor|0.334 rot=floor(part*hd) span=129 "
                     "wide=has(sliding_window_size)?sliding_window_size+1:"
                     "sliding_window|129 pattern=l!=0&&(l+1)%6!=0 "
                     "sinks=sliding "
                     "value_scale=null(attention_value_scale)?0:"
                     "attention_value_scale|0.707 S=0 "
                     "sparse=has(mlp_layer_types)?mlp(sparse):l>=1 "
                     "topk_norm=norm_topk_prob|1 "
                     "scale=null(routed_scaling_factor)?1:"
                     "routed_scaling_factor|1",
    .names = &mimo_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};
