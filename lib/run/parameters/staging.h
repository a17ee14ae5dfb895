/* SPDX-License-Identifier: MIT */
/* staging - a rank's tensors on their way between its device and the host: in
 * the device's memory where that is the host's, else through a buffer, one
 * tensor at a time. Not for use inside a step. */
#ifndef PP_RUN_PARAMETERS_STAGING_H
#define PP_RUN_PARAMETERS_STAGING_H

#include "run/parameters/parameters.h"

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
