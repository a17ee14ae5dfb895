/* SPDX-License-Identifier: MIT */
/* family_gpt2 - GPT-2 (Radford et al., "Language Models are Unsupervised
 * Multitask Learners", 2019). One tensor holds queries, keys and values. */
#include "model/parts.h"

static const struct pp_names names = {
    .embedding = "transformer.wte",
    .layers = "transformer.h",
    .norm = "transformer.ln_f",
    .head = "lm_head",
    .layer =
        {
            [PP_P_NORM1] = "ln_1.weight",
            [PP_P_Q] = "attn.c_attn.weight",
            [PP_P_Q_BIAS] = "attn.c_attn.bias",
            [PP_P_O] = "attn.c_proj.weight",
            [PP_P_O_BIAS] = "attn.c_proj.bias",
            [PP_P_NORM2] = "ln_2.weight",
            [PP_P_UP] = "mlp.c_fc.weight",
            [PP_P_UP_BIAS] = "mlp.c_fc.bias",
            [PP_P_DOWN] = "mlp.c_proj.weight",
            [PP_P_DOWN_BIAS] = "mlp.c_proj.bias",
        },
};

const struct pp_family pp_family_gpt2 = {
    .architecture = "GPT2LMHeadModel",
    .names = &names,
    .norm = PP_PART_LAYER_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_PLAIN_MLP,
};
