/* SPDX-License-Identifier: MIT */
/* picture - what the text timeline and the SVG picture share, private to
 * lib/schedule/draw: the chunk number of each stage. Axes are in draw/page.h.
 */
#ifndef PP_SCHEDULE_DRAW_PICTURE_H
#define PP_SCHEDULE_DRAW_PICTURE_H

#include "draw/page.h"
#include "schedule/ir/graph.h"

/* Returns, per stage, its place among its rank's stages. Sets *most to the
 * largest number of stages on one rank. The caller frees the array. */
int *pp_chunks(const struct pp_graph *g, int *most);

#endif
