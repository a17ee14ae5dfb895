/* SPDX-License-Identifier: MIT */
/* outline_families - the families that ppsplit plans and pprun does not train
 * yet, and the parts that they share. outline.h has the form of the words.
 *
 * Sizes: H hidden, V vocabulary, nh heads, nkv key heads, hd, qk and vd widths
 * of a head, of its queries and of its values, I width of an MLP, E experts,
 * K experts of a token, Ie width of an expert, S width of shared experts. */
#include "manifest/outline.h"

/* Parts whose tensors have other prefixes in other families. */
#define LATENT(at)                                              \
    at "q_proj(nh*qk,H)@!q_lora_rank " at                       \
       "q_a_proj(q_lora_rank,H;attention_bias)@q_lora_rank " at \
       "q_a_layernorm(q_lora_rank)@q_lora_rank " at             \
       "q_b_proj(nh*qk,q_lora_rank)@q_lora_rank " at            \
       "kv_a_proj_with_mqa(kv_lora_rank+qk_rope_head_dim,H;"    \
       "attention_bias) " at "kv_a_layernorm(kv_lora_rank) " at \
       "kv_b_proj(nh*(qk_nope_head_dim+vd),kv_lora_rank) " at   \
       "o_proj(H,nh*vd;attention_bias) "
#define MLP(at)                                                  \
    at "gate_proj(I,H;mlp_bias) " at "up_proj(I,H;mlp_bias) " at \
       "down_proj(H,I;mlp_bias) "
#define EXPERTS(at) at "gate_up_proj!(E,2*Ie,H) " at "down_proj!(E,H,Ie) "
#define MAMBA2(at)                                                          \
    at "dt_bias!(mh) " at "A_log!(mh) " at "D!(mh) " at                     \
       "conv1d(mw,1,taps;tap_bias) " at "in_proj(mi+mw+mh,H;proj_bias) " at \
       "norm(mi)@gated_norm " at "out_proj(H,mi;proj_bias) "

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
    {"latent_attention", LATENT("self_attn.")},
    {"indexer", "self_attn.indexer.wq_b(index_n_heads*index_head_dim,"
                "q_lora_rank) self_attn.indexer.wk(index_head_dim,H) "
                "self_attn.indexer.k_norm(index_head_dim;1) "
                "self_attn.indexer.weights_proj(index_n_heads,H)"},
    {"mlp", MLP("mlp.")},
    {"ff_mlp", MLP("feed_forward.")},
    {"fused_mlp", "mlp.gate_up_proj(2*I,H) mlp.down_proj(H,I)"},
    {"expert_matrices", EXPERTS("mlp.experts.")},
    {"experts", "mlp.gate(E,H) expert_matrices"},
    {"shared_experts", "mlp.shared_experts.gate_proj(S,H)@S>0 "
                       "mlp.shared_experts.up_proj(S,H)@S>0 "
                       "mlp.shared_experts.down_proj(H,S)@S>0"},
    {"shared_expert", "mlp.shared_expert.gate_proj(Is,H) "
                      "mlp.shared_expert.up_proj(Is,H) "
                      "mlp.shared_expert.down_proj(H,Is) "
                      "mlp.shared_expert_gate(1,H)"},
    {"granite_experts",
     "block_sparse_moe.router(E,H) " EXPERTS("block_sparse_moe.experts.")},
    {"shared_mlp", "shared_mlp.input_linear(2*shared_intermediate_size,H) "
                   "shared_mlp.output_linear(H,shared_intermediate_size)"},
    {"delta_rule", "linear_attn.dt_bias!(lv) linear_attn.A_log!(lv) "
                   "linear_attn.conv1d(2*lk*dk+lv*dv,1,"
                   "linear_conv_kernel_dim)"},
    {"delta_joint", "delta_rule linear_attn.norm(dv) "
                    "linear_attn.out_proj(H,lv*dv) "
                    "linear_attn.in_proj_qkvz(2*lk*dk+2*lv*dv,H) "
                    "linear_attn.in_proj_ba(2*lv,H)"},
    {"delta_apart", "delta_rule linear_attn.norm(dv) "
                    "linear_attn.out_proj(H,lv*dv) "
                    "linear_attn.in_proj_qkv(2*lk*dk+lv*dv,H) "
                    "linear_attn.in_proj_z(lv*dv,H) "
                    "linear_attn.in_proj_b(lv,H) linear_attn.in_proj_a(lv,H)"},
    {"delta_single", "delta_rule linear_attn.q_proj(lk*dk,H) "
                     "linear_attn.k_proj(lk*dk,H) linear_attn.v_proj(lv*dv,H) "
                     "linear_attn.a_proj(lv,H) linear_attn.b_proj(lv,H) "
                     "linear_attn.g_proj(lv*dv,H) "
                     "linear_attn.o_proj(H,lv*dv) linear_attn.o_norm(dv)"},
    /* Half of the queries are logits of the output's gate. */
    {"gated_attention", "self_attn.q_proj(2*nh*hd,H;qkv_bias) "
                        "self_attn.k_proj(nkv*hd,H;qkv_bias) "
                        "self_attn.v_proj(nkv*hd,H;qkv_bias) "
                        "self_attn.o_proj(H,nh*hd;o_bias)"},
    {"kimi_delta", "self_attn.q_proj(lw,H) self_attn.k_proj(lw,H) "
                   "self_attn.v_proj(lw,H) self_attn.conv1d(3*lw,1,lt) "
                   "self_attn.forget_gate.dt_bias!(lw) "
                   "self_attn.forget_gate.A_log!(kh) "
                   "self_attn.forget_gate.f_a_proj(kd,H) "
                   "self_attn.forget_gate.f_b_proj(lw,kd) "
                   "self_attn.b_proj(kh,H) self_attn.g_a_proj(kd,H) "
                   "self_attn.g_b_proj(lw,kd) self_attn.o_norm(kd) "
                   "self_attn.o_proj(H,lw)"},
    {"lightning", "self_attn.norm(nh*hd) self_attn.qkv_proj(3*nh*hd,H) "
                  "self_attn.out_proj(H,nh*hd) "
                  "self_attn.output_gate(nh*hd,H)"},
    {"short_conv", "conv.in_proj(3*H,H;conv_bias) "
                   "conv.conv(H,1,conv_L_cache;conv_bias) "
                   "conv.out_proj(H,H;conv_bias)"},
    {"mamba2", MAMBA2("mamba.")},
    {"mamba2_mixer", MAMBA2("mixer.")},
    {"mamba", "mamba.A_log!(mi,mn) mamba.D!(mi) "
              "mamba.conv1d(mi,1,taps;tap_bias) "
              "mamba.in_proj(2*mi,H;proj_bias) "
              "mamba.x_proj(mamba_dt_rank+2*mn,mi) "
              "mamba.dt_proj(mi,mamba_dt_rank;1) "
              "mamba.out_proj(H,mi;proj_bias) "
              "mamba.dt_layernorm(mamba_dt_rank) mamba.b_layernorm(mn) "
              "mamba.c_layernorm(mn)"},
    /* The last layers attend the keys and values of earlier ones. */
    {"attention_of_others",
     "self_attn.q_proj(nh*hd,H) self_attn.q_norm(hd) "
     "self_attn.k_proj(nkv*hd,H)@l<L-num_kv_shared_layers "
     "self_attn.v_proj(nkv*hd,H)@l<L-num_kv_shared_layers "
     "self_attn.k_norm(hd)@l<L-num_kv_shared_layers self_attn.o_proj(H,nh*hd)"},
    {"per_layer_inputs", "per_layer_input_gate(pw,H) "
                         "per_layer_projection(H,pw) "
                         "post_per_layer_input_norm(H)"},
    {"per_layer_tables", "model.embed_tokens_per_layer("
                         "vocab_size_per_layer_input,L*pw) "
                         "model.per_layer_model_projection(L*pw,H) "
                         "model.per_layer_projection_norm(pw)"},
    {NULL, NULL},
};

