/* SPDX-License-Identifier: MIT */
/* row - a plan as a row of a table of plans. */
#ifndef PP_SPLIT_ROW_H
#define PP_SPLIT_ROW_H

#include "split/plan.h"

struct pp_split_row {
    struct pp_split_request request; /* gives the plan again: with its split and
                                        its modes */
    double step;  /* seconds with all that is exchanged, or the makespan if
                     there is no profile; infinite: there is no plan */
    double least; /* no plan of this mesh and kind is shorter */
    double idle;  /* share of the makespan that ranks wait for each other */
    double need;  /* bytes of the fullest rank; 0: there is no plan */
    int rank;     /* the fullest */
    bool fits;
    bool halves;     /* its order has I and W */
    const char *why; /* there is no plan: the reason; else NULL */
};

/* Returns the sequences of a microbatch. */
static inline int64_t pp_split_sequences(const struct pp_split_request *q)
{
    return q->microbatch.tokens / q->microbatch.seq_len;
}

/* Plans with the least recomputation of all stages that fits, if the request
 * wants recompute_auto and its trainer has one mode for all stages, which then
 * replaces it; else plans the request. Finish the plan also after an error. */
int pp_split_plan_modes(struct pp_split_request *q, struct pp_split_plan *plan,
                        struct pp_err *err) PP_MUST_USE;

/* Plans a request (pp_split_plan_modes) into a row, whose arrays are in the
 * arena. Finish the plan, which borrows q. */
void pp_split_row_plan(struct pp_split_request *q, struct pp_arena *a,
                       struct pp_split_row *row, struct pp_split_plan *plan);

/* Orders rows: rows that fit by their steps, then the others by what they need,
 * then rows without a plan. */
int pp_split_row_compare(const void *a, const void *b);

#endif
