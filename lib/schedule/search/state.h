/* SPDX-License-Identifier: MIT */
/* state - a search under way, private to lib/schedule/search: the
 * methods in turn for the best order, then for the best of equal orders. */
#ifndef PP_SCHEDULE_SEARCH_STATE_H
#define PP_SCHEDULE_SEARCH_STATE_H

#include "schedule/search/search.h"
#include "schedule/search/problem.h"

struct pp_search_state {
    const struct pp_search_options *options;
    struct pp_search_problem problem;
    struct pp_paths eval;
    int32_t *best, *order;
    double worst, second;    /* objective of best, and its span to break ties */
    double least, goal, eps; /* least: the first goal */
    bool tied;               /* keep the makespan, minimize the span */
    double *tight;           /* per rank: a limit below that of the options */
};

/* Reports if no order can be better in what the search aims at. */
bool pp_search_at_goal(const struct pp_search_state *s);

/* Makes the span the objective, and its lower bound the goal. */
void pp_search_aim_at_span(struct pp_search_state *s);

/* Tries all methods; policies and moves for so many seconds of work. */
int pp_search_try_all(struct pp_search_state *s, double seconds,
                      struct pp_err *err) PP_MUST_USE;

/* Replaces the best order by one with the same makespan that needs less memory
 * on the fullest rank or, with the same memory, has a smaller span. seconds is
 * the time of the whole search, or 0 for quick methods only. */
int pp_search_break_ties(struct pp_search_state *s, double seconds,
                         struct pp_err *err) PP_MUST_USE;

#endif
