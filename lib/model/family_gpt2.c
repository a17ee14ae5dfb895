/* SPDX-License-Identifier: MIT */
/* family_gpt2 - GPT-2 (Radford et al., "Language Models are Unsupervised
 * Multitask Learners", 2019). One tensor holds queries, keys and values. The
 * classes of transformers store matrices as (in, out). */
#include "model/parts.h"

static const struct pp_names names = {
    .embedding = "transformer.wte.weight",
    .positions = "transformer.wpe.weight",
    .norm = "transformer.ln_f.weight",
    .norm_bias = "transformer.ln_f.bias",
    .head = "lm_head.weight",
    .layers = "transformer.h",
    .layer =
        {
            [PP_P_NORM1] = "ln_1.weight",
            [PP_P_NORM1_BIAS] = "ln_1.bias",
            [PP_P_Q] = "attn.c_attn.weight",
            [PP_P_Q_BIAS] = "attn.c_attn.bias",
            [PP_P_O] = "attn.c_proj.weight",
            [PP_P_O_BIAS] = "attn.c_proj.bias",
            [PP_P_NORM2] = "ln_2.weight",
            [PP_P_NORM2_BIAS] = "ln_2.bias",
            [PP_P_UP] = "mlp.c_fc.weight",
            [PP_P_UP_BIAS] = "mlp.c_fc.bias",
            [PP_P_DOWN] = "mlp.c_proj.weight",
            [PP_P_DOWN_BIAS] = "mlp.c_proj.bias",
        },
    .transposed = true,
    .optional = "transformer.",
    /* The mask, and the score of what it hides. */
    .buffers = {".attn.bias", ".attn.masked_bias"},
};

const struct pp_family pp_family_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .config = "H=n_embd L=n_layer nh=n_head nkv=nh hd=H/nh I=n_inner|4*H "
              "longest=n_positions|1024 eps=layer_norm_epsilon|0.00001 "
              "erf=is(activation_function,gelu) tied=tie_word_embeddings|1 "
              "qkv_bias=1 o_bias=1 mlp_bias=1",
    .names = &names,
    .norm = PP_PART_LAYER_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_PLAIN_MLP,
    .residual_init = true,
};
