/* SPDX-License-Identifier: MIT */
/* draw - a simulated schedule as a timeline of text, to scale. */
#ifndef PP_SCHEDULE_DRAW_DRAW_H
#define PP_SCHEDULE_DRAW_DRAW_H

#include <stdio.h>

#include "schedule/simulate/sim.h"

struct pp_draw {
    int width;        /* columns to fill at most; 0: as wide as legible */
    bool color;       /* ANSI colours */
    bool ascii;       /* no Unicode */
    const char *unit; /* of the simulated times, four letters: "flop"; NULL
                         where they have none */
    const struct pp_sim *plan; /* drawn below each rank of sim, which then was
                                  measured: no figures follow; or NULL */
};

/* Writes the picture, a legend and the figures (makespan, bubble, peak) to
 * f. Stream errors are the caller's to check. */
int pp_draw(FILE *f, const struct pp_schedule *s, const struct pp_sim *sim,
            const struct pp_draw *d, struct pp_err *err) PP_MUST_USE;

#endif
