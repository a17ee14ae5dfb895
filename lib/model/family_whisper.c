/* SPDX-License-Identifier: MIT */
/* family_whisper - Whisper's encoder of audio (Radford et al., "Robust Speech
 * Recognition via Large-Scale Weak Supervision", 2022), as a part of
 * Qwen2-Audio: two convolutions, stored positions, and no bias of keys. That of
 * Qwen2.5-Omni (Xu et al., "Qwen2.5-Omni Technical Report", 2025) computes its
 * positions, which count within a chunk of a clip. */
#include "model/parts.h"

static const struct pp_names names = {
    .positions = "audio_tower.embed_positions.weight",
    .patches = "audio_tower.conv1.weight",
    .conv1_bias = "audio_tower.conv1.bias",
    .conv2 = "audio_tower.conv2.weight",
    .conv2_bias = "audio_tower.conv2.bias",
    .layers = "audio_tower.layers",
    .layer =
        {
            [PP_P_NORM1] = "self_attn_layer_norm.weight",
            [PP_P_NORM1_BIAS] = "self_attn_layer_norm.bias",
            [PP_P_Q] = "self_attn.q_proj.weight",
            [PP_P_K] = "self_attn.k_proj.weight",
            [PP_P_V] = "self_attn.v_proj.weight",
            [PP_P_Q_BIAS] = "self_attn.q_proj.bias",
            [PP_P_V_BIAS] = "self_attn.v_proj.bias",
            [PP_P_O] = "self_attn.out_proj.weight",
            [PP_P_O_BIAS] = "self_attn.out_proj.bias",
            [PP_P_NORM2] = "final_layer_norm.weight",
            [PP_P_NORM2_BIAS] = "final_layer_norm.bias",
            [PP_P_UP] = "fc1.weight",
            [PP_P_UP_BIAS] = "fc1.bias",
            [PP_P_DOWN] = "fc2.weight",
            [PP_P_DOWN_BIAS] = "fc2.bias",
        },
};

#define FAMILY(id, text, ...)                 \
    const struct pp_family pp_family_##id = { \
        .architecture = text,                 \
        .names = &names,                      \
        .norm = PP_PART_LAYER_NORM,           \
        .attention = PP_PART_ATTENTION,       \
        .mlp = PP_PART_PLAIN_MLP,             \
        .whole = true,                        \
        __VA_ARGS__,                          \
    }

FAMILY(whisper, "Qwen2AudioEncoder", .fixed_positions = true);
FAMILY(omni_audio, "Qwen2_5OmniAudioEncoder", .sinusoids = true);
