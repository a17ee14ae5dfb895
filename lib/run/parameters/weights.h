/* SPDX-License-Identifier: MIT */
/* weights - where parameters come from: a seed, or Hugging Face tensors. */
#ifndef PP_RUN_PARAMETERS_WEIGHTS_H
#define PP_RUN_PARAMETERS_WEIGHTS_H

#include <stdint.h>

#include "data/safetensors.h"
#include "run/parameters/parameters.h"

/* As transformers initialises: matrices normal(0, init_range), norm weights 1,
 * biases 0. A tensor's values depend on seed and name alone, so every split
 * gets the same. */
int pp_weights_init(struct pp_parameters *p, const struct pp_model *m,
                    uint64_t seed, struct pp_err *err) PP_MUST_USE;

/* Reads every tensor of p by name, converting to its element type. The head of
 * a tied model takes the embedding, as transformers has it, even when the file
 * has both. PP_EXIT_INPUT names a tensor that is missing or has another shape
 * ("'lm_head.weight' is [10, 4], expected [16, 4]"). */
int pp_weights_load(struct pp_parameters *p, const struct pp_model *m,
                    const struct pp_tensors *t, struct pp_err *err) PP_MUST_USE;

/* The same questions about a whole model, without reading: what ppsplit asks
 * when weights are there. */
int pp_weights_check(const struct pp_model *m, const struct pp_tensors *t,
                     struct pp_err *err) PP_MUST_USE;

/* The same about one tensor, whatever its name: shape and dtype. */
int pp_weights_check_tensor(const struct pp_param *p, const struct pp_tensor *t,
                            struct pp_err *err) PP_MUST_USE;

/* The tensor's elements in that block, device memory, or NULL. */
void *pp_parameter_data(const struct pp_parameter *t,
                        enum pp_weights_block block);

/* The name under which files have it: the embedding's for a tied head. */
const char *pp_parameter_file_name(const struct pp_parameter *t);

/* pp_weights_load for any block. Reading the weights sets master weights too,
 * and rounds them. */
int pp_weights_read(struct pp_parameters *p, enum pp_weights_block block,
                    const struct pp_tensors *t, struct pp_err *err) PP_MUST_USE;

/* A rank's tensors on their way between its device and the host: in the
 * device's memory if that is the host's, else through a buffer, one tensor at a
 * time. Not for use inside a step. */
struct pp_staging {
    const struct pp_parameters *params; /* borrowed */
    void *buf; /* the largest tensor's, or NULL where none is needed */
};

int pp_staging_init(struct pp_staging *s, const struct pp_parameters *p,
                    struct pp_err *err) PP_MUST_USE;
void pp_staging_finish(struct pp_staging *s);

/* The tensor's elements for the host to read, until the next call. NULL with
 * *err filled on failure. */
const void *pp_staging_read(struct pp_staging *s, const struct pp_parameter *t,
                            enum pp_weights_block block, struct pp_err *err);

/* Where the host writes the tensor's elements, as accumulated values whatever
 * the block; then pp_staging_store brings them to the block. Into the weights
 * they go rounded, and as they are into the master weights. */
void *pp_staging_open(struct pp_staging *s, const struct pp_parameter *t,
                      enum pp_weights_block block);
int pp_staging_store(struct pp_staging *s, const struct pp_parameter *t,
                     enum pp_weights_block block,
                     struct pp_err *err) PP_MUST_USE;

#endif
