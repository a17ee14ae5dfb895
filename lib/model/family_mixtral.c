/* SPDX-License-Identifier: MIT */
/* family_mixtral - Mixtral (Jiang et al., "Mixtral of Experts", 2024). */
#include "model/family_names.h"
#include "model/parts.h"

static const struct pp_names names = {
    PP_NAMES_OUTSIDE_LAYERS,
    .layer =
        {
            PP_NAMES_NORMS_BEFORE,
            PP_NAMES_ATTENTION,
            [PP_P_ROUTER] = "block_sparse_moe.gate.weight",
            [PP_P_EXPERT_GATE] = "block_sparse_moe.experts.%.w1.weight",
            [PP_P_EXPERT_UP] = "block_sparse_moe.experts.%.w3.weight",
            [PP_P_EXPERT_DOWN] = "block_sparse_moe.experts.%.w2.weight",
        },
    .buffers = {".inv_freq"},
};

const struct pp_family pp_family_mixtral = {
    .architecture = "MixtralForCausalLM",
    .names = &names,
    .norm = PP_PART_RMS_NORM,
    .attention = PP_PART_ATTENTION,
    .mlp = PP_PART_EXPERTS,
};