/* clang-format off */
const struct pp_outline_family pp_outline_families[] = {
    /* pprun trains these but for some of their settings. */
    {"ernie4_5", "Ernie4_5ForCausalLM", "qkv_bias=use_bias o_bias=use_bias "
     "mlp_bias=use_bias head_bias=use_bias tied=tie_word_embeddings|1 norms "
     "attention mlp", NULL},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "qkv_bias=use_bias "
     "o_bias=use_bias mlp_bias=use_bias head_bias=use_bias "
     "tied=tie_word_embeddings|1 sparse=l>=moe_layer_start_index&&"
     "(moe_layer_end_index<0||l<=moe_layer_end_index)&&"
     "(l+1)%moe_layer_interval==0 norms attention mlp@!sparse experts@sparse "
     "mlp.gate.moe_statics.e_score_correction_bias!(1,E)@sparse "
     "shared_experts@sparse", NULL},
    {"afmoe", "AfmoeForCausalLM", "sparse=l>=num_dense_layers norms "
     "pre_mlp_layernorm(H) post_mlp_layernorm(H) attention qk_norm "
     "self_attn.gate_proj(nh*hd,H) mlp@!sparse mlp.router.gate(E,H)@sparse "
     "mlp.expert_bias!(E)@sparse expert_matrices@sparse shared_experts@sparse",
     NULL},
    {"cohere", "CohereForCausalLM", "tied=tie_word_embeddings|1 "
     "input_layernorm(H) attention self_attn.q_norm(nh,hd)@use_qk_norm "
     "self_attn.k_norm(nkv,hd)@use_qk_norm mlp", NULL},
    {"deepseek_v32", "DeepseekV32ForCausalLM", "norms latent_attention indexer "
     "mlp@!sparse experts@sparse shared_experts@sparse", NULL},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM", "norms latent_attention "
     "indexer@!has(indexer_types)||is(indexer_types,full) mlp@!sparse "
     "experts@sparse shared_experts@sparse", NULL},
    {"longcat_flash", "LongcatFlashForCausalLM", "L=num_layers "
     "I=ffn_hidden_size Ie=expert_ffn_hidden_size used=K/(E+zero_expert_num) "
     "input_layernorm.0(H) input_layernorm.1(H) post_attention_layernorm.0(H) "
     "post_attention_layernorm.1(H) " LATENT("self_attn.0.")
     LATENT("self_attn.1.") MLP("mlps.0.") MLP("mlps.1.")
     "mlp.router.classifier(E+zero_expert_num,H) "
     "mlp.experts.gate_up_proj!(E+zero_expert_num,2*Ie,H) "
     "mlp.experts.down_proj!(E,H,Ie)", NULL},
    {"qwen3_next", "Qwen3NextForCausalLM", "sparse=steps norms "
     "delta_joint@recurs gated_attention@!recurs qk_norm@!recurs mlp@!sparse "
     "experts@sparse shared_expert@sparse", NULL},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", "norms delta_apart@recurs "
     "gated_attention@!recurs qk_norm@!recurs mlp", NULL},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "norms delta_apart@recurs "
     "gated_attention@!recurs qk_norm@!recurs experts shared_expert", NULL},
    {"kimi_linear", "KimiLinearForCausalLM", "recurs=has(layer_types)?"
     "type(linear_attention):in(linear_attn_config.kda_layers,1) "
     "kh=linear_num_heads|linear_attn_config.num_heads "
     "kd=linear_head_dim|linear_attn_config.head_dim lw=kh*kd "
     "lt=linear_conv_kernel_dim|linear_attn_config.short_conv_kernel_size "
     "delta=kh*(6*kd*kd+64*6*kd) norms kimi_delta@recurs "
     "latent_attention@!recurs mlp@!sparse experts@sparse "
     "shared_experts@sparse", NULL},
    {"olmo_hybrid", "OlmoHybridForCausalLM", "input_layernorm(H)@recurs "
     "post_attention_layernorm(H) post_feedforward_layernorm(H)@!recurs "
     "delta_single@recurs attention@!recurs qk_norm_all@!recurs mlp", NULL},
    {"minimax", "MiniMaxForCausalLM", "Ie=I sliding=has(sliding_window) "
     "state=nh*(4*block_size*hd+4*hd*hd) norms attention@!recurs "
     "lightning@recurs experts", NULL},
    {"lfm2", "Lfm2ForCausalLM", "tied=tie_word_embeddings|1 "
     "I=block_auto_adjust_ff_dim?up(floor(floor(2*intermediate_size/3)*"
     "block_ffn_dim_multiplier),block_multiple_of):intermediate_size "
     "operator_norm(H) ffn_norm(H) short_conv@type(conv) "
     "self_attn.q_proj(nh*hd,H)@!type(conv) "
     "self_attn.k_proj(nkv*hd,H)@!type(conv) "
     "self_attn.v_proj(nkv*hd,H)@!type(conv) "
     "self_attn.out_proj(H,nh*hd)@!type(conv) "
     "self_attn.q_layernorm(hd)@!type(conv) "
     "self_attn.k_layernorm(hd)@!type(conv) feed_forward.w1(I,H) "
     "feed_forward.w3(I,H) feed_forward.w2(H,I)",
     "model.embed_tokens(V,H) model.embedding_norm(H) lm_head(V,H)@!tied"},
    {"mamba2", "Mamba2ForCausalLM", "recurs=1 norm(H) mamba2_mixer",
     "backbone.embeddings(V,H) backbone.norm_f(H) lm_head(V,H)@!tied"},
    {"bamba", "BambaForCausalLM", "recurs=!in(attn_layer_indices) "
     "input_layernorm(H) pre_ff_layernorm(H) mamba2@recurs attention@!recurs "
     "ff_mlp", "model.embed_tokens(V,H) model.final_layernorm(H) "
     "lm_head(V,H)@!tied"},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", "Ie=I norms "
     "mamba2@recurs attention@!recurs granite_experts@num_local_experts "
     "shared_mlp", NULL},
    {"falcon_h1", "FalconH1ForCausalLM", "recurs=0 mi=mamba_d_ssm|mh*mp "
     "gated_norm=mamba_rms_norm input_layernorm(H) pre_ff_layernorm(H) mamba2 "
     "attention ff_mlp", "model.embed_tokens(V,H) model.final_layernorm(H) "
     "lm_head(V,H)@!tied"},
    {"jamba", "JambaForCausalLM", "Ie=I mi=mamba_expand*H "
     "recurs=(l+attn_layer_period-attn_layer_offset)%attn_layer_period!=0 "
     "sparse=(l+expert_layer_period-expert_layer_offset)%expert_layer_period=="
     "0 input_layernorm(H) pre_ff_layernorm(H) mamba@recurs attention@!recurs "
     "ff_mlp@!sparse feed_forward.router(E,H)@sparse "
     "feed_forward.experts.gate_up_proj!(E,2*Ie,H)@sparse "
     "feed_forward.experts.down_proj!(E,H,Ie)@sparse",
     "model.embed_tokens(V,H) model.final_layernorm(H) lm_head(V,H)@!tied"},
    {"nemotron_h", "NemotronHForCausalLM", "listed=has(layers_block_type)||"
     "has(layer_types) "
     /* 77, 69 and 42 are the letters M, E and * of the pattern. */
     "recurs=listed?type(linear_attention)||type(mamba):"
     "letter(hybrid_override_pattern)==77 "
     "sparse=listed?type(moe):letter(hybrid_override_pattern)==69 "
     "attends=listed?type(full_attention)||type(attention):"
     "letter(hybrid_override_pattern)==42 dense=!recurs&&!sparse&&!attends "
     "ml=moe_latent_size|H norm(H) mamba2_mixer@recurs "
     "mixer.q_proj(nh*hd,H;attention_bias)@attends "
     "mixer.k_proj(nkv*hd,H;attention_bias)@attends "
     "mixer.v_proj(nkv*hd,H;attention_bias)@attends "
     "mixer.o_proj(H,nh*hd;attention_bias)@attends "
     "mixer.up_proj(I,H;mlp_bias)@dense mixer.down_proj(H,I;mlp_bias)@dense "
     "mixer.gate(E,H)@sparse mixer.experts.up_proj!(E,Ie,ml)@sparse "
     "mixer.experts.down_proj!(E,ml,Ie)@sparse "
     "mixer.shared_experts.up_proj(moe_shared_expert_intermediate_size,H)"
     "@sparse "
     "mixer.shared_experts.down_proj(H,moe_shared_expert_intermediate_size)"
     "@sparse mixer.fc1_latent_proj(ml,H)@sparse&&has(moe_latent_size) "
     "mixer.fc2_latent_proj(H,ml)@sparse&&has(moe_latent_size)",
     "model.embeddings(V,H) model.norm_f(H) lm_head(V,H)@!tied"},
    {"gemma3n_text", "Gemma3nForCausalLM", "tied=tie_word_embeddings|1 "
     "I=at(intermediate_size) more=2*altup_num_inputs*(altup_num_inputs+1)*H "
     "norms pre_feedforward_layernorm(H) post_feedforward_layernorm(H) "
     "attention_of_others mlp "
     "altup.correct_output_scale!(H) "
     "altup.correction_coefs(altup_num_inputs,altup_num_inputs) "
     "altup.prediction_coefs(altup_num_inputs*altup_num_inputs,"
     "altup_num_inputs) altup.modality_router(altup_num_inputs,H) "
     "altup.router_norm(H) laurel.linear_left(laurel_rank,H) "
     "laurel.linear_right(H,laurel_rank) laurel.post_laurel_norm(H) "
     "per_layer_inputs", "ends per_layer_tables "
     "model.altup_projections(H*(altup_num_inputs-1),H) "
     "model.altup_unembed_projections(H*(altup_num_inputs-1),H)"},
    {"gemma4_text", "Gemma4ForCausalLM", "tied=tie_word_embeddings|1 norms "
     "pre_feedforward_layernorm(H) post_feedforward_layernorm(H) "
     "attention_of_others mlp per_layer_inputs@pw", "ends per_layer_tables@pw"},
    /* Language models within models that have encoders. */
    {"qwen3_vl_text", NULL, "norms attention qk_norm mlp", NULL},
    {"qwen3_vl_moe_text", NULL, "sparse=steps norms attention qk_norm "
     "mlp@!sparse experts@sparse", NULL},
    {"qwen3_omni_moe_text", NULL, "sparse=steps norms attention qk_norm "
     "mlp@!sparse experts@sparse", NULL},
    {"glm4v_text", NULL, "o_bias=0 qkv_bias=attention_bias|1 norms "
     "post_self_attn_layernorm(H) post_mlp_layernorm(H) attention fused_mlp",
     NULL},
    {"glm4v_moe_text", NULL, "o_bias=0 hd=head_dim|floor(H/nh) norms attention mlp@!sparse "
     "experts@sparse shared_experts@sparse", NULL},
    {NULL, NULL, NULL, NULL},
};
/* clang-format on */
