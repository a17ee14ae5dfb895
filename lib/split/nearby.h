/* SPDX-License-Identifier: MIT */
/* nearby - the memory of ranks after a move of boundaries. Private to
 * lib/split.
 *
 * A rank's need depends on the boundaries of its own stages only, so it is the
 * same after many of the moves from a partition, and is computed once. */
#ifndef PP_SPLIT_NEARBY_H
#define PP_SPLIT_NEARBY_H

#include "split/cuts.h"

/* Shifts adjacent boundaries by one unit, which takes one unit from a stage and
 * gives one to another. */
struct pp_boundary_move {
    size_t first, last; /* boundaries; first is 0 for no move */
    int by;             /* 1 or -1 */
};

struct pp_nearby {
    const struct pp_split_step *problem;
    size_t n_stages; /* of one copy */
    size_t *bounds;  /* the partition */
    size_t *trial;   /* scratch */
    size_t *sides;   /* per rank: boundaries of its stages, in order */
    size_t width;    /* of them, at most */
    size_t *n_sides; /* per rank */
    double *needs;   /* per rank, first and last side that move, and direction;
                        not a number if not known yet */
    size_t n_sums;   /* needs computed so far */
};

/* The problem has a memory model. */
void pp_nearby_init(struct pp_nearby *x, const struct pp_split_step *p);

/* Accepts a zeroed struct. */
void pp_nearby_finish(struct pp_nearby *x);

/* Sets the partition from which moves begin. */
void pp_nearby_set(struct pp_nearby *x, const size_t *bounds);

/* Returns how many bytes the rank is over its limit after a move; below 0 if it
 * has room. */
double pp_nearby_over(struct pp_nearby *x, int rank, struct pp_boundary_move m);

/* Sets trial to bounds of n_stages after the move. */
void pp_move_apply(size_t n_stages, const size_t *bounds,
                   struct pp_boundary_move m, size_t *trial);

#endif
