/* SPDX-License-Identifier: MIT */
/* check - checks that a lowered schedule is complete, ordered and free of
 * deadlock.
 *
 * The checks, in this order:
 *   - Every stage runs F and its backward exactly once for every slice of every
 *     microbatch, on its own rank. If there are copies of the weights, this
 *     holds for one copy, and no stage of the others works on the microbatch.
 *   - The order within a row follows deps.
 *   - Every message that deps asks for is sent and received once.
 *   - OFFLOAD of a microbatch comes once, between its F and its backward, and
 *     RELOAD between the two; no slices then.
 *   - UNSHARD and RESHARD of a stage alternate, if present. They are if the
 *     ranks of a row divide the weights.
 *   - REDUCE_GRAD of a stage comes once, after its last weight gradient and
 *     before SYNC_COPIES and SYNC_TIED. If the graph has replicas, all stages
 *     have it or none.
 *   - Each channel (from, to, direction) receives in the order it sends.
 *   - All ranks reach the end at the schedule's channel depth.
 * Rows are checked before ranks are played, so the message names the simplest
 * fault.
 *
 * The schedule has rows; a mesh plays each row on several ranks (layout.h). A
 * valid schedule holds for these ranks too, at every depth, if
 *   - all members of a group that exchanges data play one row;
 *   - they do so only inside a compute action or in a sync of that row;
 *   - messages are pointwise: a rank sends to the rank at its own place in
 *     another row; or over a bridge: in a SEND a rank sends to all ranks of the
 *     other row, and in a RECV it posts a receive from all of them, empty
 *     messages included.
 * Proof. Take a run of the rows, and let all ranks of a row do what the row
 * does. A message that the row can send or receive, each of its ranks can, as
 * its channel has seen the same messages: over a bridge, every channel between
 * the two rows. So a bridge is one joint event of its rows. In a collective all
 * members stand in the same action, so it ends. Hence every run of rows is a
 * run of ranks. As no rank has a choice, an action that can be done stays so
 * until it is done, and all runs of the ranks end in the same state: if the
 * rows reach their end, so do the ranks in any order. Conversely, if the rows
 * deadlock, that state is one in which no rank can move. */
#ifndef PP_SCHEDULE_CHECK_CHECK_H
#define PP_SCHEDULE_CHECK_CHECK_H

#include "base/err.h"
#include "schedule/ir/schedule.h"

/* Checks each row alone, and that nothing is missing. If lowered, messages are
 * checked too; otherwise channels, SYNC_COPIES, SYNC_TIED and the order across
 * rows are not. Accepts any contents. On success every index in every action is
 * in range, and every message has an edge of the graph between two rows. */
int pp_check_rows(const struct pp_schedule *s, bool lowered,
                  struct pp_err *err) PP_MUST_USE;

/* Like pp_check_rows, and goes on after a fault. Adds the faults to the list,
 * with their rows and places; later ones may follow from earlier ones. Returns
 * -1 only if the system failed. */
int pp_check_rows_all(const struct pp_schedule *s, bool lowered,
                      struct pp_faults *faults, struct pp_err *err) PP_MUST_USE;

/* Returns the first trained stage without REDUCE_GRAD, or -1. This is no fault
 * in itself: a single replica has nothing to reduce. */
int pp_unreduced_stage(const struct pp_schedule *s);

/* Like pp_check without the last check, which pp_check_deadlock does. */
int pp_check_order(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* Returns 0 if the schedule is valid. Fails with PP_EXIT_NO and a text such as
 * "rank 1, action 3: '1B0' comes before 1F0". For a deadlock the text gives a
 * shortest cycle of waits and the smallest channel depth that avoids it, if
 * there is one. */
int pp_check(const struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

enum { PP_N_SEMANTICS = 6 };

/* The rules by which sends and receives block. Transports differ: a schedule
 * that runs over separate channels of some depth may hang if a pair of ranks
 * shares one NCCL communicator, or if a rank has one for all its peers. */
struct pp_semantics {
    const char *name;
    const char *summary; /* one line */
    int streams;         /* private: enum pp_streams of parts.h */
    bool tagged;   /* forward and backward messages have separate channels */
    bool buffered; /* messages never block each other */
    bool by_depth; /* the schedule's channel_depth is the default */
};

/* The semantics buffered, channel (pprun's), rendezvous, pair, rank and
 * blocking. */
extern const struct pp_semantics pp_semantics[PP_N_SEMANTICS];

/* Returns the semantics of that name, or NULL. */
const struct pp_semantics *pp_semantics_find(const char *name);

/* Returns the number of messages that a channel holds under m; INT_MAX means
 * any number. depth is the depth that the user asked for, or -1. */
int pp_semantics_depth(const struct pp_semantics *m,
                       const struct pp_schedule *s, int depth);

/* Returns 0 if s runs to its end with channels of that depth; buffered
 * semantics ignores depth. pp_check_order must hold for s. Fails with
 * PP_EXIT_NO and a shortest cycle of waits and the smallest depth that avoids
 * it, or, if forward and backward messages share a channel, with the first
 * message that would be taken for another. */
int pp_check_deadlock(const struct pp_schedule *s, const struct pp_semantics *m,
                      int depth, struct pp_err *err) PP_MUST_USE;

#endif
