/* SPDX-License-Identifier: MIT */
/* vblock - a schedule from one repeated building block on stages placed there
 * and back, private to lib/sched.
 *
 * A block says in which slot of time a rank does the four things that a
 * microbatch asks of it, apart from its weight gradients; every microbatch
 * repeats it six slots later. How long a microbatch stays is how much a rank
 * keeps, so the block decides the memory. The ends of the schedule, where the
 * blocks leave gaps, are then squeezed as far as that memory allows. A slot is
 * the time of any one action: no cost enters. Qi et al., "Pipeline Parallelism
 * with Controllable Memory", NeurIPS 2024. */
#ifndef PP_SCHED_VBLOCK_H
#define PP_SCHED_VBLOCK_H

#include "sched/schedule.h"

/* What a microbatch asks of a rank, in order: forward on the way down and up,
 * input gradient on the way up and down. */
enum { PP_VBLOCK_OPS = 4, PP_VBLOCK_PERIOD = 6 };

/* The slots of the first microbatch on one rank, ascending and all different
 * modulo the period. A rank's slots come after those of the ranks that it
 * waits for. */
struct pp_vblock {
    int slot[PP_VBLOCK_OPS];
};

/* Fills the rows of s, which is initialised and empty, on a chain of two
 * stages a rank, there and back. blocks: one for each rank. */
int pp_vblock_emit(struct pp_schedule *s, const struct pp_vblock *blocks,
                   int n_microbatches, struct pp_err *err) PP_MUST_USE;

#endif
