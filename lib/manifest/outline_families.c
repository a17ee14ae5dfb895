/* SPDX-License-Identifier: MIT */
/* outline_families - the families that ppsplit plans and pprun does not train
 * yet, and the parts that they share. outline.h has the form of the words.
 *
 * Sizes: H hidden, V vocabulary, nh heads, nkv key heads, hd, qk and vd widths
 * of a head, of its queries and of its values, I width of an MLP, E experts,
 * K experts of a token, Ie width of an expert, S width of shared experts. */
#include "manifest/outline.h"

const char pp_outline_definitions[] =
    "H=hidden_size|n_embd|d_model V=vocab_size "
    "L=num_hidden_layers|num_layers|n_layer "
    "nh=num_attention_heads|n_head "
    "nkv=num_key_value_heads|num_attention_groups|nh hd=head_dim|H/nh "
    "latent=has(kv_lora_rank) "
    "qk=latent?qk_nope_head_dim+qk_rope_head_dim:hd vd=v_head_dim|hd "
    "pair=2*nh*(qk+vd) longest=max_position_embeddings|n_positions "
    "I=intermediate_size "
    "E=n_routed_experts|num_experts|num_local_experts|moe_num_experts "
    "K=num_experts_per_tok|num_experts_per_token|moe_topk|moe_k|"
    "moe_top_k|top_k_experts "
    "used=K/E Ie=moe_intermediate_size|intermediate_size "
    "n_shared=n_shared_experts|num_shared_experts|"
    "moe_num_shared_experts|0 S=n_shared*Ie "
    "sparse=has(mlp_layer_types)?mlp(sparse):l>=(first_k_dense_replace|0) "
    "sliding=type(sliding_attention) "
    "chunked=type(chunked_attention) "
    "window=sliding?sliding_window:chunked?attention_chunk_size:index_topk|0 "
    "index=index_n_heads*(2*index_head_dim+2) "
    "qkv_bias=attention_bias o_bias=attention_bias tied=tie_word_embeddings "
    /* Linear attention: heads and widths of keys and values. Its chunks have 64
     * tokens. */
    "linear=type(linear_attention) "
    "lk=linear_num_key_heads lv=linear_num_value_heads "
    "dk=linear_key_head_dim dv=linear_value_head_dim "
    "delta=lv*(6*dk*dv+64*(4*dk+2*dv)) "
    /* Mamba-2: heads, their width, states, groups, taps, chunks. */
    "mh=mamba_n_heads|mamba_num_heads|num_heads "
    "mp=mamba_d_head|mamba_head_dim|(mamba_expand*H/mh)|head_dim "
    "mn=mamba_d_state|ssm_state_size|state_size "
    "mg=mamba_n_groups|n_groups taps=mamba_d_conv|conv_kernel "
    "mc=mamba_chunk_size|chunk_size mi=mh*mp mw=mi+2*mg*mn "
    "scan=mh*(4*mn*mp+2*mc*(mn+mp)) state=delta|scan ";

const struct pp_outline_part pp_outline_parts[] = {
    {"ends", "model.embed_tokens(V,H) model.norm(H;norm_bias) "
             "lm_head(V,H;head_bias)@!tied"},
    {"norms", "input_layernorm(H;norm_bias) "
              "post_attention_layernorm(H;norm_bias)"},
    {"after_norms",
     "post_attention_layernorm(H) post_feedforward_layernorm(H)"},
    {"attention", "self_attn.q_proj(nh*qk,H;qkv_bias) "
                  "self_attn.k_proj(nkv*qk,H;qkv_bias) "
                  "self_attn.v_proj(nkv*vd,H;qkv_bias) "
                  "self_attn.o_proj(H,nh*vd;o_bias)"},
    {"qk_norm", "self_attn.q_norm(hd) self_attn.k_norm(hd)"},
    {"qk_norm_all", "self_attn.q_norm(nh*hd) self_attn.k_norm(nkv*hd)"},
    {"sinks", "self_attn.sinks!(nh)"},
    {"latent_attention",
     "self_attn.q_proj(nh*qk,H)@!q_lora_rank "
     "self_attn.q_a_proj(q_lora_rank,H;attention_bias)@q_lora_rank "
     "self_attn.q_a_layernorm(q_lora_rank)@q_lora_rank "
     "self_attn.q_b_proj(nh*qk,q_lora_rank)@q_lora_rank "
     "self_attn.kv_a_proj_with_mqa(kv_lora_rank+qk_rope_head_dim,H;"
     "attention_bias) "
     "self_attn.kv_a_layernorm(kv_lora_rank) "
     "self_attn.kv_b_proj(nh*(qk_nope_head_dim+vd),kv_lora_rank) "
     "self_attn.o_proj(H,nh*vd;attention_bias)"},
    {"indexer", "self_attn.indexer.wq_b(index_n_heads*index_head_dim,"
                "q_lora_rank) self_attn.indexer.wk(index_head_dim,H) "
                "self_attn.indexer.k_norm(index_head_dim;1) "
                "self_attn.indexer.weights_proj(index_n_heads,H)"},
    {"mlp", "mlp.gate_proj(I,H;mlp_bias) mlp.up_proj(I,H;mlp_bias) "
            "mlp.down_proj(H,I;mlp_bias)"},
    {"fused_mlp", "mlp.gate_up_proj(2*I,H) mlp.down_proj(H,I)"},
    {"plain_mlp", "mlp.up_proj(I,H;mlp_bias) mlp.down_proj(H,I;mlp_bias)"},
    {"expert_matrices", "mlp.experts.gate_up_proj!(E,2*Ie,H) "
                        "mlp.experts.down_proj!(E,H,Ie)"},
    {"experts", "mlp.gate(E,H) expert_matrices"},
    {"shared_experts", "mlp.shared_experts.gate_proj(S,H)@S>0 "
                       "mlp.shared_experts.up_proj(S,H)@S>0 "
                       "mlp.shared_experts.down_proj(H,S)@S>0"},
    {NULL, NULL},
};

