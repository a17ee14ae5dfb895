/* SPDX-License-Identifier: MIT */
/* split_recompute - what each stage of a split makes again, so that every rank
 * fits in memory and the step is as short as can be.
 *
 * More recomputation never shortens a step, since a step is a longest path
 * whose edges it only lengthens. So only choices that fit and are least matter:
 * those of which no stage could do with less, the others staying as they are.
 * Stages that share a rank, by copies of the weights too, are chosen together,
 * by enumeration; such groups do not share memory. Where every group has a
 * single least choice, as where ranks have one stage each, they make the
 * shortest step together. Where some have several, all combinations are
 * simulated, or, where those are many, one group's choice is improved after the
 * other's. */
#ifndef PP_SPLIT_SPLIT_RECOMPUTE_H
#define PP_SPLIT_SPLIT_RECOMPUTE_H

#include "model/model.h"
#include "schedule/ir/graph.h"

struct pp_split_recompute {
    const struct pp_graph *graph; /* borrowed */
    size_t n_modes; /* the first ones of enum pp_recompute, from 1 on */
    void *ctx;
    /* modes: of the stages of one copy. Whether the rank fits, which depends on
     * the modes of its stages alone; how long a step takes. */
    int (*fits)(void *ctx, const enum pp_recompute *modes, int rank, bool *yes,
                struct pp_err *err);
    int (*time)(void *ctx, const enum pp_recompute *modes, double *time,
                struct pp_err *err);
};

struct pp_recompute_found {
    bool fits;       /* every rank does */
    double makespan; /* of the choice; infinite where none fits */
    double bound;    /* no choice for this split takes less */
    bool proved;     /* nor does any that fits take less than makespan */
};

/* Fills modes, one for each stage of one copy. Ranks that fit with no choice
 * get what makes most again. Ranks with more than 6 stages are given least
 * choices, not necessarily all of them: then bound is that of no recomputation
 * there. */
int pp_split_recompute(const struct pp_split_recompute *p,
                       enum pp_recompute *modes,
                       struct pp_recompute_found *found,
                       struct pp_err *err) PP_MUST_USE;

#endif
