/* SPDX-License-Identifier: MIT */
/* schedule - one row of actions per pipeline rank, with its text form and its
 * lowering. */
#ifndef PP_SCHEDULE_IR_SCHEDULE_H
#define PP_SCHEDULE_IR_SCHEDULE_H

#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "schedule/ir/action.h"
#include "schedule/ir/graph.h"

struct pp_row {
    struct pp_action *actions; /* in execution order */
    size_t n, capacity;
};

struct pp_schedule {
    const struct pp_graph *graph; /* borrowed; outlives the schedule */
    const char *kind;             /* such as "1f1b"; borrowed */
    int n_microbatches;
    int channel_depth;   /* messages in flight per channel; 0 for rendezvous */
    struct pp_row *rows; /* graph->n_rows of them, malloc'ed */
};

/* Returns true if action i of the row is the second of an overlap pair. */
static inline bool pp_is_second_of_pair(const struct pp_row *row, size_t i)
{
    return i > 0 && row->actions[i - 1].overlap;
}

/* Returns the place of the row from which on the receive at place `recv` is
 * posted: the place of the compute action or pair in front of it, so that the
 * message arrives while it runs, or its own if anything but messages is
 * between. */
size_t pp_posted_at(const struct pp_row *row, size_t recv);

/* Makes s an empty schedule on g with channel depth 1. */
void pp_schedule_init(struct pp_schedule *s, const struct pp_graph *g,
                      const char *kind, int n_microbatches);

/* Appends one action to a row. */
void pp_schedule_add(struct pp_schedule *s, int row, struct pp_action a);

/* Makes dst a copy of s. */
void pp_schedule_copy(const struct pp_schedule *s, struct pp_schedule *dst);

/* Frees the rows; accepts a zeroed struct. */
void pp_schedule_finish(struct pp_schedule *s);

/* Returns the text of a row as the manifest holds it: actions separated by one
 * space. The caller frees it. */
char *pp_schedule_format_row(const struct pp_schedule *s, int row);

/* Appends the actions of text to a row. Fills a missing peer if only one stage
 * is possible. Fails with PP_EXIT_INPUT and names the cell and its position
 * ("action 3"). */
int pp_schedule_parse_row(struct pp_schedule *s, int row, const char *text,
                          struct pp_err *err) PP_MUST_USE;

/* Appends one cell: an action, or a pair "(F;B)OVERLAP_F_B". */
int pp_schedule_parse_cell(struct pp_schedule *s, int row, const char *text,
                           size_t n, struct pp_err *err) PP_MUST_USE;

/* Fills each missing peer if only one stage is possible. */
void pp_schedule_imply_peers(struct pp_schedule *s);

/* Returns the number of actions whose ops are among these bits, 1 << op. */
size_t pp_schedule_count(const struct pp_schedule *s, unsigned ops);

/* Returns true if weight gradients run in canonical order: per stage by
 * ascending microbatch, and by descending slice within a microbatch. All such
 * schedules give the same bits under every split with equal slicing. Returns
 * false if there are copies of the weights, because each copy sums only some of
 * the microbatches. */
bool pp_schedule_is_canonical(const struct pp_schedule *s);

/* Copies s to dst without I, W, B, their messages and the gradient actions, for
 * evaluation. */
void pp_schedule_forward_only(const struct pp_schedule *s,
                              struct pp_schedule *dst);

/* Removes the backward of stages that have none, and W of frozen ones. */
void pp_schedule_trim(struct pp_schedule *s);

/* Returns the copy of the weights that microbatch m passes through, or -1 if no
 * action works on m. Reads all rows. */
int pp_copy_of(const struct pp_schedule *s, int m);

/* Fills copy[0 .. n_microbatches) with pp_copy_of of each microbatch. Accepts
 * any rows. */
void pp_copies_of(const struct pp_schedule *s, int *copy);

/* Adds every message that deps asks for to the rows of s, which hold none. Also
 * appends SYNC_COPIES if there are copies of the weights, and SYNC_TIED if the
 * graph has tied stages.
 *
 * The compute actions are walked in one global order: start time at unit cost,
 * ties by stage and microbatch. Each transfer is listed on both rows at the
 * completion of its producer. Every row is then a subsequence of that order, so
 * the result does not deadlock at any channel depth, rendezvous included.
 *
 * Overlap pairs stay together. UNSHARD, RESHARD and REDUCE_GRAD stay before the
 * compute action that they precede. Fails with PP_EXIT_NO if the compute
 * actions deadlock, and names the first action of each stuck rank. */
int pp_lower(struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

struct pp_costs {
    /* Returns the time of a compute action, a message (SEND) or a collective.
     */
    double (*time)(const void *ctx, struct pp_action a);
    const void *ctx;
    /* The fraction of the sum of both times that an overlap pair saves.
     * Negative if the two slow each other down. */
    double pair_saving;
    /* Bits 1 << op: collectives that do not keep their rank from computing. */
    unsigned beside;
    /* By stage: how the last B makes the gradients that a REDUCE_GRAD beside it
     * takes. NULL: REDUCE_GRAD begins behind B. */
    const struct pp_made *made;
};

/* The gradients of a stage, in any order. For each, when B has made it: the
 * share of the time of B that is still to come, and the share of the time of
 * REDUCE_GRAD that is, its own included. n is 0 if REDUCE_GRAD begins behind B.
 */
struct pp_made {
    struct pp_made_left {
        double backward, reduction;
    } * left;
    int n;
    double longer; /* by how much REDUCE_GRAD is longer in pieces */
};

/* Reports if an action does not keep its rank from computing. */
static inline bool pp_is_beside(const struct pp_costs *c, enum pp_op op)
{
    return c && c->beside >> op & 1;
}

/* Replaces the messages of s by the messages that pp_lower adds if the global
 * order has the times of actions and messages instead of unit times; NULL: unit
 * times. So a receive is posted in time, but its buffer may live longer. */
int pp_lower_again(struct pp_schedule *s, const struct pp_costs *costs,
                   struct pp_err *err) PP_MUST_USE;

/* Reports whether a row has REDUCE_GRAD. */
bool pp_schedule_reduces(const struct pp_schedule *s);

/* Reports whether a row has OFFLOAD or RELOAD. */
bool pp_schedule_copies(const struct pp_schedule *s);

/* Adds UNSHARD before the first action that needs the whole weights of a stage
 * and RESHARD after the last, if the graph has divided weights (resident) and s
 * has no UNSHARD yet. If more stages of a row would be whole at once, the
 * stages needed last go. */
void pp_lower_sharding(struct pp_schedule *s);

/* Removes UNSHARD and RESHARD. */
void pp_schedule_drop_sharding(struct pp_schedule *s);

/* Does that, and adds REDUCE_GRAD of every stage after its last weight gradient
 * and the messages that follow it, if the graph has replicas and s has none
 * yet. All functions here that lower a schedule do so. */
void pp_lower_collectives(struct pp_schedule *s);

/* Appends only SYNC_COPIES and SYNC_TIED, for rows that have their messages. */
void pp_lower_syncs(struct pp_schedule *s);

#endif
