/* SPDX-License-Identifier: MIT */
/* config_json - a Hugging Face config.json as a struct pp_model. */
#ifndef PP_MANIFEST_CONFIG_JSON_H
#define PP_MANIFEST_CONFIG_JSON_H

#include "base/err.h"
#include "model/model.h"

/* Reads path, a config.json or the directory that holds one. Accepts
 * transformers 4 (rope_theta, rope_scaling with "rope_type" or "type") and 5
 * (rope_parameters). Fails with PP_EXIT_INPUT, file and JSON pointer if the
 * model code would not compute what transformers computes: another
 * architecture, activation or rope type, a sliding window, sizes that do not
 * divide, numbers that are not finite or not positive. */
int pp_model_read(const char *path, struct pp_model *m,
                  struct pp_err *err) PP_MUST_USE;

/* Returns the text of path (a config.json, or the directory that holds one)
 * with its dtype set to dtype ("float32"), under the key that the file uses. A
 * checkpoint needs this because transformers converts the weights to the type
 * that config.json states. Of a whole Qwen2.5-Omni it is the configuration of
 * the thinker. The caller frees *text. */
int pp_config_text(const char *path, const char *dtype, char **text,
                   struct pp_err *err) PP_MUST_USE;

#endif
