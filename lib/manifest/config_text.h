/* SPDX-License-Identifier: MIT */
/* config_text - a config.json to go along with a checkpoint. */
#ifndef PP_MANIFEST_CONFIG_TEXT_H
#define PP_MANIFEST_CONFIG_TEXT_H

#include "base/err.h"

/* The text of path (a config.json, or the directory that holds one) with its
 * dtype, under the name it has there, set to dtype ("float32"): the weights
 * beside it are of that type, and transformers would convert them otherwise.
 * *text is malloc'ed. */
int pp_config_text(const char *path, const char *dtype, char **text,
                   struct pp_err *err) PP_MUST_USE;

#endif