/* clang-format off */
const struct pp_outline_family pp_outline_families[] = {
    {"olmo3", "Olmo3ForCausalLM", "after_norms attention qk_norm_all mlp", NULL},
    {"exaone4", "Exaone4ForCausalLM", "after_norms attention qk_norm mlp", NULL},
    {"glm", "GlmForCausalLM", "o_bias=0 norms attention fused_mlp", NULL},
    {"glm4", "Glm4ForCausalLM", "o_bias=0 norms post_self_attn_layernorm(H) "
     "post_mlp_layernorm(H) attention fused_mlp", NULL},
    {"seed_oss", "SeedOssForCausalLM", "o_bias=attention_out_bias norms "
     "attention mlp", NULL},
    {"ministral3", "Ministral3ForCausalLM", "norms attention mlp", NULL},
    {"ministral", "MinistralForCausalLM", "norms attention mlp", NULL},
    {"cwm", "CwmForCausalLM", "norms attention mlp", NULL},
    {"arcee", "ArceeForCausalLM", "norms attention plain_mlp", NULL},
    {"apertus", "ApertusForCausalLM", "attention_layernorm(H) "
     "feedforward_layernorm(H) attention qk_norm plain_mlp "
     "mlp.act_fn.alpha_p!(1) mlp.act_fn.alpha_n!(1)", NULL},
    {"ernie4_5", "Ernie4_5ForCausalLM", "qkv_bias=use_bias o_bias=use_bias "
     "mlp_bias=use_bias head_bias=use_bias tied=tie_word_embeddings|1 norms "
     "attention mlp", NULL},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "norms attention "
     "self_attn.query_layernorm(hd) self_attn.key_layernorm(hd) mlp", NULL},
    {"granite", "GraniteForCausalLM", "norms attention mlp", NULL},
    {"cohere", "CohereForCausalLM", "tied=tie_word_embeddings|1 "
     "input_layernorm(H) attention self_attn.q_norm(nh,hd)@use_qk_norm "
     "self_attn.k_norm(nkv,hd)@use_qk_norm mlp", NULL},
    {"cohere2", "Cohere2ForCausalLM", "tied=tie_word_embeddings|1 "
     "input_layernorm(H) attention mlp", NULL},
    {"starcoder2", "Starcoder2ForCausalLM", "norm_bias=1 qkv_bias=use_bias "
     "o_bias=use_bias tied=tie_word_embeddings|1 sliding=has(sliding_window) "
     "norms attention mlp.c_fc(I,H;use_bias) mlp.c_proj(H,I;use_bias)", NULL},
    {"olmoe", "OlmoeForCausalLM", "Ie=I norms attention qk_norm_all experts",
     NULL},
    {"flex_olmo", "FlexOlmoForCausalLM", "Ie=I after_norms attention "
     "qk_norm_all experts", NULL},
    {"glm4_moe", "Glm4MoeForCausalLM", "o_bias=0 hd=head_dim|floor(H/nh) "
     "norms attention qk_norm@use_qk_norm mlp@!sparse experts@sparse "
     "shared_experts@sparse", NULL},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", "norms latent_attention "
     "mlp@!sparse experts@sparse shared_experts@sparse", NULL},
    {"deepseek_v32", "DeepseekV32ForCausalLM", "norms latent_attention indexer "
     "mlp@!sparse experts@sparse shared_experts@sparse", NULL},
    {"dots1", "Dots1ForCausalLM", "norms attention qk_norm mlp@!sparse "
     "experts@sparse shared_experts@sparse", NULL},
    {"solar_open", "SolarOpenForCausalLM", "norms attention experts "
     "shared_experts", NULL},
    {"minimax_m2", "MiniMaxM2ForCausalLM", "norms attention qk_norm_all "
     "experts", NULL},
    {NULL, NULL, NULL, NULL},
};
/* clang-format on */
