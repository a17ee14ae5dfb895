/* SPDX-License-Identifier: MIT */
/* inventory - all weights of a unit, for every architecture that can be
 * planned: how many there are, how parallel ranks share them, and which of them
 * a token is multiplied by. Numbers of parameters and operations are sums over
 * it.
 *
 * Names and places of single tensors are pp_unit_params', for the architectures
 * that are trained. */
#ifndef PP_MODEL_INVENTORY_H
#define PP_MODEL_INVENTORY_H

#include "model/model.h"

enum pp_share {
    PP_SHARE_NONE,        /* every rank has it whole */
    PP_SHARE_TENSOR,      /* the ranks of a tensor-parallel group divide it */
    PP_SHARE_EXPERTS,     /* those of an expert-parallel group divide it by
                             experts, and a tensor-parallel group each of them */
    PP_SHARE_EXPERT_SUMS, /* an expert-parallel group alone: what is added to
                             the sum of a tensor-parallel group's products */
    PP_N_SHARES
};

/* Tensors of one shape: (rows, cols), cols 1 for a vector. */
struct pp_weight_group {
    size_t rows, cols, count;
    size_t used; /* of count, those that a token is multiplied by */
    enum pp_share share;
};

/* Enough for the weights of any unit. */
#define PP_MAX_WEIGHT_GROUPS (PP_N_LAYER_PARAMS + 22)

/* Fills the unit's weights; returns their number. Not of a table's units, of
 * which only the number of parameters is known. */
size_t pp_unit_inventory(const struct pp_model *m, struct pp_unit_id u,
                         struct pp_weight_group out[PP_MAX_WEIGHT_GROUPS]);

/* A list of groups that is being filled. used is what a matrix gets: 1, or 0
 * where nothing is multiplied by it. */
struct pp_weight_list {
    struct pp_weight_group *at;
    size_t n, used;
};
void pp_weights_add_vector(struct pp_weight_list *l, size_t n,
                           enum pp_share share);
void pp_weights_add_matrix(struct pp_weight_list *l, size_t rows, size_t cols,
                           enum pp_share share);

/* Elements of the unit's weights that are shared in each of these ways. */
void pp_unit_shares(const struct pp_model *m, struct pp_unit_id u,
                    uint64_t out[PP_N_SHARES]);

/* pp_model_n_params before it is known that the sum fits. */
double pp_model_estimate(const struct pp_model *m);

#endif
