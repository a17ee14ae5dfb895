/* SPDX-License-Identifier: MIT */
/* parameters - the tensors that one rank trains: weights, gradients,
 * optimizer moments and master weights, in five blocks of device memory. */
#ifndef PP_RUN_PARAMETERS_PARAMETERS_H
#define PP_RUN_PARAMETERS_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "model/model.h"
#include "device/device.h"

/* The blocks. Weights have the run's element type, the others the type of what
 * is accumulated (kernels.h). */
enum pp_weights_block {
    PP_BLOCK_W,
    PP_BLOCK_G,
    PP_BLOCK_M,
    PP_BLOCK_V,
    PP_BLOCK_MASTER, /* where elements are narrower than accumulated values */
    PP_N_BLOCKS
};

struct pp_parameter {
    struct pp_param info; /* Hugging Face name and shape */
    size_t n;             /* elements: rows * cols */
    size_t order;         /* place among all tensors of the model: units in
                             order, slots ascending. Norms add in this order */
    size_t unit, slot;    /* index of the unit in the model; its slot */
    int stage, copy;      /* of the stage: which copy of the weights */
    bool tied_copy; /* the head of a tied model: loads, initialises and saves
                       as model.embed_tokens.weight, which is written once */
    void *w, *g, *m, *v, *master; /* (n) each; all but w may be NULL */
};

/* What a rank holds. q, k and v of a layer are contiguous in w and in g, as
 * are their biases, gate and up, and gate's and up's biases. */
struct pp_parameters {
    struct pp_parameter *at; /* ascending by copy, then by order */
    size_t n;
    size_t element_bytes, accumulator_bytes;
    size_t n_elements; /* of each block: all tensors, and the gaps that let
                          every unit begin on a cache line */
    void *blocks[PP_N_BLOCKS]; /* zeroed; NULL when not asked for */
    struct pp_device *device;  /* whose memory this is; NULL: the CPU's */
};

enum pp_parameter_blocks { PP_WITH_GRADS = 1, PP_WITH_MOMENTS = 2 };

/* A run of units on one stage. */
struct pp_unit_range {
    int stage;
    size_t first, n;
    int copy; /* of the weights, from 0; there may be a second one */
};

/* Allocates the tensors of the given ranges, ascending within each copy, and
 * the copies ascending. flags of enum pp_parameter_blocks. */
int pp_parameters_init(struct pp_parameters *p, const struct pp_model *m,
                       const struct pp_unit_range *ranges, size_t n_ranges,
                       size_t element_bytes, int flags,
                       struct pp_err *err) PP_MUST_USE;

/* The same in the memory of a device, which outlives p, where what is
 * accumulated has a type of its own. With gradients come master weights, where
 * elements are narrower. */
struct pp_parameter_memory {
    struct pp_device *device; /* NULL: the CPU's */
    size_t element_bytes, accumulator_bytes;
};
int pp_parameters_init_on(struct pp_parameters *p, const struct pp_model *m,
                          const struct pp_unit_range *ranges, size_t n_ranges,
                          const struct pp_parameter_memory *where, int flags,
                          struct pp_err *err) PP_MUST_USE;

/* Bytes of an element of that block. */
static inline size_t pp_parameters_bytes(const struct pp_parameters *p,
                                         enum pp_weights_block block)
{
    return block == PP_BLOCK_W ? p->element_bytes : p->accumulator_bytes;
}

/* The tensor of that copy, unit and slot, or NULL. */
struct pp_parameter *pp_parameters_find(const struct pp_parameters *p, int copy,
                                        size_t unit, size_t slot);

/* Whether the tensor stands for its parameter where each counts once, as in a
 * norm or a file: it is no second copy and not the head of a tied model. */
bool pp_parameter_counts(const struct pp_parameter *t);

/* The gradients of all tensors of a stage, which follow each other as they do
 * in every copy of the stage; *n of elements, the zeros between units
 * included. NULL and 0 where there are none. */
void *pp_parameters_stage_grads(const struct pp_parameters *p, int stage,
                                size_t *n);

/* Frees; accepts a zeroed struct. */
void pp_parameters_finish(struct pp_parameters *p);

#endif
