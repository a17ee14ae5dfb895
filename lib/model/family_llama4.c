/* SPDX-License-Identifier: MIT */
/* family_llama4 - the language models of Llama 4 (Meta, 2025). Layers with
 * rotary positions attend chunks, and norm queries and keys without weights;
 * the others attend all, and scale queries. Sigmoids of the router multiply
 * what experts read. One tensor has all experts. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            PP_NAMES_ATTENTION,
            PP_NAMES_ATTENTION_BIASES,
            [PP_P_GATE] = "feed_forward.gate_proj.weight",
            [PP_P_UP] = "feed_forward.up_proj.weight",
            [PP_P_DOWN] = "feed_forward.down_proj.weight",
            [PP_P_ROUTER] = "feed_forward.router.weight",
            [PP_P_EXPERT_GATE] = "feed_forward.experts.gate_up_proj",
            [PP_P_EXPERT_DOWN] = "feed_forward.experts.down_proj",
            [PP_P_SHARED_GATE] = "feed_forward.shared_expert.gate_proj.weight",
            [PP_P_SHARED_UP] = "feed_forward.shared_expert.up_proj.weight",
            [PP_P_SHARED_DOWN] = "feed_forward.shared_expert.down_proj.weight",
        },
    .stacks = true,
};

const struct pp_family pp_family_llama4 = {
    .model_type = "llama4_text",
    .architecture = "Llama4ForCausalLM",
    .config =
        "kv=8 head=128 longest=max_position_embeddings|131072 "
        "theta=500000 eps=rms_norm_eps|0.00001 adjacent=1 mlp_bias=0 "
        "rotates=has(no_rope_layers)?at(no_rope_layers):"
        "(l+1)%(no_rope_layer_interval|4)!=0 "
        "span=0 chunks=1 "
        "wide=null(attention_chunk_size)?0:attention_chunk_size|8192 "
        "sliding=typed?type(chunked_attention):rotates&&wide>0 "
        "qk_norm=use_qk_norm|1 apart=1 query_period=floor_scale|8192 "
        "tuned=attn_temperature_tuning|1 query_beta=tuned?attn_scale|0.1:0 "
        "I=intermediate_size_mlp|16384 Ie=intermediate_size|8192 S=Ie "
        "E=num_local_experts|16 K=num_experts_per_tok|1 "
        "sigmoid=1 weighs=1 topk_norm=0 sparse=has(moe_layers)?"
        "in(moe_layers):(l+1)%(interleave_moe_layer_step|1)==0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
    .norms_rotated = true,
};
