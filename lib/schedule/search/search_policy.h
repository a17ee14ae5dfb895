/* SPDX-License-Identifier: MIT */
/* search_policy - the best policy for the list scheduler: a grid, then hill
 * climbing; private to lib/schedule/search.
 *
 * A policy says how far ahead each stage runs and how each rank waits, so one
 * change alters every round of a schedule at once. That is what the search
 * over single moves (search_local.h) cannot do in a long step. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_POLICY_H
#define PP_SCHEDULE_SEARCH_SEARCH_POLICY_H

#include "schedule/search/search_eval.h"
#include "schedule/search/search_list.h"

struct pp_policy_search {
    const struct pp_search_problem *problem;
    struct pp_list *list;
    struct pp_eval *eval;
    double goal;  /* stop when the objective is no larger */
    uint64_t key; /* of the random numbers */
    struct pp_policy best;
    double worst; /* of best; infinity before the first run */
    double steps; /* work done, in visits of an op */
    /* Told of every order that is tried. */
    void (*found)(void *ctx, const struct pp_eval *e, const int32_t *order);
    void *ctx;
    int32_t *order; /* n_ops: room for an order */
};

/* Tries the grid, or as much of it as that many steps allow. */
int pp_policy_grid(struct pp_policy_search *s, double steps,
                   struct pp_err *err) PP_MUST_USE;

/* Changes the best policy in place, as long as that many steps last. */
int pp_policy_climb(struct pp_policy_search *s, double steps,
                    struct pp_err *err) PP_MUST_USE;

#endif
