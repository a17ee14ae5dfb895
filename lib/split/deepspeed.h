/* SPDX-License-Identifier: MIT */
/* deepspeed - DeepSpeed's partition of weighted units, and the class
 * names for its method type:REGEX. pp_split_uniform (split.h) is its uniform
 * partition. Pure. */
#ifndef PP_SPLIT_DEEPSPEED_H
#define PP_SPLIT_DEEPSPEED_H

#include <stddef.h>

#include "base/err.h"
#include "model/model.h"

/* Splits like partition_balanced, with the same boundaries. It aims at the
 * least difference between the largest and the smallest stage. Its dynamic
 * program keeps only one (largest, smallest) for each prefix, so neither the
 * difference nor the largest stage is always the least; pp_split_balanced is
 * better. With n <= n_stages it is pp_split_uniform. The time is
 * O(n * n * n_stages). */
int pp_split_deepspeed(const double *weights, size_t n, size_t n_stages,
                       size_t *bounds, struct pp_err *err) PP_MUST_USE;

/* Writes the class of the unit's module in transformers: "Embedding",
 * "LlamaDecoderLayer", "LlamaRMSNorm", "Linear". */
void pp_unit_class(const struct pp_model *m, struct pp_unit_id u,
                   char buf[PP_FQN_TEXT]);

#endif
