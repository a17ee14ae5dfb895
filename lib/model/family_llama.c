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

#define FAMILY(id, text, mlp_, config_)              \
    const struct pp_family pp_family_##id = {        \
        .model_type = #id,                           \
        .architecture = text "ForCausalLM",          \
        .config = config_,                           \
        .scoring = text "ForSequenceClassification", \
        .names = &names,                             \
        .norm = PP_PART_RMS_NORM,                    \
        .attention = PP_PART_ATTENTION,              \
        .mlp = mlp_,                                 \
    }

FAMILY(llama, "Llama", PP_PART_GATED_MLP,
       "longest=max_position_embeddings|2048");
FAMILY(mistral, "Mistral", PP_PART_GATED_MLP,
       "kv=8 longest=max_position_embeddings|131072 span=4096 typed=0 "
       "pattern=1 qkv_bias=0 o_bias=0 mlp_bias=0");
/* Layers without rotary positions have the windows. */
FAMILY(smollm3, "SmolLM3", PP_PART_GATED_MLP,
       "kv=4 longest=max_position_embeddings|32768 theta=2000000 "
       "tied=tie_word_embeddings|1 span=0 reach=use_sliding_window?wide:0 "
       "pattern=!rotates rotates=has(no_rope_layers)?at(no_rope_layers):"
       "(l+1)%(no_rope_layer_interval|4)!=0");

#define QWEN                                     \
    "longest=max_position_embeddings|32768 "     \
    "span=4096 reach=use_sliding_window?wide:0 " \
    "pattern=l>=(max_window_layers|28) mlp_bias=0 "
#define QWEN_EXPERTS                   \
    "E=num_experts|num_local_experts " \
    "K=num_experts_per_tok "           \
    "Ie=moe_intermediate_size sparse=steps "
FAMILY(qwen2, "Qwen2", PP_PART_GATED_MLP, QWEN "kv=32 qkv_bias=1 o_bias=0");
FAMILY(qwen2_moe, "Qwen2Moe", PP_PART_EXPERTS,
       "pattern=l<(max_window_layers|28)&&l%2==0 " QWEN QWEN_EXPERTS
       "kv=16 qkv_bias=qkv_bias|1 o_bias=0 S=shared_expert_intermediate_size "
       "shared_gate=1");
FAMILY(qwen3, "Qwen3", PP_PART_GATED_MLP,
       QWEN "kv=32 hd=head_dim|(null(head_dim)?head_dim:128) qk_norm=1");
FAMILY(qwen3_moe, "Qwen3Moe", PP_PART_EXPERTS,
       "typed=0 pattern=1 " QWEN QWEN_EXPERTS "kv=4 qk_norm=1 S=0");

/* Gemma Team, "Gemma: Open Models Based on Gemini Research and Technology",
 * 2024. family_gemma has its successors, which norm outputs too. */
const struct pp_family pp_family_gemma = {
    .model_type = "gemma",
    .architecture = "GemmaForCausalLM",
    .config = "kv=16 hd=head_dim|(null(head_dim)?head_dim:256) "
              "longest=max_position_embeddings|8192 "
              "tied=tie_word_embeddings|1 mlp_bias=0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .from_zero = true,
    .scales_embedding = true,
    .geglu = true,
};

