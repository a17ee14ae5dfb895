/* SPDX-License-Identifier: MIT */
/* family_phi3 - Phi-3 and Phi-4 (Abdin et al., "Phi-3 Technical Report", 2024).
 * One tensor holds queries, keys and values, and one holds gate and up. */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            [PP_P_Q] = "self_attn.qkv_proj.weight",
            [PP_P_O] = "self_attn.o_proj.weight",
            [PP_P_GATE] = "mlp.gate_up_proj.weight",
            [PP_P_DOWN] = "mlp.down_proj.weight",
        },
};

const struct pp_family pp_family_phi3 = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .config = "longest=max_position_embeddings|4096 eps=rms_norm_eps|0.00001 "
              "rot=floor((part|1)*hd) span=0 typed=0 pattern=1 qkv_bias=0 "
              "o_bias=0 mlp_bias=0",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_GATED_MLP,
};
