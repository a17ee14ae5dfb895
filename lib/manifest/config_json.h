/* SPDX-License-Identifier: MIT */
/* model_json - a Hugging Face config.json as a struct pp_model. */
#ifndef PP_MANIFEST_MODEL_JSON_H
#define PP_MANIFEST_MODEL_JSON_H

#include "base/err.h"
#include "plan/model.h"

/* Reads path, a config.json or the directory that holds one. Accepts
 * transformers 4 (rope_theta, rope_scaling with "rope_type" or "type") and 5
 * (rope_parameters). Refuses, by name and value, what the model code would not
 * compute as transformers does: other architectures, activations or rope
 * types, sliding windows, sizes that do not divide, numbers that are not
 * finite or not positive. PP_EXIT_INPUT with file and JSON pointer. */
int pp_model_read(const char *path, struct pp_model *m,
                  struct pp_err *err) PP_MUST_USE;

#endif
