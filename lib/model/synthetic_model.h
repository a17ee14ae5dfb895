/* SPDX-License-Identifier: MIT */
/* shrink - a model's likeness in small: what the pipeline sees stays. */
#ifndef PP_MODEL_SYNTHETIC_MODEL_H
#define PP_MODEL_SYNTHETIC_MODEL_H

#include "model/model.h"

/* Keeps units, heads per key head, biases, QK-norm, RoPE's kind and tying;
 * makes hidden, heads, widths and vocabulary small. Random weights then vary
 * enough for attention to matter at that width. */
void pp_model_synthetic(struct pp_model *m);

#endif
