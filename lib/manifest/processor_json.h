/* SPDX-License-Identifier: MIT */
/* processor_json - a Hugging Face preprocessor_config.json: how images become
 * the patches of a model. */
#ifndef PP_MANIFEST_PROCESSOR_JSON_H
#define PP_MANIFEST_PROCESSOR_JSON_H

#include <stdint.h>

#include "base/err.h"
#include "base/modality.h"

/* The image processor of a model. A size of 0 is not in the file. */
struct pp_image_processor {
    uint32_t patch, merge, frames;
    struct pp_pixel_map map;
};

/* Reads path: the file, the processor_config.json of transformers 5, or the
 * directory that holds one of them. Fails with PP_EXIT_INPUT, file and JSON
 * pointer. */
int pp_processor_read(const char *path, struct pp_image_processor *p,
                      struct pp_err *err) PP_MUST_USE;

#endif
