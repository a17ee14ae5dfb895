/* SPDX-License-Identifier: MIT */
/* search_bytes - auto where a rank's limit is in bytes of what memory.h plans,
 * messages included, which nobody knows before there are rows: the search gets
 * what is left for activations, and less where that was still too much. */
#ifndef PP_SCHEDULE_SEARCH_SEARCH_BYTES_H
#define PP_SCHEDULE_SEARCH_SEARCH_BYTES_H

#include "schedule/search/search.h"

/* All borrowed. */
struct pp_search_bytes {
    const struct pp_stage_bytes *sizes; /* per stage */
    const double *room; /* per rank: for all that pp_memory_plan places */
};

/* Initialises s for the graph and fills it, messages included. o->room is not
 * read. What does not fit even so is left to the caller, who will refuse it
 * with numbers. depth < 0: the usual channel depth. */
int pp_search_bytes(struct pp_schedule *s, const struct pp_graph *g,
                    int n_microbatches, int depth,
                    const struct pp_search_options *o,
                    const struct pp_search_bytes *b,
                    struct pp_err *err) PP_MUST_USE;

/* The same with the limits of o->room, or none. */
int pp_search_lowered(struct pp_schedule *s, const struct pp_graph *g,
                      int n_microbatches, int depth,
                      const struct pp_search_options *o,
                      struct pp_err *err) PP_MUST_USE;

#endif
