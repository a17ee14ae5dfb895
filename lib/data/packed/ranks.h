/* SPDX-License-Identifier: MIT */
/* ranks - which context-parallel ranks have a sequence of a packed set.
 *
 * By default all ranks share every sequence. Or each sequence has a range of
 * ranks of its own; in a bin, sequences on more ranks come first. Ranks may
 * then have different numbers of tokens. */
#ifndef PP_DATA_PACKED_RANKS_H
#define PP_DATA_PACKED_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rank_range.h"

struct pp_packed;
struct pp_bin;

/* Returns the positions of a bin that a rank of `cp` has. */
uint32_t pp_bin_rank_tokens(const struct pp_bin *b, int cp, int rank);

/* Returns the positions of a microbatch for which memory is planned: the
 * positions of the largest bin, or, if its sequences are on ranks of their own,
 * `cp` times the most of a rank. */
uint32_t pp_packed_room(const struct pp_packed *p, int cp);

/* Checks that the sequences are on ranks of as many as a mesh has. One rank
 * takes all of them. */
int pp_packed_check_mesh(const struct pp_packed *p, int cp,
                         struct pp_err *err) PP_MUST_USE;

/* Returns the most positions of a bin on a rank. The set has ranges. */
uint32_t pp_packed_most_rank_tokens(const struct pp_packed *p);

#endif
