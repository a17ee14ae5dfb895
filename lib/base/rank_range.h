/* SPDX-License-Identifier: MIT */
/* rank_range - neighbouring context-parallel ranks that share a sequence.
 *
 * One of c ranks that share all sequences has chunks r and 2c - 1 - r of each
 * sequence's 2c chunks. If sequences have ranks of their own, the same holds
 * for the n ranks of each; a sequence on one rank is there as a whole. */
#ifndef PP_BASE_RANK_RANGE_H
#define PP_BASE_RANK_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum { PP_MOST_SIZED_RANKS = 1024 };

/* Ranks first .. first + n - 1. n divides the number of all ranks, and first is
 * a multiple of n. */
struct pp_rank_range {
    uint16_t first, n;
};

/* Returns whether a rank has a part of the sequence. */
static inline bool pp_range_has(struct pp_rank_range r, int rank)
{
    return rank >= r.first && rank < r.first + r.n;
}

#endif
