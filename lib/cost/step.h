/* SPDX-License-Identifier: MIT */
/* step - the time of a step of a plan: the actions, messages and collectives of
 * its schedule, and the update after them. All programs take it from here. */
#ifndef PP_COST_STEP_H
#define PP_COST_STEP_H

#include "cost/stage_costs.h"
#include "data/packed/packed.h"
#include "schedule/ir/schedule.h"

/* The costs of a plan, and the sizes of the microbatches of a step. */
struct pp_step {
    struct pp_stage_costs costs;
    struct pp_workload *loads; /* per microbatch and slice */
    const double *copy; /* per stage: of an OFFLOAD or RELOAD; NULL: no time */
    struct pp_made *made; /* per stage; private */
    /* Per stage, microbatch and slice: whether the head makes its gradients in
     * F (schedule/ir/at_once.h); NULL: the order is not known, and nothing
     * takes longer than in any. */
    bool *at_once;
    size_t parts; /* of a step: microbatches times slices */
};

/* Makes costs, and room for the sizes of so many microbatches. The members of
 * the plan must outlive the step. Finish it also after an error. */
void pp_step_init(struct pp_step *x, struct pp_plan p, int n_microbatches);

/* Makes n_microbatches alike: as large as mb. */
void pp_step_assume(struct pp_step *x, const struct pp_default_microbatch *mb,
                    int n_microbatches);

/* Returns how many encoders take the time of their items in the data. A step
 * with items has no slices. */
size_t pp_step_counted(struct pp_plan p);

/* Measures the n_microbatches of a step of packed data, from 1 on, of the first
 * data-parallel rank. Sequences that some of the ranks divide take the time of
 * the slowest rank: as if all ranks had as much. */
void pp_step_measure(struct pp_step *x, const struct pp_packed *data, int step,
                     int n_microbatches);

/* Returns the costs of the plan when its microbatches have sizes. They point
 * into x, and are those of no order. */
struct pp_costs pp_step_costs(struct pp_step *x);

/* Makes the costs those of the order of a schedule; NULL: of no order. */
void pp_step_order(struct pp_step *x, const struct pp_schedule *s);

/* The time function of these costs, whose ctx is x. */
double pp_step_action(const void *ctx, struct pp_action a);

/* Returns the seconds of the update after a schedule: of the rank that updates
 * most parameters, and of the rank that adds most gradients of copies. 0 if
 * there is no profile. */
double pp_step_update(const struct pp_step *x);

/* Computes the seconds of a step under a schedule with messages on the plan's
 * graph: the first one of the data, or with data NULL one with microbatches as
 * the plan assumes them. copy: see struct pp_step. */
int pp_step_seconds(struct pp_plan p, const struct pp_schedule *s,
                    const struct pp_packed *data, const double *copy,
                    double *seconds, struct pp_err *err) PP_MUST_USE;

/* Returns the record of packed data at a path, in the plan that they are for.
 * It has the items of data without an encoder for them, too. */
struct pp_plan_data pp_plan_data_of(struct pp_plan p, const struct pp_packed *d,
                                    const char *path);

/* Accepts a zeroed struct. */
void pp_step_finish(struct pp_step *x);

#endif
