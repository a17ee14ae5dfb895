/* SPDX-License-Identifier: MIT */
/* parameters - the tensors that one rank trains: weights, gradients and
 * optimizer moments, in four blocks. */
#ifndef PP_RUN_PARAMETERS_H
#define PP_RUN_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "plan/model.h"

struct pp_parameter {
    struct pp_param info; /* Hugging Face name and shape */
    size_t n;             /* elements: rows * cols */
    size_t order;         /* place among all tensors of the model: units in
                             order, slots ascending. Norms add in this order */
    size_t unit, slot;    /* index of the unit in the model; its slot */
    int stage, copy;      /* of the stage: which copy of the weights */
    bool tied_copy; /* the head of a tied model: loads, initialises and saves
                       as model.embed_tokens.weight, which is written once */
    void *w, *g, *m, *v; /* (n) elements each; g, m, v may be NULL */
};

/* What a rank holds. q, k and v of a layer are contiguous in w and in g, as
 * are their biases, gate and up, and gate's and up's biases. */
struct pp_parameters {
    struct pp_parameter *at; /* ascending by copy, then by order */
    size_t n;
    size_t element_bytes;
    size_t n_elements; /* of each block: all tensors, and the gaps that let
                          every unit begin on a cache line */
    void *blocks[4];   /* w, g, m, v; zeroed; NULL when not asked for */
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
