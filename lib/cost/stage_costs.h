/* SPDX-License-Identifier: MIT */
/* stage_costs - the cost of an action, from the stages of a plan.
 *
 * It is in seconds if the plan has a profile, and otherwise in floating-point
 * operations, which stand for time. */
#ifndef PP_COST_STAGE_COSTS_H
#define PP_COST_STAGE_COSTS_H

#include "cost/workloads.h"
#include "model/cost.h"
#include "schedule/ir/schedule.h"

struct pp_stage_costs {
    struct pp_plan plan;
    size_t language; /* the first unit of the language model */
    /* By stage. */
    struct pp_stage_cost {
        double head_flops; /* per token */
        /* All below if there is a profile. The head recomputes its products;
         * the others are sums over the other units by pp_workload.of. */
        struct pp_unit_seconds head, of[PP_LANGUAGE + 1];
        double updated; /* parameters that a rank updates */
        double update;  /* in the update: these, and the share of one that each
                           other takes */
        /* Bytes that REDUCE_GRAD and UNSHARD move to a rank, of dense weights
         * and of experts. */
        double reduced[2], gathered[2];
        struct pp_link data[2]; /* the links of both; REDUCE_GRAD may take two
                                   rounds */
        struct pp_link passed;  /* of messages to and from the stages that read
                                   this one */
        double busier_end;      /* of the bridge behind the stage
                                   (pp_layout_busier_end), else 1 */
    } * stages;
};

/* The members of the plan must outlive the costs. */
void pp_stage_costs_init(struct pp_stage_costs *c, struct pp_plan p);

/* Returns true if any stage has a cost. */
bool pp_stage_costs_known(const struct pp_stage_costs *c);

/* Returns the cost of an action on a microbatch or slice of that size, if pprun
 * makes the head's logits so. The time of a
 * recomputation is in I. A stage without an input gradient does nothing at
 * I and its whole backward at W. SENDs, REDUCE_GRAD and UNSHARD take time if
 * there is a profile; other actions that do not compute take none. */
double pp_stage_time(const struct pp_stage_costs *c, struct pp_action a,
                     struct pp_workload l, enum pp_logits logits);

/* Returns the seconds in which ranks gather the weights of a stage that others
 * have. */
double pp_stage_gather(const struct pp_stage_costs *c, int stage);

/* Returns the seconds in which SYNC_COPIES adds the gradients of a stage over
 * the ranks that hold copies of it: as a collective, on the slowest of the
 * links between the first of them and the others. 0 without a profile. */
double pp_stage_copied(const struct pp_stage_costs *c, int stage);

/* Fills in how the last B of a stage makes the gradients that REDUCE_GRAD takes
 * beside it, of a microbatch of that size. The caller frees made->left. */
void pp_stage_made(const struct pp_stage_costs *c, int stage,
                   struct pp_workload l, enum pp_logits logits,
                   struct pp_made *made);

/* Returns the first token of slice q of a plan's microbatch of so many. */
static inline int64_t pp_plan_slice_begin(struct pp_plan p, int64_t tokens,
                                          int q)
{
    return (int64_t)pp_slice_begin(&p.graph->slices, (size_t)tokens,
                                   pp_mesh_slice_grain(p.mesh), q);
}

/* Sets the tokens of each slice of a microbatch of total tokens, padding
 * included, without pairs. */
void pp_slice_tokens(struct pp_plan p, int64_t total,
                     struct pp_workload *slices);

/* Returns the number of the slowest of n context-parallel ranks with so many
 * tokens and attended pairs: that whose forward takes longest. */
size_t pp_stage_slowest(const struct pp_stage_costs *c, const double *tokens,
                        const double *pairs, size_t n);

/* Adds the attended pairs of one sequence to the slices. The sequence starts at
 * token at of a microbatch of total tokens. A token attends to itself and to
 * the tokens before it. */
void pp_slice_pairs(struct pp_plan p, int64_t total, int64_t at, int64_t length,
                    struct pp_workload *slices);

/* Returns the operations of forward and backward through all units: per token,
 * and per attended pair. */
void pp_model_cost(const struct pp_plan_model *m, double *per_token,
                   double *per_pair);

/* Frees the sums. c may be zeroed. */
void pp_stage_costs_finish(struct pp_stage_costs *c);

#endif
