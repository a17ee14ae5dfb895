/* SPDX-License-Identifier: MIT */
/* omni_model - the model that scripts/gen-omni writes to
 * tests/golden/qwen2.5-omni, with one of its encoders: "vision" or "audio". */
#ifndef PP_TESTS_OMNI_MODEL_H
#define PP_TESTS_OMNI_MODEL_H

#include <string.h>

#include "model/model.h"

static inline struct pp_vision omni_encoder(const char *part)
{
    if (!strcmp(part, "audio"))
        return (struct pp_vision){.kind = PP_VISION_OMNI_AUDIO,
                                  .hidden = 12,
                                  .intermediate = 20,
                                  .n_layers = 2,
                                  .n_run = 2,
                                  .n_heads = 2,
                                  .channels = 6,
                                  .patch_size = 3,
                                  .patch_inputs = 18,
                                  .merge = 2,
                                  .projector_bias = true,
                                  .gelu = PP_GELU_ERF,
                                  .norm_eps = 1e-5,
                                  .chunk = 4,
                                  .windowed.bits[0] = 3,
                                  .patches = 10,
                                  .image_token = 32,
                                  .n_images = 1,
                                  .seq_len = 1};
    return (struct pp_vision){.kind = PP_VISION_OMNI,
                              .hidden = 16,
                              .intermediate = 20,
                              .n_layers = 2,
                              .n_run = 2,
                              .n_heads = 2,
                              .channels = 3,
                              .patch_size = 2,
                              .frames = 2,
                              .patch_inputs = 24,
                              .merge = 4,
                              .projector_bias = true,
                              .projector_gelu = PP_GELU_ERF,
                              .norm_eps = 1e-6,
                              .window = 2,
                              .windowed.bits[0] = 1,
                              .patches = 16,
                              .image_token = 31,
                              .n_images = 1,
                              .seq_len = 1};
}

static inline struct pp_model omni_model(const char *part)
{
    return (struct pp_model){.architecture = PP_QWEN2,
                             .hidden = 24,
                             .intermediate = 32,
                             .n_layers = 2,
                             .n_heads = 2,
                             .n_kv_heads = 1,
                             .head_dim = 12,
                             .vocab = 40,
                             .max_position = 256,
                             .norm_eps = 1e-6,
                             .init_range = 0.02,
                             .rope = {.theta = 10000, .attention_factor = 1},
                             .rope_axes = {1, 2, 3},
                             .qkv_bias = true,
                             .encoders[0] = omni_encoder(part)};
}

#endif
