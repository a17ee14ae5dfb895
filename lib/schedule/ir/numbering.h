/* SPDX-License-Identifier: MIT */
/* channels - numbers the channels (from rank, to rank, lane) that a stage
 * graph can use, private to lib/schedule/ir. */
#ifndef PP_SCHEDULE_IR_NUMBERING_H
#define PP_SCHEDULE_IR_NUMBERING_H

#include <stddef.h>

#include "base/err.h"
#include "schedule/ir/action.h"
#include "schedule/ir/graph.h"
#include "schedule/ir/schedule.h"

struct pp_channel {
    int from, to, backward;
};

struct pp_channels {
    struct pp_channel *at; /* sorted; every edge gives one each way */
    size_t n;
    size_t *first; /* per rank: its first outgoing channel; n_ranks + 1 */
};

int pp_channels_init(struct pp_channels *c, const struct pp_graph *g,
                     struct pp_err *err) PP_MUST_USE;
void pp_channels_finish(struct pp_channels *c);

/* The channel of a SEND or RECV performed by rank, whose other end is on
 * peer_rank. There must be an edge between the two. */
size_t pp_channel_of(const struct pp_channels *c, struct pp_action a, int row,
                     int peer_row);

/* The first channel from one rank to another: forward where there is one.
 * There must be an edge between the two. */
size_t pp_channel_between(const struct pp_channels *c, int from, int to);

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
