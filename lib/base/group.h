/* SPDX-License-Identifier: MIT */
/* group - some ranks that exchange data, as arithmetic and not as a list.
 *
 * The members are numbered along up to three joined axes of a mesh, innermost
 * first; lib/model/layout.h makes groups. */
#ifndef PP_BASE_GROUP_H
#define PP_BASE_GROUP_H

#include <stddef.h>

struct pp_group {
    int n, index;    /* members, and the number of this rank among them */
    int base;        /* rank whose indices on the group's axes are all 0 */
    int first, step; /* member i is at first + i step on the joined axes */
    int size[3], stride[3]; /* of these axes, innermost first */
};

/* Returns the rank of member i. */
static inline int pp_group_rank(const struct pp_group *g, int i)
{
    int at = g->first + i * g->step;
    int inner = at / g->size[0];
    return g->base + at % g->size[0] * g->stride[0] +
           inner % g->size[1] * g->stride[1] +
           inner / g->size[1] * g->stride[2];
}

/* Returns the group of two ranks, of which this one has an index. */
static inline struct pp_group pp_group_pair(int first, int second, int index)
{
    return (struct pp_group){.n = 2,
                             .index = index,
                             .base = first,
                             .step = 1,
                             .size = {2, 1, 1},
                             .stride = {second - first, 0, 0}};
}

/* Divides total values in n parts of whole grains, as equal as can be; the last
 * grain may be smaller. Returns where part k begins, and total for part n. */
static inline size_t pp_part_begin(size_t total, size_t grain, size_t n,
                                   size_t k)
{
    size_t grains = total / grain + (total % grain > 0);
    size_t at = (grains / n * k + grains % n * k / n) * grain;
    return at < total ? at : total;
}

#endif
