/* SPDX-License-Identifier: MIT */
/* token_axes - the positions of tokens on three axes, time, row and column
 * (M-RoPE): P. Wang et al., "Qwen2-VL", 2024.
 *
 * A feature of an image has the row and the column of its place in the image,
 * and the time at which the image begins. What follows the image begins behind
 * the largest of them. A token of text has the same position on all axes, and
 * so has a feature of audio, as J. Xu et al., "Qwen2.5-Omni Technical Report",
 * 2025, count them: one position stands for 40 ms, which is one feature. */
#ifndef PP_RUN_EXECUTE_TOKEN_AXES_H
#define PP_RUN_EXECUTE_TOKEN_AXES_H

#include "run/execute/image_places.h"

/* Writes the positions of the tokens of a taker's microbatch, three each, to
 * axes, which has room for them. w is the work of the encoder of images v.
 * Returns false, and writes nothing, if the encoder has one axis or if the
 * microbatch has no images: then all positions of a token are alike, and
 * sequences may have ranks of their own. */
bool pp_token_axes(const struct pp_image_work *w, const struct pp_vision *v,
                   int32_t *axes);

#endif
