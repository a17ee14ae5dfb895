/* SPDX-License-Identifier: MIT */
/* lower - adds every message, derived from deps, to a list of compute actions.
 *
 * The order is constructive: compute actions are walked in one global order
 * (simulated starts at unit cost, ties by stage and microbatch) and
 * each transfer is listed on both ranks at its producer's completion. Every
 * rank's list is a subsequence of that one order, so the result makes progress
 * at any channel depth, rendezvous included. Also appends SYNC_COPIES where the
 * weights are there more than once, and SYNC_TIED where the graph has tied
 * stages. */
#ifndef PP_SCHEDULE_IR_LOWER_H
#define PP_SCHEDULE_IR_LOWER_H

#include "schedule/ir/schedule.h"

/* Replaces the rows of s, which hold no messages. Overlap pairs stay together;
 * UNSHARD, RESHARD and REDUCE_GRAD stay before the compute action that they
 * precede. Fails with PP_EXIT_NO when the rows cannot run to the end, naming
 * the first action of each stuck rank. */
int pp_lower(struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

/* What lowering adds beside messages, SYNC_COPIES and SYNC_TIED, for rows that
 * have theirs. */
int pp_lower_syncs(struct pp_schedule *s, struct pp_err *err) PP_MUST_USE;

#endif
