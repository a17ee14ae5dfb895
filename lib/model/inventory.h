/* SPDX-License-Identifier: MIT */
/* inventory - all weights of a unit, for every architecture: their shapes, how
 * parallel ranks share them, and which of them a token is multiplied by. They
 * follow from pp_unit_params, and the numbers of parameters and operations are
 * sums over them. */
#ifndef PP_MODEL_INVENTORY_H
#define PP_MODEL_INVENTORY_H

#include "model/model.h"

enum pp_share {
    PP_SHARE_NONE,        /* every rank has it whole */
    PP_SHARE_TENSOR,      /* tensor-parallel ranks divide it */
    PP_SHARE_EXPERTS,     /* expert-parallel ranks divide the experts, and
                             tensor-parallel ranks divide each expert */
    PP_SHARE_EXPERT_SUMS, /* only expert-parallel ranks divide it: a bias that
                             is added to the sum of the tensor-parallel ranks'
                             products */
    PP_N_SHARES
};

/* Tensors of one shape: (rows, cols), with cols 1 for a vector. */
struct pp_weight_group {
    size_t slot; /* in the table of the unit */
    size_t rows, cols, count;
    bool trained; /* a step may change them */
    bool mapped;  /* tensor.h */
    size_t used;  /* number of them that a token is multiplied by */
    enum pp_share share;
    size_t n_parts; /* fewer than the ranks that divide it: each of these has a
                       whole part */
};

/* Fills the unit's weights; returns the number of groups. The model has no
 * table: a table only has the number of parameters. */
size_t pp_unit_inventory(const struct pp_model *m, struct pp_unit_id u,
                         struct pp_weight_group out[PP_N_LAYER_PARAMS]);

/* A product reads so many elements of a mapped matrix at a time, or a whole
 * row. pp_model_widened returns the most of the model; 0: nothing is mapped. */
enum { PP_WIDENED = 1 << 20 };
size_t pp_model_widened(const struct pp_model *m);

/* Returns about pp_model_n_params, for a model whose sum may overflow. */
double pp_model_estimate(const struct pp_model *m);

#endif
