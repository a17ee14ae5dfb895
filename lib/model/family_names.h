/* SPDX-License-Identifier: MIT */
/* family_names - the names of tensors that most decoders on Hugging Face share:
 * entries of a struct pp_names (parts.h), and of its table `layer`. */
#ifndef PP_MODEL_FAMILY_NAMES_H
#define PP_MODEL_FAMILY_NAMES_H

#include "model/parts.h"

/* clang-format off */

#define PP_NAMES_OUTSIDE_LAYERS               \
    .embedding = "model.embed_tokens.weight", \
    .norm = "model.norm.weight",              \
    .head = "lm_head.weight",                 \
    .layers = "model.layers"

#define PP_NAMES_NORMS_BEFORE                \
    [PP_P_NORM1] = "input_layernorm.weight", \
    [PP_P_NORM2] = "post_attention_layernorm.weight"

#define PP_NAMES_ATTENTION                \
    [PP_P_Q] = "self_attn.q_proj.weight", \
    [PP_P_K] = "self_attn.k_proj.weight", \
    [PP_P_V] = "self_attn.v_proj.weight", \
    [PP_P_O] = "self_attn.o_proj.weight"

#define PP_NAMES_ATTENTION_BIASES            \
    [PP_P_Q_BIAS] = "self_attn.q_proj.bias", \
    [PP_P_K_BIAS] = "self_attn.k_proj.bias", \
    [PP_P_V_BIAS] = "self_attn.v_proj.bias", \
    [PP_P_O_BIAS] = "self_attn.o_proj.bias"

#define PP_NAMES_QK_NORM                       \
    [PP_P_Q_NORM] = "self_attn.q_norm.weight", \
    [PP_P_K_NORM] = "self_attn.k_norm.weight"

#define PP_NAMES_GATED_MLP                \
    [PP_P_GATE] = "mlp.gate_proj.weight", \
    [PP_P_UP] = "mlp.up_proj.weight",     \
    [PP_P_DOWN] = "mlp.down_proj.weight"

#define PP_NAMES_EXPERTS                                   \
    [PP_P_ROUTER] = "mlp.gate.weight",                     \
    [PP_P_EXPERT_GATE] = "mlp.experts.%.gate_proj.weight", \
    [PP_P_EXPERT_UP] = "mlp.experts.%.up_proj.weight",     \
    [PP_P_EXPERT_DOWN] = "mlp.experts.%.down_proj.weight"

#define PP_NAMES_SHARED_EXPERTS                                    \
    [PP_P_ROUTER_BIAS] = "mlp.gate.e_score_correction_bias",       \
    [PP_P_SHARED_GATE] = "mlp.shared_experts.gate_proj.weight",    \
    [PP_P_SHARED_UP] = "mlp.shared_experts.up_proj.weight",        \
    [PP_P_SHARED_DOWN] = "mlp.shared_experts.down_proj.weight"

#define PP_NAMES_SHARED(at)                             \
    [PP_P_SHARED_GATE] = "mlp." at ".gate_proj.weight", \
    [PP_P_SHARED_UP] = "mlp." at ".up_proj.weight",     \
    [PP_P_SHARED_DOWN] = "mlp." at ".down_proj.weight"

#define PP_NAMES_AHEAD                             \
    [PP_P_NEXT_EMBED] = "embed_tokens.weight",     \
    [PP_P_NEXT_NORM] = "enorm.weight",             \
    [PP_P_TRUNK_NORM] = "hnorm.weight",            \
    [PP_P_JOIN] = "eh_proj.weight",                \
    [PP_P_MTP_NORM] = "shared_head.norm.weight"

/* clang-format on */

#endif
