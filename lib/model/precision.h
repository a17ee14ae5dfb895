/* SPDX-License-Identifier: MIT */
/* precision - the words of --dtype, and what each makes of a size in bytes. */
#ifndef PP_MODEL_PRECISION_H
#define PP_MODEL_PRECISION_H

#include "model/model.h"

struct pp_precision {
    const char *name;         /* "bf16" */
    const char *hugging_face; /* as config.json has it: "bfloat16" */
    size_t element_bytes;     /* weights, activations, their gradients */
    size_t accumulator_bytes; /* statistics, weight gradients, moments, and
                                 master weights where elements are narrower */
};

/* All, ended by a NULL name; the first is the default. */
extern const struct pp_precision pp_precisions[];

/* The one of that name, or NULL. */
const struct pp_precision *pp_precision_find(const char *name);

/* Bytes that AdamW trains one parameter with: weight, gradient, two moments,
 * and a master weight. */
size_t pp_precision_trained_bytes(const struct pp_precision *p);

/* Bytes per token of a whole block of the unit (model/model.h). */
size_t pp_unit_saved_bytes(const struct pp_model *m, struct pp_unit_id u,
                           enum pp_recompute r, enum pp_saved_block block,
                           const struct pp_precision *p);

#endif
