/* SPDX-License-Identifier: MIT */
/* split_fill - a partition that fits in memory, or that there is none, private
 * to the split_*.c files.
 *
 * Where every rank has one stage, what matters of the first stages is how many
 * units they hold. Where ranks hold nothing but stages s and n - 1 - s of n (a
 * V of two chunks, two copies both ways), stages nest like the skins of an
 * onion: what matters of the outer ones is how many of the first units they
 * hold and how many of the last. All numbers that can be are gone through,
 * stage by stage or skin by skin. */
#ifndef PP_SPLIT_SPLIT_FEASIBLE_H
#define PP_SPLIT_SPLIT_FEASIBLE_H

#include "split/split_step.h"

enum pp_fill {
    PP_FILL_UNKNOWN, /* stages lie otherwise, or it would take long */
    PP_FILL_FOUND,   /* bounds fit in memory, and no stage is empty */
    PP_FILL_NONE     /* no such partition does */
};

/* Sets bounds where some are found. There is memory. */
int pp_split_feasible(const struct pp_split_step *p, size_t *bounds,
                      enum pp_fill *answer, struct pp_err *err) PP_MUST_USE;

#endif
