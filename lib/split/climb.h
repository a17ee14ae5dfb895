/* SPDX-License-Identifier: MIT */
/* climb - local search for a short step. Private to lib/split.
 *
 * A move shifts adjacent boundaries by one unit, which takes one unit from a
 * stage and gives one to any other. The cuts tell which move may help, and only
 * that one is simulated. If no move helps, a climb goes on from random
 * neighbours: H. R. Lourenco, O. C. Martin, T. Stutzle, "Iterated local
 * search", 2003.
 *
 * More memory must never make the step longer. So no climb looks at the limit
 * to choose its way: it takes the moves that need least memory first, and the
 * limit only ends it. Then a climb under a higher limit is the same one
 * continued, and sees all partitions that it saw under the lower one. */
#ifndef PP_SPLIT_CLIMB_H
#define PP_SPLIT_CLIMB_H

#include "split/nearby.h"

/* Work for all climbs from one start, in pieces of simulated steps: some tenths
 * of a second. */
enum { PP_CLIMB_WORK = 40000000 };

struct pp_climb {
    struct pp_cuts cuts;
    size_t *best;    /* the best partition so far that fits */
    double makespan; /* its step; infinite if none fits */
    size_t *at;      /* the present partition; its buffers may have gaps with
                        which it does not fit */
    double at_makespan;
    size_t *home, *trial; /* scratch */
    double *cost;         /* per cut: its bound for the present partition */
    double *change; /* per cut: prefix sums over boundaries of the change of
                       cost if a boundary goes up by one, then down by one */
    size_t *order;  /* cuts by decreasing cost */
    struct pp_nearby nearby; /* moves from at; only with a limit of memory */
    int fullest;             /* rank that limited the last of these moves */
    size_t work;             /* so far */
    size_t rank_work;        /* to add up the memory of a rank */
};

/* most: cuts beside the cuts of one climb. */
void pp_climb_init(struct pp_climb *z, const struct pp_split_step *p,
                   size_t most);
void pp_climb_finish(struct pp_climb *z);

/* Climbs from a partition, if it may fit, with a limit of work. The cuts so far
 * give way to the cuts of this climb. */
void pp_climb_from(struct pp_climb *z, const size_t *start, size_t work);

/* Climbs from partitions on the way from start to one that needs little memory.
 * Without a limit of memory it climbs from start only. */
void pp_climb_frontier(struct pp_climb *z, const size_t *start, size_t work);

/* Goes to the next legal move, or the first one after {0}: it leaves every
 * stage a unit, and the fixed units in their places. Returns false at the end.
 */
bool pp_move_next(const struct pp_cuts *x, const size_t *bounds,
                  struct pp_boundary_move *m);

/* Returns true if the move takes a unit from a stage of the rank. */
bool pp_move_relieves(const struct pp_cuts *x, struct pp_boundary_move m,
                      int rank);

/* Moves a unit from a random stage to another one, if that is legal. */
void pp_move_randomly(const struct pp_cuts *x, size_t *bounds, uint64_t *draw);

#endif
