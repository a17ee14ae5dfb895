/* SPDX-License-Identifier: MIT */
/* moe_frequency - reads Megatron-LM's moe-layer-freq, which says which layers
 * are mixtures of experts. */
#ifndef PP_MODEL_MOE_FREQUENCY_H
#define PP_MODEL_MOE_FREQUENCY_H

#include "base/err.h"
#include "model/model.h"

/* Fills *out from text. Text is a number n: layers 0, n, 2n and so on have
 * experts. Or it is a Python list with 0 or 1 for every layer, which may use +,
 * * and parentheses: "([0]*3+[1]*58)". Fails with PP_EXIT_INPUT for other text,
 * or if the list is for another number of layers. */
int pp_moe_frequency(const char *text, size_t n_layers,
                     struct pp_layer_set *out, struct pp_err *err) PP_MUST_USE;

#endif
