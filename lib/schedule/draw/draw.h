/* SPDX-License-Identifier: MIT */
/* draw - a simulated schedule as a timeline of text, to scale. */
#ifndef PP_SCHEDULE_DRAW_DRAW_H
#define PP_SCHEDULE_DRAW_DRAW_H

#include <stdio.h>

#include "schedule/simulate/sim.h"

/* Returns, per stage, its place among its rank's stages. Sets *most to the
 * largest number of stages on one rank. The caller frees the array. */
int *pp_chunks(const struct pp_graph *g, int *most);

struct pp_draw {
    int width;        /* columns at most; 0: as many as are legible */
    bool color;       /* ANSI colours */
    bool ascii;       /* no Unicode */
    const char *unit; /* unit of the simulated times, at most four letters:
                         "flop"; NULL if they have none */
    const struct pp_sim *plan; /* if sim was measured: the plan, drawn below
                                  each rank, without figures; or NULL */
    const char *const *names;  /* per rank, of the components that it has; or
                                  NULL */
};

/* Writes the picture, a legend and the figures (makespan, bubble, peak) to
 * f. Stream errors are the caller's to check. */
int pp_draw(FILE *f, const struct pp_schedule *s, const struct pp_sim *sim,
            const struct pp_draw *d, struct pp_err *err) PP_MUST_USE;

#endif
