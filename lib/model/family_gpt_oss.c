/* SPDX-License-Identifier: MIT */
/* family_gpt_oss - GPT-OSS (OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card",
 * 2025). One tensor has all experts of a layer. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            [PP_P_SINKS] = "self_attn.sinks",
            [PP_P_ROUTER] = "mlp.router.weight",
            [PP_P_ROUTER_OFFSET] = "mlp.router.bias",
            [PP_P_EXPERT_GATE] = "mlp.experts.gate_up_proj",
            [PP_P_EXPERT_GATE_BIAS] = "mlp.experts.gate_up_proj_bias",
            [PP_P_EXPERT_DOWN] = "mlp.experts.down_proj",
            [PP_P_EXPERT_DOWN_BIAS] = "mlp.experts.down_proj_bias",
        },
    .stacks = true,
    .alternate = true,
};

const struct pp_family pp_family_gpt_oss = {
    .model_type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    /* The softmax of the logits of a token's experts is that of all, divided by
     * their sum. */
    .config = "kv=8 hd=head_dim|(null(head_dim)?head_dim:64) "
              "longest=max_position_embeddings|131072 theta=150000 "
              "eps=rms_norm_eps|0.00001 span=128 pattern=l%2==0 "
              "qkv_bias=attention_bias|1 o_bias=attention_bias|1 mlp_bias=0 "
              "sinks=1 E=num_local_experts|num_experts K=num_experts_per_tok "
              "Ie=I S=0 sparse=1 topk_norm=1 biases=1 limit=swiglu_limit|7 "
              "gain=swiglu_alpha|1.702",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};
