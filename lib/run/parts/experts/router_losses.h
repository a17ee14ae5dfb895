/* SPDX-License-Identifier: MIT */
/* router_losses - auxiliary losses of routers: one that balances the experts,
 * and one of the size of logits.
 *
 * Tokens come in parts. In a part of T tokens, of which n[e] chose expert e and
 * gave it the probabilities P[e] in sum, of E experts,
 *
 *   balance  E sum n[e] P[e] / T^2        size  sum of (log sum exp)^2 / T
 *
 * and the loss of a layer is the sum over the parts of the step, each with its
 * weight. Weights add up to 1 over the step, whatever its microbatches, and
 * padding is in no part. n[e] has no gradient. */
#ifndef PP_RUN_PARTS_EXPERTS_ROUTER_LOSSES_H
#define PP_RUN_PARTS_EXPERTS_ROUTER_LOSSES_H

#include <stdbool.h>

#include "base/err.h"
#include "experts.h"
#include "model/expert_loads.h"
#include "run/settings/settings.h"

/* A rule of enum pp_router_rule. */
struct pp_router_rule_row {
    bool documents;  /* parts are documents; else microbatches */
    bool equal;      /* their weights are equal; else as their tokens */
    bool per_choice; /* balance is divided by the experts of a token */
};
extern const struct pp_router_rule_row pp_router_rules[];

/* The losses in a step. F adds the sums of this rank, without coefficients. */
struct pp_router_losses {
    const struct pp_router_options *options;
    double tokens, parts; /* of the step, on all ranks */
    double balance, size; /* sums over layers and microbatches */
    double dropped;       /* choices of experts that have no room */
    double rounds;        /* the most of a layer of experts; whether or not the
                             job has losses */
    double load;          /* the most tokens of an expert in a
                             microbatch, over the mean of all */
    /* By layer with experts, for a profile, or NULL. F adds the tokens of each
     * microbatch. */
    struct pp_expert_loads *loads;
    double *tokens_of; /* (experts) room for the tokens of a microbatch */
};

/* Layers of experts read this of a microbatch. given writes the experts that
 * the tokens get in a layer, (tokens, K), the best first, and -1 for padding;
 * then the router chooses none. chosen takes what they got. Layers with experts
 * count. Both may be NULL. */
struct pp_expert_choices {
    int (*given)(void *ctx, size_t layer, int32_t *experts, struct pp_err *err);
    int (*chosen)(void *ctx, size_t layer, const struct pp_routing *r,
                  struct pp_err *err);
    void *ctx;
    unsigned char *told; /* what layers of experts on a GPU told the host, in
                            its memory; or NULL */
    double *rounds; /* the most in which rows go to the experts of a layer; or
                       NULL */
    struct pp_router_losses *router; /* of a step that trains; or NULL. Slices
                                        have no losses. */
};

#endif