/* ByteDance Seed, "Seed-OSS", 2025. */
const struct pp_family pp_family_seed_oss = {
    .model_type = "seed_oss",
    .architecture = "SeedOssForCausalLM",
    .config = "kv=8 head=128 qkv_bias=attention_bias|1 "
              "o_bias=attention_out_bias",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

/* Mistral AI, "Un Ministral, des Ministraux", 2024. */
const struct pp_family pp_family_ministral = {
    .model_type = "ministral",
    .architecture = "MinistralForCausalLM",
    .config = "kv=8 span=4096 pattern=1 o_bias=0 qkv_bias=0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

/* FAIR CodeGen team, "CWM: An Open-Weights LLM for Research on Code Generation
 * with World Models", 2025. */
const struct pp_family pp_family_cwm = {
    .model_type = "cwm",
    .architecture = "CwmForCausalLM",
    .config = "kv=8 head=128 theta=1000000 eps=rms_norm_eps|0.00001 span=8192 "
              "pattern=l%4!=0 o_bias=0 qkv_bias=0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

/* Muennighoff et al., "OLMoE: Open Mixture-of-Experts Language Models", 2024.
 */
const struct pp_family pp_family_olmoe = {
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .config = "qk_norm=1 norms_all_heads=1 eps=rms_norm_eps|0.00001 Ie=I S=0 "
              "sparse=1",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};

/* Baidu, "ERNIE 4.5 Technical Report", 2025. */
const struct pp_family pp_family_ernie4_5 = {
    .model_type = "ernie4_5",
    .architecture = "Ernie4_5ForCausalLM",
    .config = "kv=2 head=128 theta=500000 "
              "eps=rms_norm_eps|0.00001 tied=tie_word_embeddings|1 adjacent=1 "
              "qkv_bias=0 o_bias=0 mlp_bias=0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

#define GRANITE                                                \
    "r=residual_multiplier|1 eps=(rms_norm_eps|0.000001)/r/r " \
    "embed_scale=(embedding_multiplier|1)/r "                  \
    "a=attention_multiplier|1 query_scalar=1/a/a "             \
    "logits_by=1/(logits_scaling|1) "

/* Granite Team, IBM, "Granite 3.0 Language Models", 2024. The outputs of
 * attention and MLP are multiplied by a number r before they are added. Hidden
 * states that are divided by r need no such product: norms do not see it but
 * for their epsilon. */
const struct pp_family pp_family_granite = {
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .config = GRANITE,
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

/* Arcee AI, "AFM-4.5B", 2025. */
const struct pp_family pp_family_arcee = {
    .model_type = "arcee",
    .architecture = "ArceeForCausalLM",
    .config = "eps=rms_norm_eps|0.00001",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_PLAIN_MLP,
    .gelu = PP_RELU_SQUARED,
};

static const struct pp_names apertus_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            [PP_P_NORM1] = "attention_layernorm.weight",
            [PP_P_NORM2] = "feedforward_layernorm.weight",
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            PP_NAMES_QK_NORM,
            [PP_P_UP] = "mlp.up_proj.weight",
            [PP_P_DOWN] = "mlp.down_proj.weight",
            [PP_P_XIELU_P] = "mlp.act_fn.alpha_p",
            [PP_P_XIELU_N] = "mlp.act_fn.alpha_n",
            [PP_P_XIELU_BETA] = "mlp.act_fn.beta",
            [PP_P_XIELU_EPS] = "mlp.act_fn.eps",
        },
    .buffers = {".inv_freq"},
};

/* Swiss AI, "Apertus: Democratizing Open and Compliant LLMs for Global Language
 * Environments", 2025. */
const struct pp_family pp_family_apertus = {
    .model_type = "apertus",
    .architecture = "ApertusForCausalLM",
    .config = "qk_norm=1 eps=rms_norm_eps|0.00001 theta=12000000 mlp_bias=0",
    .names = &apertus_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_PLAIN_MLP,
    .gelu = PP_XIELU,
};

static const struct pp_names starcoder2_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .norm_bias = "model.norm.bias",
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            [PP_P_NORM1_BIAS] = "input_layernorm.bias",
            [PP_P_NORM2_BIAS] = "post_attention_layernorm.bias",
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            [PP_P_UP] = "mlp.c_fc.weight",
            [PP_P_UP_BIAS] = "mlp.c_fc.bias",
            [PP_P_DOWN] = "mlp.c_proj.weight",
            [PP_P_DOWN_BIAS] = "mlp.c_proj.bias",
        },
    .buffers = {".inv_freq"},
};

/* Lozhkov et al., "StarCoder 2 and The Stack v2: The Next Generation", 2024. */
const struct pp_family pp_family_starcoder2 = {
    .model_type = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .config = "kv=2 eps=norm_epsilon|0.00001 "
              "bias=null(use_bias)?0:use_bias|1 qkv_bias=bias o_bias=bias "
              "mlp_bias=bias tied=tie_word_embeddings|1 "
              "span=0 typed=0 pattern=1",
    .names = &starcoder2_names,
    .norm = PP_PART_LAYER_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_PLAIN_MLP,
    .gelu = PP_GELU_TANH,
};

/* Mistral AI, "Ministral 3", 2026; also the language model of a Mistral 3. */
const struct pp_family pp_family_ministral3 = {
    .model_type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .config = "kv=8 head=128 eps=rms_norm_eps|0.00001 span=0 typed=0 "
              "pattern=1 qkv_bias=0 o_bias=0 "
              "query_beta=rope_scaling.llama_4_scaling_beta|"
              "rope_parameters.llama_4_scaling_beta "
              "query_period=rope_scaling.original_max_position_embeddings|"
              "rope_parameters.original_max_position_embeddings",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};

static const struct pp_names hunyuan_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            [PP_P_Q_NORM] = "self_attn.query_layernorm.weight",
            [PP_P_K_NORM] = "self_attn.key_layernorm.weight",
            PP_NAMES_GATED_MLP,
            [PP_P_ROUTER] = "mlp.gate.wg.weight",
            [PP_P_EXPERT_GATE] = "mlp.experts.%.gate_proj.weight",
            [PP_P_EXPERT_UP] = "mlp.experts.%.up_proj.weight",
            [PP_P_EXPERT_DOWN] = "mlp.experts.%.down_proj.weight",
            [PP_P_SHARED_GATE] = "mlp.shared_mlp.gate_proj.weight",
            [PP_P_SHARED_UP] = "mlp.shared_mlp.up_proj.weight",
            [PP_P_SHARED_DOWN] = "mlp.shared_mlp.down_proj.weight",
        },
    .buffers = {".inv_freq"},
};

