/* SPDX-License-Identifier: MIT */
/* schedule - a list of actions for each pipeline rank. */
#ifndef PP_SCHEDULE_IR_SCHEDULE_H
#define PP_SCHEDULE_IR_SCHEDULE_H

#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "schedule/ir/action.h"
#include "schedule/ir/graph.h"

struct pp_row {
    struct pp_action *actions; /* in the order the rank runs them */
    size_t n, capacity;
};

struct pp_schedule {
    const struct pp_graph *graph; /* borrowed; outlives the schedule */
    const char *kind;             /* "1f1b"; borrowed */
    int n_microbatches;
    int channel_depth;   /* messages in flight per channel; 0: rendezvous */
    struct pp_row *rows; /* graph->n_ranks of them, malloc'ed */
};

/* True if action i of the row is the second of an overlap pair. */
static inline bool pp_is_second_of_pair(const struct pp_row *row, size_t i)
{
    return i > 0 && row->actions[i - 1].overlap;
}

/* An empty schedule on g: no actions, channel depth 1. */
int pp_schedule_init(struct pp_schedule *s, const struct pp_graph *g,
                     const char *kind, int n_microbatches,
                     struct pp_err *err) PP_MUST_USE;

/* Appends one action to a rank's row. */
int pp_schedule_add(struct pp_schedule *s, int row, struct pp_action a,
                    struct pp_err *err) PP_MUST_USE;

/* Frees the rows; accepts a zeroed struct. */
void pp_schedule_finish(struct pp_schedule *s);

/* The text of a rank's row, actions separated by one space, as the manifest
 * holds it. malloc'ed; NULL when out of memory. */
char *pp_schedule_format_row(const struct pp_schedule *s, int row);

/* Appends the actions of text to rank's row. Peers that are not written are
 * filled where only one stage is possible. Fails with PP_EXIT_INPUT, quoting
 * the cell and its place ("action 3"). */
int pp_schedule_parse_row(struct pp_schedule *s, int row, const char *text,
                          struct pp_err *err) PP_MUST_USE;

/* Appends one cell, an action or a pair, as it stands in a row. */
int pp_schedule_parse_cell(struct pp_schedule *s, int row, const char *text,
                           size_t n, struct pp_err *err) PP_MUST_USE;

/* Fills the peers that are not written where only one stage is possible. */
void pp_schedule_imply_peers(struct pp_schedule *s);

/* How many compute actions the schedule holds. */
size_t pp_schedule_n_compute(const struct pp_schedule *s);

/* Whether weight gradients run in canonical order: per stage by ascending
 * microbatch, slices descending within it. Such schedules give the same bits
 * as each other under every split with equal slicing. Never where there are
 * copies of the weights: each sums a part of the microbatches. */
bool pp_schedule_is_canonical(const struct pp_schedule *s);

/* Moves every row into one, as a single rank plays it: dst lies on
 * merged_graph (the same stages, all on rank 0), holds the compute actions in
 * an order that respects both the rows and the dependencies, and no message.
 * SYNC_COPIES and SYNC_TIED stay, once, at the end. */
int pp_schedule_merge(const struct pp_schedule *s,
                      const struct pp_graph *merged_graph,
                      struct pp_schedule *dst, struct pp_err *err) PP_MUST_USE;

/* dst = s without I, W, B, their messages and gradient actions: evaluation. */
int pp_schedule_forward_only(const struct pp_schedule *s,
                             struct pp_schedule *dst,
                             struct pp_err *err) PP_MUST_USE;

/* The copy of microbatch m, or -1 where no action works on it. Reads all
 * rows. */
int pp_copy_of(const struct pp_schedule *s, int m);

/* Fills copy[0 .. n_microbatches) with the same. Accepts any rows. */
void pp_copies_of(const struct pp_schedule *s, int *copy);

/* Replaces the rows of s, which hold no messages. Overlap pairs stay together;
 * UNSHARD, RESHARD and REDUCE_GRAD stay before the compute action that they
 * precede. Fails with PP_EXIT_NO when the rows cannot run to the end, naming
 * the first action of each stuck rank. */
int pp_lower(struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* What lowering adds beside messages, SYNC_COPIES and SYNC_TIED, for rows that
 * have theirs. */
int pp_lower_syncs(struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

#endif
