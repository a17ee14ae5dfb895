/* SPDX-License-Identifier: MIT */
/* search_vblocks - orders that repeat one building block on stages placed there
 * and back, with the real time of every action and message; private to
 * lib/schedule/search.
 *
 * A block says when a rank does the four things that a microbatch asks of it,
 * and every microbatch repeats it one period later, the busiest rank's work for
 * one. How long a microbatch waits on each of its four ways through the ranks
 * decides how much they keep. Qi et al., "Pipeline Parallelism with
 * Controllable Memory", NeurIPS 2024; vblock.h has the blocks of unit times. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_VBLOCKS_H
#define PP_SCHEDULE_SEARCH_SEARCH_VBLOCKS_H

#include "schedule/search/search_problem.h"

struct pp_vblock_knobs {
    double wait[4];  /* before each action of the way down and up forwards, up
                        and down backwards, in times of that action */
    double min_fill; /* a weight gradient runs where at least this share of it
                       fits */
};

enum { PP_VBLOCK_SETTINGS = 81 * 2 };

/* The i-th setting of the knobs. */
struct pp_vblock_knobs pp_vblock_setting(int i);

/* Writes the words. PP_AGAIN where it has none to offer: another placement,
 * whole backward, or too little room. */
int pp_vblocks_run(const struct pp_search_problem *j,
                   const struct pp_vblock_knobs *knobs, int32_t *order,
                   struct pp_err *err) PP_MUST_USE;

#endif