/* Tencent Hunyuan Team, "Hunyuan-Large", 2024, and the dense ones of 2025. */
const struct pp_family pp_family_hunyuan_v1_dense = {
    .model_type = "hunyuan_v1_dense",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .config = "hd=head_dim qk_norm=1 eps=rms_norm_eps|0.00001",
    .names = &hunyuan_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
    .norms_rotated = true,
};

const struct pp_family pp_family_hunyuan_v1_moe = {
    .model_type = "hunyuan_v1_moe",
    .architecture = "HunYuanMoEV1ForCausalLM",
    .config = "hd=head_dim qk_norm=1 eps=rms_norm_eps|0.00001 E=num_experts "
              "K=moe_topk Ie=I S=I sparse=1 topk_norm=1",
    .names = &hunyuan_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
    .norms_rotated = true,
};

static const struct pp_names ernie_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            PP_NAMES_ATTENTION,
            PP_NAMES_GATED_MLP,
            PP_NAMES_EXPERTS,
            [PP_P_ROUTER_BIAS] = "mlp.moe_statics.e_score_correction_bias",
            PP_NAMES_SHARED("shared_experts"),
        },
    .buffers = {".inv_freq"},
    .bias_is_row = true,
};

const struct pp_family pp_family_ernie4_5_moe = {
    .model_type = "ernie4_5_moe",
    .architecture = "Ernie4_5_MoeForCausalLM",
    .config = "kv=4 theta=500000 adjacent=1 qkv_bias=0 "
              "o_bias=0 mlp_bias=0 eps=rms_norm_eps|0.00001 "
              "tied=tie_word_embeddings|1 E=moe_num_experts|64 K=moe_k|6 "
              "n_shared=moe_num_shared_experts|2 score_bias=1 topk_norm=1 "
              "scale=1 end=moe_layer_end_index|-1 "
              "sparse=l>=(moe_layer_start_index|1)&&(end<0||l<=end)&&"
              "(l+1)%(moe_layer_interval|1)==0",
    .names = &ernie_names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};

static const struct pp_names granitemoe_names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            [PP_P_ROUTER] = "block_sparse_moe.router.layer.weight",
            [PP_P_EXPERT_GATE] = "block_sparse_moe.input_linear.weight",
            [PP_P_EXPERT_DOWN] = "block_sparse_moe.output_linear.weight",
            [PP_P_SHARED_GATE] = "shared_mlp.input_linear.weight",
            [PP_P_SHARED_DOWN] = "shared_mlp.output_linear.weight",
        },
    .buffers = {".inv_freq"},
    .stacks_rows = true,
};

#define GRANITEMOE(id, text, shared)                             \
    const struct pp_family pp_family_##id = {                    \
        .model_type = #id,                                       \
        .architecture = text "ForCausalLM",                      \
        .config = GRANITE "Ie=I sparse=1 topk_norm=1 S=" shared, \
        .names = &granitemoe_names,                              \
        .norm = PP_PART_RMS_NORM,                                \
        .attention = PP_PART_ATTENTION,                          \
        .mlp = PP_PART_EXPERTS,                                  \
    }

/* The weights of a token are the softmax of the logits of its experts. */
GRANITEMOE(granitemoe, "GraniteMoe", "0");
GRANITEMOE(granitemoeshared, "GraniteMoeShared",
           "floor(shared_intermediate_size|1024)");
