/* SPDX-License-Identifier: MIT */
/* search_list - event-driven list scheduling under a policy; private to
 * lib/schedule/search.
 *
 * Time goes forward; a rank that is free starts the ready forward or input
 * gradient that the policy likes best, and puts weight gradients where it
 * would wait. Memory never locks up: a forward enters only where the oldest
 * microbatch that is still on its way forward keeps its room (banker's rule).
 */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_LIST_H
#define PP_SCHEDULE_SEARCH_SEARCH_LIST_H

#include "schedule/search/search_problem.h"

enum pp_policy_order {
    PP_POLICY_BACKWARD, /* input gradients before forwards */
    PP_POLICY_FORWARD,  /* forwards before input gradients */
    PP_POLICY_PATH      /* the longest way to the end first */
};

struct pp_policy {
    bool shallow;   /* of two forwards, the earlier stage's first */
    double late;    /* PATH: what a microbatch later in the row counts for, in
                       times of a rank's work for one */
    int32_t *ahead; /* per stage: at most so many forwards ahead of backwards */
    struct pp_row_heuristic {
        enum pp_policy_order order;
        double min_fill; /* a weight gradient starts when at least this share of
                           it fits before the next known arrival */
        double wait_ratio; /* waits for what it likes better, up to this share
                            of the time of what it could start now */
    } * heuristics;        /* per rank */
};

/* Arrays for j, zeroed. */
int pp_policy_init(struct pp_policy *p, const struct pp_search_problem *j,
                   struct pp_err *err) PP_MUST_USE;
void pp_policy_finish(struct pp_policy *p);
void pp_policy_copy(struct pp_policy *to, const struct pp_policy *from,
                    const struct pp_search_problem *j);

struct pp_list;

/* Working memory for any number of runs. NULL when out of memory. */
struct pp_list *pp_list_create(const struct pp_search_problem *j);
void pp_list_destroy(struct pp_list *l);

/* Sets p->ahead to so many round trips to the loss; 0: no limit. */
void pp_list_ahead(const struct pp_list *l, double trips, int32_t *ahead);

/* Writes the words. False when a rank's limit is below what the rule needs. */
bool pp_list_run(struct pp_list *l, const struct pp_policy *p, int32_t *order);

#endif
