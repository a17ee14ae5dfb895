/* SPDX-License-Identifier: MIT */
/* moe_frequency - which layers are mixtures of experts, in Megatron-LM's words
 * (its --moe-layer-freq). */
#ifndef PP_MODEL_MOE_FREQUENCY_H
#define PP_MODEL_MOE_FREQUENCY_H

#include "base/err.h"
#include "model/model.h"

/* text is a number n, and layers 0, n, 2n and so on have experts; or a Python
 * list of 0 and 1 for every layer, written with + and * and parentheses:
 * "([0]*3+[1]*58)". Fills *out. PP_EXIT_INPUT says where the text goes wrong,
 * or that it is for another number of layers. */
int pp_moe_frequency(const char *text, size_t n_layers,
                     struct pp_layer_set *out, struct pp_err *err) PP_MUST_USE;

#endif
