/* SPDX-License-Identifier: MIT */
/* workloads - the sizes of microbatches, of which the costs of actions follow:
 * tokens and attended pairs of each component.
 *
 * The costs of an encoder's units are given per token and attended pair of the
 * language model, for the items that the plan assumed (model/vision.h). So its
 * items in the data are counted as the tokens and pairs with as many. */
#ifndef PP_COST_WORKLOADS_H
#define PP_COST_WORKLOADS_H

#include "cost/plan.h"

/* The size of a microbatch, or of a slice of it, by component: units of an
 * encoder take its own tokens and pairs, of a microbatch with as many items, on
 * the rank that has most rows, as the plan assumes. Units of a generator take
 * the language model's. */
struct pp_workload {
    struct {
        double tokens, pairs;
    } of[PP_LANGUAGE + 1];
};

/* Returns the size with as many items as the plan assumes. */
struct pp_workload pp_workload_of(double tokens, double pairs);

/* Returns the bytes that a stage passes on of a microbatch of that size; an
 * empty one passes on its input. One that ends with the last of the encoders
 * also has the features of the others that end in it. */
double pp_plan_passed(struct pp_plan p, int stage, struct pp_workload l);

/* Sets what units of an encoder take for so many rows on the rank that has
 * most, and the sum of the squares of the rows of each item. They change
 * nothing if the plan has no items for the encoder. Windows and chunks count as
 * whole items do. */
void pp_workload_set_items(struct pp_workload *l, struct pp_plan p,
                           size_t encoder, double rows, double squares);

#endif
