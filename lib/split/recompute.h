/* SPDX-License-Identifier: MIT */
/* recompute - chooses the recomputation mode of each stage, so that every
 * rank fits in memory and the step is as short as possible.
 *
 * A step is a longest path, and recomputation only lengthens its edges. So more
 * recomputation never shortens a step, and only minimal choices matter: choices
 * that fit, but do not fit if any stage recomputes less. Stages that share a
 * rank, directly or by copies of the weights, form a group; groups do not share
 * memory. The minimal choices of each group are enumerated. If every group has
 * only one, as with one stage per rank, these are optimal. Otherwise all
 * combinations are simulated; if there are too many, a local search improves
 * one group after the other. */
#ifndef PP_SPLIT_RECOMPUTE_H
#define PP_SPLIT_RECOMPUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "schedule/ir/graph.h"

struct pp_split_recompute {
    const struct pp_graph *graph; /* borrowed */
    size_t n_modes; /* modes are 0 to n_modes - 1: each recomputes what the one
                       before it does, and more; >= 1 */
    void *ctx;
    /* modes are the modes of the stages of one copy. fits returns true if the
     * rank fits, which depends only on the modes of its stages. time returns
     * the makespan. */
    bool (*fits)(void *ctx, const int *modes, int rank);
    double (*time)(void *ctx, const int *modes);
};

struct pp_recompute_found {
    bool fits;       /* every rank fits */
    double makespan; /* the choice's; infinite if it does not fit */
    double bound;    /* lower bound for every choice that fits */
    bool proved;     /* the choice is optimal */
};

/* Fills modes, one for each stage of one copy. Ranks that cannot fit get the
 * most recomputation. For groups of more than 6 stages only one minimal choice
 * is found, and bound assumes no recomputation there. */
struct pp_recompute_found pp_split_recompute(const struct pp_split_recompute *p,
                                             int *modes);

#endif
