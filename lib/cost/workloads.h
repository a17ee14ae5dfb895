/* SPDX-License-Identifier: MIT */
/* workloads - the sizes of microbatches, of which the costs of actions follow:
 * tokens and attended pairs, and as much for each encoder.
 *
 * The costs of an encoder's units are given per token and attended pair of the
 * language model, for the items that the plan assumed (model/vision.h). So its
 * items in the data are counted as the tokens and pairs with as many. */
#ifndef PP_COST_WORKLOADS_H
#define PP_COST_WORKLOADS_H

#include "cost/plan.h"

/* The size of a microbatch, or of a slice of it. Units of an encoder take its
 * own tokens and pairs: of a microbatch with as many items, on the rank that
 * has most rows, as the plan assumes. If its items are not counted they are the
 * same. */
struct pp_workload {
    double tokens, pairs;
    struct {
        double tokens, pairs;
    } items[PP_MAX_ENCODERS];
};

/* Returns that of tokens and pairs with as many items as the plan assumes. */
struct pp_workload pp_workload_of(double tokens, double pairs);

/* Several of them. Workloads of an encoder whose items are not counted are
 * NULL. */
struct pp_workloads {
    double *tokens, *pairs;
    struct {
        double *tokens, *pairs;
    } items[PP_MAX_ENCODERS];
};

struct pp_workload pp_workloads_at(const struct pp_workloads *l, size_t i);

/* Makes room for n of them, zeroed, with the items of so many encoders. */
void pp_workloads_init(struct pp_workloads *l, size_t n, size_t n_encoders);
void pp_workloads_finish(struct pp_workloads *l);

/* Sets what units of an encoder take for so many rows on the rank that has
 * most, and the sum of the squares of the rows of each item. They change
 * nothing if the plan has no items for the encoder. Windows and chunks count as
 * whole items do. */
void pp_workloads_set_items(struct pp_workloads *l, size_t i, struct pp_plan p,
                            size_t encoder, double rows, double squares);

#endif
