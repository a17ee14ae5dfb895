/* SPDX-License-Identifier: MIT */
/* axis - ticks and short numbers for the time axes of the pictures, private to
 * lib/schedule/draw. */
#ifndef PP_SCHEDULE_DRAW_AXIS_H
#define PP_SCHEDULE_DRAW_AXIS_H

/* Longest text of a number on an axis, with the final NUL. */
#define PP_AXIS_TEXT 16

/* The smallest of 1, 2, 5, 10, ... (any power of ten) that is not below least,
 * which is positive. */
double pp_axis_step(double least);

/* A number of at most five characters where it can be: 12, 3.5, 120k, 4.2G.
 * Returns its length. */
int pp_axis_format(double v, char *text);

#endif
