/* SPDX-License-Identifier: MIT */
/* describe - a split plan in the form of cost/plan.h, which manifests
 * hold and all programs take the times of steps from. Pure. */
#ifndef PP_SPLIT_DESCRIBE_H
#define PP_SPLIT_DESCRIBE_H

#include "cost/plan.h"
#include "split/plan.h"

/* The members of a plan, in memory of an arena. The source of the model, and of
 * a component, is not set. */
struct pp_split_description {
    struct pp_plan_model model;
    struct pp_mesh mesh;
    struct pp_graph graph; /* with what the mesh and tied weights add to it */
    struct pp_plan_stage *stages;
    struct pp_component components[PP_MAX_ENCODERS + 1];
    size_t n_components; /* 0 if the model has no encoder */
    struct pp_default_microbatch microbatch;
    const struct pp_profile *profile;
    const struct pp_machine *machine;
};

/* Sets all that a plan says of unit i but its name and what a stage that
 * recomputes has. evenly: state counts as evenly divided (pp_mesh_held_evenly).
 */
void pp_split_describe_unit(const struct pp_split_request *q, size_t i,
                            bool evenly, struct pp_plan_unit *x);

/* Returns the costs of a decoder layer in a stage that recomputes: on one rank,
 * for each token of a whole microbatch. */
struct pp_plan_mode pp_split_describe_mode(const struct pp_split_request *q,
                                           struct pp_unit_id u,
                                           enum pp_recompute r);

/* Describes a plan. The arena has the memory; the description borrows the
 * profile and the machine of the plan's request. */
void pp_split_describe(const struct pp_split_plan *plan, struct pp_arena *a,
                       struct pp_split_description *d);

/* Returns the plan, which borrows the description. */
struct pp_plan pp_split_described(const struct pp_split_description *d);

/* Makes the schedule of the plan with all of its messages and collectives, on
 * the graph of the description. */
int pp_split_schedule(const struct pp_split_plan *plan,
                      const struct pp_split_description *d,
                      struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* Computes the seconds of a step of the plan with both: the step of ppsched
 * --stats for its manifest. They are infinite if the plan is not simulated. */
int pp_split_step_seconds(const struct pp_split_plan *plan, double *seconds,
                          struct pp_err *err) PP_MUST_USE;

#endif
