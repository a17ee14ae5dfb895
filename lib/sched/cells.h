/* SPDX-License-Identifier: MIT */
/* cells - dense numbers for the work of a schedule, private to lib/sched.
 *
 * A cell is a (stage, microbatch, slice); a link is an edge of the stage graph
 * at one microbatch and slice. Whoever keeps a state per piece of work indexes
 * an array by these, so nothing ever searches a row. */
#ifndef PP_SCHED_CELLS_H
#define PP_SCHED_CELLS_H

#include "sched/schedule.h"

struct pp_cells {
    const struct pp_graph *graph;
    size_t n_microbatches, n_slices;
    size_t n_cells, n_links;
    size_t *first_edge; /* per stage: number of its first input's edge */
};

int pp_cells_init(struct pp_cells *c, const struct pp_schedule *s,
                  struct pp_err *err) PP_MUST_USE;
void pp_cells_finish(struct pp_cells *c);

/* Stage, microbatch and slice must be in range. */
static inline size_t pp_cell(const struct pp_cells *c, int stage,
                             int microbatch, int slice)
{
    return ((size_t)stage * c->n_microbatches + (size_t)microbatch) *
               c->n_slices +
           (size_t)slice;
}

/* The link from stage `from` to its output `to`; (size_t)-1 when there is no
 * such edge. */
size_t pp_link(const struct pp_cells *c, int from, int to, int microbatch,
               int slice);

#endif
