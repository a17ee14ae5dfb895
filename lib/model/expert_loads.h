/* SPDX-License-Identifier: MIT */
/* expert_loads - how many tokens each expert of a layer got in a run, and how
 * uneven that makes the work of ranks that divide the experts.
 *
 * Such ranks wait for the one with most tokens in every microbatch. So their
 * time is the sum of the most over the microbatches, not the most of the sum.
 */
#ifndef PP_MODEL_EXPERT_LOADS_H
#define PP_MODEL_EXPERT_LOADS_H

#include <stddef.h>

struct pp_mesh;

struct pp_expert_loads {
    size_t n_experts; /* 0: not known */
    double *tokens;   /* (n_experts) */
    /* (pp_n_divisors(n_experts)) If so many ranks divide the experts, each
     * divisor in turn, the rows at the rank with most, summed over
     * microbatches. */
    double *fullest;
};

/* Returns the number of divisors of n > 0. */
size_t pp_n_divisors(size_t n);

/* Returns how many microbatches go through a layer of experts at a time: the
 * microbatches of the data-parallel ranks that divide them. */
size_t pp_expert_group(const struct pp_mesh *x);

/* Adds the tokens (n_experts) of a microbatch. */
void pp_expert_loads_add(struct pp_expert_loads *l, const double *tokens);

/* Returns the work of the fullest of `ranks` ranks over the mean, if `group`
 * microbatches go through the layer at a time; 1 if no expert got a token.
 * ranks divides n_experts. What a microbatch is more uneven than all of them
 * together falls with the root of the group, as that of independent draws. */
double pp_expert_loads_skew(const struct pp_expert_loads *l, size_t ranks,
                            size_t group);

#endif
