/* SPDX-License-Identifier: MIT */
/* config_json - a Hugging Face config.json as a struct pp_model. */
#ifndef PP_MANIFEST_CONFIG_JSON_H
#define PP_MANIFEST_CONFIG_JSON_H

#include "base/err.h"
#include "model/model.h"

/* Reads path, a config.json or the directory that holds one. Accepts
 * transformers 4 (rope_theta, rope_scaling with "rope_type" or "type") and 5
 * (rope_parameters). Refuses, by name and value, what the model code would not
 * compute as transformers does: other architectures, activations or rope
 * types, sliding windows, sizes that do not divide, numbers that are not
 * finite or not positive. PP_EXIT_INPUT with file and JSON pointer. */
int pp_model_read(const char *path, struct pp_model *m,
                  struct pp_err *err) PP_MUST_USE;

/* The text of path (a config.json, or the directory that holds one) with its
 * dtype, under the name it has there, set to dtype ("float32"): the weights
 * beside it are of that type, and transformers would convert them otherwise.
 * *text is malloc'ed. */
int pp_config_text(const char *path, const char *dtype, char **text,
                   struct pp_err *err) PP_MUST_USE;

#endif
