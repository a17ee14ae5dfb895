/* SPDX-License-Identifier: MIT */
/* precision - the element types, and sizes in bytes with each of them. */
#ifndef PP_MODEL_PRECISION_H
#define PP_MODEL_PRECISION_H

#include "model/shard.h"

struct pp_precision {
    const char *name;         /* "bf16" */
    const char *hugging_face; /* the name in config.json: "bfloat16" */
    size_t element_bytes;     /* weights, activations, their gradients */
    size_t accumulator_bytes; /* statistics, weight gradients, moments; and
                                 master weights if elements are narrower */
    /* Weight gradients have elements' type; so have moments, and of master
     * weights a rank keeps the bits alone that elements lack. */
    bool narrow_gradients, narrow_moments;
};

/* Return the bytes of a weight gradient, and of AdamW's state of a weight. */
static inline size_t pp_gradient_bytes(const struct pp_precision *p)
{
    return p->narrow_gradients ? p->element_bytes : p->accumulator_bytes;
}

static inline size_t pp_optimizer_bytes(const struct pp_precision *p)
{
    size_t values = p->element_bytes < p->accumulator_bytes ? 3 : 2;
    return values *
           (p->narrow_moments ? p->element_bytes : p->accumulator_bytes);
}

/* The table ends with a NULL name; the first entry is the default. */
extern const struct pp_precision pp_precisions[];

/* Finds a precision by its name. Returns NULL if there is none, or no name. */
const struct pp_precision *pp_precision_find(const char *name);

/* Returns the bytes of one block of the unit (model.h) for each of its rows: a
 * token, or what pp_unit_rows says. Units of an encoder without a list of
 * tensors have bytes per token of the language model. */
size_t pp_unit_saved_bytes(const struct pp_shard *s, struct pp_unit_id u,
                           enum pp_recompute r, enum pp_saved_block block,
                           const struct pp_precision *p);

#endif
