/* SPDX-License-Identifier: MIT */
/* stage_costs - what actions cost, from the stages of a manifest: in
 * seconds where the manifest has a profile, else in floating-point operations,
 * which stand for time. */
#ifndef PP_MANIFEST_STAGE_COSTS_H
#define PP_MANIFEST_STAGE_COSTS_H

#include "manifest/manifest.h"

struct pp_stage_costs {
    const struct pp_graph *graph;
    const struct pp_manifest_stage *stages;
    double *head_flops; /* per stage: of the head in it, a token */
    const struct pp_profile *profile; /* NULL: there is none */
    /* With it, per stage: the sums of its head, which makes its products again,
     * and of its other units. */
    struct pp_unit_seconds *heads, *others;
};

/* The manifest, which has stages, must outlive the costs. */
int pp_stage_costs_init(struct pp_stage_costs *c, const struct pp_manifest *m,
                        struct pp_err *err) PP_MUST_USE;

/* Whether any stage says what it costs. */
bool pp_stage_costs_known(const struct pp_stage_costs *c);

/* Of an action on so many tokens, which attend so many pairs. What is made
 * again is the input gradient's. A stage without input gradient does nothing at
 * I and all of its backward at W. A message (SEND) takes time where there is a
 * profile, everything else none. */
double pp_stage_time(const struct pp_stage_costs *c, struct pp_action a,
                     double tokens, double pairs);

/* The tokens of each of n slices of a microbatch, which are equal to a token;
 * padding counts. */
void pp_slice_tokens(int64_t n, int64_t total, double *tokens);

/* Adds the pairs of a sequence at place at of a microbatch of total tokens to
 * the slices that it lies in: a token attends to itself and to those before
 * it. */
void pp_slice_pairs(int64_t n, int64_t total, int64_t at, int64_t length,
                    double *pairs);

/* Of forward and backward through all units of the model, whose section is
 * there: for each token, and for each attended pair. */
void pp_model_cost(const struct pp_manifest_model *m, double *per_token,
                   double *per_pair);

/* Seconds of a step beside its schedule; 0 without a profile. */
double pp_step_rest(const struct pp_stage_costs *c);

/* Accepts a zeroed struct. */
void pp_stage_costs_finish(struct pp_stage_costs *c);

#endif
