/* SPDX-License-Identifier: MIT */
/* sets - the sets of ranks that exchange messages, for a transport that
 * connects ranks before the first step: which there are, and the steps in which
 * they connect. Pure: every rank of a job computes the same list.
 *
 * A message of FORWARD or BACKWARD belongs to the set {sender, receiver}. Other
 * messages belong to a set of their direction that has all ranks of the group
 * that exchanges them; so groups that lie in a larger one need no set of their
 * own. */
#ifndef PP_COMM_SETS_H
#define PP_COMM_SETS_H

#include "comm/comm.h"

struct pp_comm_set {
    enum pp_direction direction;
    size_t first; /* index of its ranks in ranks.items */
    int n;
    int step; /* of pp_comm_sets_order */
};

/* Zeroed, it is empty. Its owner calls pp_comm_sets_finish. */
struct pp_comm_sets {
    struct pp_comm_set *items;
    size_t n, capacity;
    struct {
        int *items;
        size_t n, capacity;
    } ranks; /* of all sets */
};

static inline const int *pp_comm_set_ranks(const struct pp_comm_sets *s,
                                           const struct pp_comm_set *set)
{
    return s->ranks.items + set->first;
}

/* Adds the messages from a rank to another in FORWARD or BACKWARD. */
void pp_comm_sets_add_pair(struct pp_comm_sets *s, int from, int to,
                           enum pp_direction direction);

/* Adds the messages of a group in another direction, if it has two ranks. It
 * does nothing for a rank that is not the first of the group, so that each may
 * be added by all of its ranks. */
void pp_comm_sets_add_group(struct pp_comm_sets *s, const struct pp_group *g,
                            enum pp_direction direction);

/* Drops the sets that are there twice or lie in another, and puts the others in
 * the order in which every rank connects its own. Sets of one step have no rank
 * in common, so their ranks connect at the same time: a rank with k sets of two
 * ranks each waits for less than 2 k steps, however many ranks there are. Ranks
 * are below size. */
void pp_comm_sets_order(struct pp_comm_sets *s, int size);

/* Returns the most sets that a rank is in. */
int pp_comm_sets_most(const struct pp_comm_sets *s, int size);

void pp_comm_sets_finish(struct pp_comm_sets *s);

#endif
