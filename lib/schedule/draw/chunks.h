/* SPDX-License-Identifier: MIT */
/* chunks - which of its rank's stages a stage is, for pictures, private to
 * lib/schedule/draw. */
#ifndef PP_SCHEDULE_DRAW_CHUNKS_H
#define PP_SCHEDULE_DRAW_CHUNKS_H

#include "schedule/ir/graph.h"

/* Per stage its place among its rank's stages, malloc'ed; *most is the largest
 * number on one rank. NULL with *err filled. */
int *pp_chunks(const struct pp_graph *g, int *most, struct pp_err *err);

#endif
