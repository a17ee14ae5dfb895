/* SPDX-License-Identifier: MIT */
/* vision - the units of an encoder of images, which come before those of the
 * language model: patches, a norm where there is one, the layers, a norm, and
 * the projector, which makes the tokens that stand among the text's. Pure.
 *
 * Encoders: A. Radford et al., "Learning Transferable Visual Models From
 * Natural Language Supervision", ICML 2021, as H. Liu et al., "Visual
 * Instruction Tuning", NeurIPS 2023, use it; P. Wang et al., "Qwen2-VL", 2024;
 * S. Bai et al., "Qwen2.5-VL Technical Report", 2025.
 *
 * An encoder has tokens of its own, so many for each image. Its operations,
 * activations and messages are counted for each token of the language model,
 * and its pairs for each pair that the language model attends, at n_images
 * images in a sequence of seq_len tokens; so they add up with the others'. */
#ifndef PP_MODEL_VISION_H
#define PP_MODEL_VISION_H

#include "model/inventory.h"
#include "model/precision.h"

/* "LlavaForConditionalGeneration" and the like; not of PP_VISION_NONE. */
const char *pp_vision_name(enum pp_vision_kind kind);

/* Units of the encoder; 0 where the model has none. They are the model's
 * first, and pp_vision_index is their place. */
size_t pp_vision_n_units(const struct pp_model *m);
struct pp_unit_id pp_vision_unit(const struct pp_model *m, size_t index);
size_t pp_vision_index(const struct pp_model *m, struct pp_unit_id u);

/* The name of the unit's module in published files, "visual.blocks.3", with
 * which the names of its parameters begin; and its class in transformers. */
void pp_vision_fqn(const struct pp_model *m, struct pp_unit_id u,
                   char buf[PP_FQN_TEXT]);
void pp_vision_class(const struct pp_model *m, struct pp_unit_id u,
                     char buf[PP_FQN_TEXT]);

/* As pp_unit_inventory and pp_unit_fwd_flops, which hand these units on. What
 * is behind the last layer whose output is used has weights and costs
 * nothing. */
size_t pp_vision_inventory(const struct pp_model *m, struct pp_unit_id u,
                           struct pp_weight_group out[PP_MAX_WEIGHT_GROUPS]);
struct pp_flops pp_vision_flops(const struct pp_model *m, struct pp_unit_id u);

/* Bytes of a block, and numbers that leave the unit, for each token of the
 * language model. Encoders make nothing again. */
double pp_vision_saved_bytes(const struct pp_model *m, struct pp_unit_id u,
                             enum pp_saved_block block,
                             const struct pp_precision *p);
double pp_vision_out_width(const struct pp_model *m, struct pp_unit_id u);

/* Tokens that the encoder has for an image, and those that the language model
 * gets of it. */
size_t pp_vision_tokens(const struct pp_vision *v);
size_t pp_vision_out_tokens(const struct pp_vision *v);

#endif
