/* SPDX-License-Identifier: MIT */
/* picture - what the text timeline and the SVG picture share, private to
 * lib/schedule/draw: ticks and short numbers of the time axis, and the chunk
 * number of each stage. */
#ifndef PP_SCHEDULE_DRAW_PICTURE_H
#define PP_SCHEDULE_DRAW_PICTURE_H

#include "schedule/ir/graph.h"

/* Longest text of a number on an axis, with the final NUL. */
#define PP_AXIS_TEXT 16

/* Returns the smallest of 1, 2, 5, 10, ... (times any power of ten) that is not
 * below least, which is positive. */
double pp_axis_step(double least);

/* Writes a number in at most five characters if possible: 12, 3.5, 120k, 4.2G.
 * Returns its length. */
int pp_axis_format(double v, char *text);

/* Returns, per stage, its place among its rank's stages. Sets *most to the
 * largest number of stages on one rank. The caller frees the array. NULL with
 * *err filled on failure. */
int *pp_chunks(const struct pp_graph *g, int *most, struct pp_err *err);

#endif
