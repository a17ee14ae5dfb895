/* SPDX-License-Identifier: MIT */
/* svg - simulated schedules as a picture to scale: for each rank a row of its
 * actions, and below it the memory that it holds. Several schedules share one
 * time axis. */
#ifndef PP_SCHEDULE_DRAW_SVG_H
#define PP_SCHEDULE_DRAW_SVG_H

#include <stdio.h>

#include "schedule/simulate/sim.h"

/* One schedule of the picture. All pointers are borrowed. */
struct pp_svg_panel {
    const struct pp_schedule *schedule;
    const char *title; /* before the schedule's name; NULL: nothing */
    const struct pp_sim *sim;
    const struct pp_messages *messages; /* drawn if they are few; or NULL */
    const struct pp_memory_timeline *memory; /* per rank, or NULL */
    const double *limit;      /* memory limit per rank; NULL: none */
    const char *memory_unit;  /* "slot"; NULL: bytes */
    double bound;             /* lower bound of the makespan; 0: unknown */
    const char *const *names; /* per rank, of the components that it has; or
                                 NULL */
};

struct pp_svg {
    int width;        /* pixels; 0: as many as labels need, up to a screen */
    const char *unit; /* unit of the times, such as "flop"; NULL: none */
};

/* Writes the picture. Fails with PP_EXIT_INPUT if nothing takes time. Stream
 * errors are the caller's to check. */
int pp_svg(FILE *f, const struct pp_svg_panel *panels, int n_panels,
           const struct pp_svg *o, struct pp_err *err) PP_MUST_USE;

#endif
