/* SPDX-License-Identifier: MIT */
/* slices - where the rows of a microbatch are cut into slices.
 *
 * A slice has the same share of every microbatch, so that a plan says where
 * slices end without knowing the microbatches. A later token attends to more
 * tokens: slices of equal work have ever fewer. Every size and bound of a slice
 * comes from here. */
#ifndef PP_SCHEDULE_IR_SLICES_H
#define PP_SCHEDULE_IR_SLICES_H

#include <stddef.h>
#include <stdint.h>

#define PP_MAX_SLICE_PARTS (1 << 30)

struct pp_slices {
    int n; /* slices of a microbatch */
    /* (n) How many of ends[n - 1] equal parts of a microbatch end with each
     * slice; NULL: every slice is one part of n. */
    const int32_t *ends;
};

/* Returns the parts before slice q; q = n: all of them. */
static inline int64_t pp_slice_parts(const struct pp_slices *s, int q)
{
    return s->ends && q > 0 ? s->ends[q - 1] : q;
}

/* Returns the parts of slice q. */
static inline int64_t pp_slice_own(const struct pp_slices *s, int q)
{
    return pp_slice_parts(s, q + 1) - pp_slice_parts(s, q);
}

/* Returns what slice q has of a whole that its parts share equally. */
static inline double pp_slice_share(const struct pp_slices *s, int q,
                                    double whole)
{
    return whole * (double)pp_slice_own(s, q) / (double)pp_slice_parts(s, s->n);
}

/* Returns the first row of slice q of a microbatch of so many rows, in groups
 * of `grain` rows that slices do not divide. Slice n begins at the end. */
static inline size_t pp_slice_begin(const struct pp_slices *s, size_t rows,
                                    size_t grain, int q)
{
    return q == s->n ? rows
                     : (size_t)((int64_t)(rows / grain) * pp_slice_parts(s, q) /
                                pp_slice_parts(s, s->n)) *
                           grain;
}

/* Returns the most rows of slice q of any microbatch of at most so many. */
static inline size_t pp_slice_room(const struct pp_slices *s, size_t rows,
                                   size_t grain, int q)
{
    if (s->n == 1)
        return rows;
    int64_t all = pp_slice_parts(s, s->n);
    int64_t own = pp_slice_own(s, q);
    int64_t groups = (int64_t)((rows + grain - 1) / grain);
    return (size_t)((groups * own + all - 1) / all) * grain;
}

/* Returns the slice with the fewest rows. */
static inline int pp_slice_smallest(const struct pp_slices *s)
{
    int least = 0;
    for (int q = 1; q < s->n; q++)
        if (pp_slice_own(s, q) < pp_slice_own(s, least))
            least = q;
    return least;
}

#endif
