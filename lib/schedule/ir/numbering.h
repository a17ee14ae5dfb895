/* SPDX-License-Identifier: MIT */
/* numbering - dense numbers for channels, cells and links, used as array
 * indices.
 *
 * A channel is (from row, to row, direction). A cell is (stage, microbatch,
 * slice). A link is an edge of the stage graph for one microbatch and slice. */
#ifndef PP_SCHEDULE_IR_NUMBERING_H
#define PP_SCHEDULE_IR_NUMBERING_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "schedule/ir/action.h"
#include "schedule/ir/graph.h"
#include "schedule/ir/schedule.h"

struct pp_channel {
    int from, to, backward;
};

struct pp_channels {
    const struct pp_graph *graph;
    struct pp_channel *at; /* sorted; every edge has one each way */
    size_t n;
    size_t *first; /* per row: its first outgoing channel; n_rows + 1 */
};

/* Lists the channels of g. */
void pp_channels_init(struct pp_channels *c, const struct pp_graph *g);
/* Frees the list; accepts a zeroed struct. */
void pp_channels_finish(struct pp_channels *c);

/* Returns the channel of a SEND or RECV on row whose other end is on peer_row.
 * The two must share an edge. */
size_t pp_channel_of(const struct pp_channels *c, struct pp_action a, int row,
                     int peer_row);

/* Returns the forward channel between two rows, or the backward channel if
 * there is no forward one. The two must share an edge. */
size_t pp_channel_between(const struct pp_channels *c, int from, int to);

/* The messages of a schedule, channel by channel: the places of the SENDs in
 * the row that a channel comes from, and of the RECVs in the row that it leads
 * to, in order. */
struct pp_fifo {
    struct pp_channels channels;
    bool tagged; /* see pp_fifo_init */
    struct pp_fifo_ends {
        size_t *first; /* per channel, n + 1: into place */
        uint32_t *place;
    } send, recv;
    uint32_t *channel; /* of every SEND and RECV, row by row */
};

/* Lists the messages of s. If tagged, forward and backward messages between two
 * rows have separate channels; otherwise they share the channel that
 * pp_channel_between returns. Stages and peers must be in range. */
void pp_fifo_init(struct pp_fifo *f, const struct pp_schedule *s, bool tagged);
/* Frees the lists; accepts a zeroed struct. */
void pp_fifo_finish(struct pp_fifo *f);

struct pp_cells {
    const struct pp_graph *graph;
    size_t n_microbatches, n_slices;
    size_t n_cells, n_links;
    size_t *first_edge; /* per stage: number of its first input edge */
};

/* Numbers the cells and links of s, whose graph it borrows. */
void pp_cells_init(struct pp_cells *c, const struct pp_schedule *s);
/* Frees the numbering; accepts a zeroed struct. */
void pp_cells_finish(struct pp_cells *c);

/* Returns the number of a cell. Stage, microbatch and slice must be in range.
 */
static inline size_t pp_cell(const struct pp_cells *c, int stage,
                             int microbatch, int slice)
{
    return ((size_t)stage * c->n_microbatches + (size_t)microbatch) *
               c->n_slices +
           (size_t)slice;
}

/* Returns the link from stage `from` to its output `to`, or (size_t)-1 if there
 * is no such edge. */
size_t pp_link(const struct pp_cells *c, int from, int to, int microbatch,
               int slice);

#endif
