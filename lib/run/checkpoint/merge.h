/* SPDX-License-Identifier: MIT */
/* merge - writes a whole model: its base with adapters added to the weights,
 * W + scale B A, which is computed in fp64 and rounded once to the type that W
 * has. */
#ifndef PP_RUN_CHECKPOINT_MERGE_H
#define PP_RUN_CHECKPOINT_MERGE_H

#include "base/err.h"
#include "data/tensors/safetensors.h"
#include "model/lora.h"

/* Writes DIR, which must not exist: model.safetensors with all tensors of t
 * that are no adapters, config.json with this text, what is beside the weights
 * at source (ckpt.h), and a list of checksums. t has the base and the adapters
 * of m, whose names and shapes are checked. */
int pp_merge(const char *dir, const struct pp_model *m,
             const struct pp_tensors *t, const char *config_text,
             const char *source, struct pp_err *err) PP_MUST_USE;

/* Returns the type of the weights that adapters are added to, which is in
 * config.json. */
enum pp_dtype pp_merge_dtype(const struct pp_model *m,
                             const struct pp_tensors *t);

#endif
