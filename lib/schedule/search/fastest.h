/* SPDX-License-Identifier: MIT */
/* fastest - the fastest run among the order that a search found and the
 * named kinds; private to lib/schedule/search.
 *
 * The search compares orders with unbounded channels. At a channel depth a run
 * may take longer, and by more for one order than for another. */
#ifndef PP_SCHEDULE_SEARCH_FASTEST_H
#define PP_SCHEDULE_SEARCH_FASTEST_H

#include "schedule/search/search.h"
#include "schedule/simulate/depth.h"

/* Sets the depth of s, which has messages, as `run` says. If s then takes
 * longer than with unbounded channels, replaces it by a named kind that fits
 * and is faster. */
int pp_search_fastest(struct pp_schedule *s, const struct pp_search_options *o,
                      const struct pp_depth_options *run,
                      struct pp_err *err) PP_MUST_USE;

#endif
