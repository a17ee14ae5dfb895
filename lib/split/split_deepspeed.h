/* SPDX-License-Identifier: MIT */
/* split_deepspeed - DeepSpeed's partition of weighted units, and the class
 * names that its method type:REGEX looks at. Its uniform partition is
 * pp_split_uniform (split.h). Pure. */
#ifndef PP_SPLIT_SPLIT_DEEPSPEED_H
#define PP_SPLIT_SPLIT_DEEPSPEED_H

#include <stddef.h>

#include "base/err.h"
#include "model/model.h"

/* partition_balanced: aims at the least difference between the largest and the
 * smallest stage, by a dynamic program that remembers one (largest, smallest)
 * for each beginning, so that it is not always the least, nor the largest stage
 * the smallest. Kept as it is: this is for those who want the very same
 * boundaries; pp_split_balanced is better. No more units than stages are split
 * as by pp_split_uniform. Time grows with n * n * n_stages. */
int pp_split_deepspeed(const double *weights, size_t n, size_t n_stages,
                       size_t *bounds, struct pp_err *err) PP_MUST_USE;

/* The class of the unit's module in transformers: "Embedding",
 * "LlamaDecoderLayer", "LlamaRMSNorm", "Linear". */
void pp_unit_class(const struct pp_model *m, struct pp_unit_id u,
                   char buf[PP_FQN_TEXT]);

#endif
