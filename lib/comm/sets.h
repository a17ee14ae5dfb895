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

/* The blocks that a kernel of NCCL has by default, the processors of a GPU that
 * kernels of NCCL leave to computation, and the processors of the largest GPU,
 * a B200. */
enum {
    PP_COMM_BLOCKS = 32,
    PP_COMM_LEFT_PROCESSORS = 4,
    PP_COMM_MOST_PROCESSORS = 148
};

/* Returns how many blocks a kernel of NCCL may have, at all ranks: NCCL cuts a
 * message by them. Few sets keep the default where some processors are left,
 * and many sets share half of a GPU. It is a power of two, because NCCL rounds
 * up to one. */
int pp_comm_sets_blocks(int most_sets, int processors);

/* Returns the most bytes of a GPU that NCCL takes to connect a rank to its sets
 * with kernels of so many blocks. It has buffers of three protocols for every
 * channel, one a block, from every rank that sends to this one, 4 MiB, 512 KiB
 * and 4.7 MiB (NCCL 2.27: init.cc, transport/p2p.cc); between nodes it takes
 * less. */
size_t pp_comm_sets_bytes(const struct pp_comm_sets *s, int rank, int blocks);

void pp_comm_sets_finish(struct pp_comm_sets *s);

#endif
