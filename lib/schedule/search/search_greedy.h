/* SPDX-License-Identifier: MIT */
/* search_greedy - the zero-bubble authors' greedy order, with the real time of
 * every action, message and stage; private to lib/schedule/search.
 *
 * P. Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 3.1:
 * forwards fill the time until the first backward arrives; then every rank runs
 * a forward, where it wants one, and an input gradient in each round, and puts
 * weight gradients where it would wait or needs their room. What is open there
 * are three knobs, of which every setting is tried. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_GREEDY_H
#define PP_SCHEDULE_SEARCH_SEARCH_GREEDY_H

#include "schedule/search/search_problem.h"

struct pp_greedy_knobs {
    bool overshoot; /* a last warm-up forward may delay the first backward */
    bool hold;      /* no forward that the next stage could not use in time */
    bool eager;     /* a weight gradient also in waits that are no longer than
                       the longest of all ranks allows */
};

enum { PP_GREEDY_SETTINGS = 8 };

/* The i-th setting of the knobs. */
struct pp_greedy_knobs pp_greedy_setting(int i);

/* Writes the words. PP_AGAIN where it has none to offer: ranks with several
 * stages, branches, whole backward, or too little room for its rounds. */
int pp_greedy_run(const struct pp_search_problem *j,
                  struct pp_greedy_knobs knobs, int32_t *order,
                  struct pp_err *err) PP_MUST_USE;

#endif
