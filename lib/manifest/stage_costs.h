/* SPDX-License-Identifier: MIT */
/* stage_costs - the cost of an action, from the stages of a manifest.
 *
 * It is in seconds if the manifest has a profile, and otherwise in
 * floating-point operations, which stand for time. */
#ifndef PP_MANIFEST_STAGE_COSTS_H
#define PP_MANIFEST_STAGE_COSTS_H

#include "manifest/workloads.h"

struct pp_stage_costs {
    const struct pp_graph *graph;
    const struct pp_manifest_stage *stages;
    double *head_flops;               /* by stage: its head's, per token */
    const struct pp_profile *profile; /* NULL if there is none */
    /* By stage, if there is a profile: its head, which recomputes its products,
     * and the sums of its units of each encoder and of the others. */
    struct pp_unit_seconds *heads, *items[PP_MAX_ENCODERS], *others;
    const struct pp_manifest_unit *units; /* of the model; may be NULL */
    /* The first units are those of encoders whose items are counted, each up to
     * its end; 0: there are no more of them. */
    size_t encoder_end[PP_MAX_ENCODERS];
    size_t language; /* the first unit of the language model */
    bool has_frozen;
    /* By stage, if there is a profile. */
    struct {
        double reduced;  /* bytes that REDUCE_GRAD moves to a rank */
        double gathered; /* that UNSHARD moves */
    } * moved;
    /* By stage, if there is a profile: of the bridge behind it
     * (pp_layout_busier_end), else 1. */
    double *busier_end;
};

/* The manifest, which has stages, must outlive the costs. */
int pp_stage_costs_init(struct pp_stage_costs *c, const struct pp_manifest *m,
                        struct pp_err *err) PP_MUST_USE;

/* Returns true if any stage has a cost. */
bool pp_stage_costs_known(const struct pp_stage_costs *c);

/* Returns the cost of an action on a microbatch or slice of that size. The time
 * of a recomputation is in I. A stage without an input gradient does nothing at
 * I and its whole backward at W. SENDs, REDUCE_GRAD and UNSHARD take time if
 * there is a profile; other actions that do not compute take none. */
double pp_stage_time(const struct pp_stage_costs *c, struct pp_action a,
                     struct pp_workload l);

/* Sets the tokens of each of n slices of a microbatch of total tokens, padding
 * included. They differ by at most one. */
void pp_slice_tokens(int64_t n, int64_t total, double *tokens);

/* Returns the number of the slowest of n context-parallel ranks with so many
 * tokens and attended pairs: that whose forward takes longest. */
size_t pp_stage_slowest(const struct pp_stage_costs *c, const double *tokens,
                        const double *pairs, size_t n);

/* Adds the attended pairs of one sequence to pairs, by slice. The sequence
 * starts at token at of a microbatch of total tokens in n slices. A token
 * attends to itself and to the tokens before it. */
void pp_slice_pairs(int64_t n, int64_t total, int64_t at, int64_t length,
                    double *pairs);

/* Returns the operations of forward and backward through all units: per token,
 * and per attended pair. */
void pp_model_cost(const struct pp_manifest_model *m, double *per_token,
                   double *per_pair);

/* Returns the seconds of a step outside its schedule, or 0 if there is no
 * profile. */
double pp_step_rest(const struct pp_stage_costs *c);

/* Frees the sums. c may be zeroed. */
void pp_stage_costs_finish(struct pp_stage_costs *c);

#endif
