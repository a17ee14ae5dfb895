/* SPDX-License-Identifier: MIT */
/* weights - initial values of parameters: from a seed or from Hugging Face
 * tensors; and their way between device and host. */
#ifndef PP_RUN_PARAMETERS_WEIGHTS_H
#define PP_RUN_PARAMETERS_WEIGHTS_H

#include <stdint.h>

#include "data/tensors/safetensors.h"
#include "run/parameters/parameters.h"

/* Initialises like transformers: matrices normal(0, init_range), some of them
 * smaller (tensor.h), norm weights 1, biases 0. The values of a tensor depend
 * on seed and name alone, so every split gets the same. */
int pp_weights_init(struct pp_parameters *p, const struct pp_model *m,
                    uint64_t seed, struct pp_err *err) PP_MUST_USE;

/* Reads every tensor of p by name and converts it to its element type. A tied
 * model may have its embedding as 'lm_head.weight'. Fails with PP_EXIT_INPUT if
 * a tensor is missing or has another shape ("'lm_head.weight' is [10, 4],
 * expected [16, 4]"). */
int pp_weights_load(struct pp_parameters *p, const struct pp_model *m,
                    const struct pp_tensors *t, struct pp_err *err) PP_MUST_USE;

/* Returns where the file has the rows of a mapped tensor of p from `first` on,
 * if it has them without gaps and in the type of the run; else NULL. */
const void *pp_weights_in_place(const struct pp_parameters *p,
                                const struct pp_parameter *t, size_t first);

/* Writes n rows of a mapped tensor of p in the type of the run. */
int pp_weights_widen(const struct pp_parameters *p,
                     const struct pp_parameter *t, size_t first, size_t n,
                     void *to, struct pp_err *err) PP_MUST_USE;

/* Checks names, shapes and types of a whole model, without reading values. */
int pp_weights_check(const struct pp_model *m, const struct pp_tensors *t,
                     struct pp_err *err) PP_MUST_USE;

/* Checks that a tied model has no head that differs from its embedding.
 * transformers would keep both. Reads the values if there are two tensors. */
int pp_weights_check_tied(const struct pp_model *m, const struct pp_tensors *t,
                          struct pp_err *err) PP_MUST_USE;

/* Sets *sum to a checksum of a base of adapters: of the names and shapes of
 * tensors that are no adapters, and of the first bytes of each, PP_BASE_BYTES
 * or fewer. */
enum { PP_BASE_BYTES = 4096 };
int pp_weights_base(const struct pp_tensors *t, uint64_t *sum,
                    struct pp_err *err) PP_MUST_USE;

/* Returns how many tensors have no place in the model, and the name of the
 * first one; of an adapter's, if one of them has none. */
size_t pp_weights_unused(const struct pp_model *m, const struct pp_tensors *t,
                         const char **first);

/* Returns the elements of the tensor in that block (device memory), or NULL. */
void *pp_parameter_data(const struct pp_parameter *t,
                        enum pp_weights_block block);

/* Returns the name of the tensor in files: that of the embedding for a tied
 * head. */
const char *pp_parameter_file_name(const struct pp_parameter *t);

/* Like pp_weights_load, for any block. For PP_BLOCK_W it sets the master
 * weights too, and rounds them to the weights. */
int pp_weights_read(struct pp_parameters *p, enum pp_weights_block block,
                    const struct pp_tensors *t, struct pp_err *err) PP_MUST_USE;

/* Moves the tensors of a rank between its device and the host, one at a time:
 * in place if the device memory is host memory, else through a buffer. Not for
 * use inside a step. */
struct pp_staging {
    const struct pp_parameters *params; /* borrowed */
    void *buf; /* room for the largest tensor; NULL if not needed */
};

int pp_staging_init(struct pp_staging *s, const struct pp_parameters *p,
                    struct pp_err *err) PP_MUST_USE;
void pp_staging_finish(struct pp_staging *s);

/* Returns the elements of the tensor in host memory, valid until the next call.
 * Returns NULL with *err filled on failure. */
const void *pp_staging_read(struct pp_staging *s, const struct pp_parameter *t,
                            enum pp_weights_block block, struct pp_err *err);

#endif
