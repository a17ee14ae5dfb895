/* SPDX-License-Identifier: MIT */
/* offload - chooses which activations leave for the host, and when.
 *
 * The order of the computation is given. A rank that lacks room for the next
 * forward offloads the microbatch whose backward comes last among the
 * microbatches whose copy can have ended (Belady's rule), and reloads it as
 * late as its copy allows. How much room is kept free for reloads, and how
 * early they begin, is tried in several ways, each simulated. PipeOffload
 * (arXiv 2503.01328) instead offloads whole stages of interleaved 1F1B in a
 * fixed rhythm. */
#ifndef PP_SCHEDULE_OFFLOAD_OFFLOAD_H
#define PP_SCHEDULE_OFFLOAD_OFFLOAD_H

#include "schedule/ir/schedule.h"

struct pp_offload_options {
    const struct pp_costs *costs; /* with the times of copies */
    const double *load;           /* per stage: of the activations of a
                                     microbatch, in the unit of room */
    const double *room;           /* per row */
};

/* Replaces s, which is valid, lowered and without copies, by the fastest that
 * is found with OFFLOADs and RELOADs by which no row holds more than its room
 * between two actions. Fails with PP_EXIT_NO if a row has no room for what it
 * needs at once. */
int pp_offload(struct pp_schedule *s, const struct pp_offload_options *o,
               struct pp_err *err) PP_MUST_USE;

#endif
