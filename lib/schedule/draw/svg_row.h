/* SPDX-License-Identifier: MIT */
/* svg_rank - one rank of the SVG picture: its lane of actions and the strip of
 * memory below it, private to lib/schedule/draw. */
#ifndef PP_SCHEDULE_DRAW_SVG_ROW_H
#define PP_SCHEDULE_DRAW_SVG_ROW_H

#include "schedule/draw/svg.h"

/* Pixels, and what the ranks of a panel have in common. */
struct pp_svg_rows {
    FILE *f;
    double scale;         /* pixels per time */
    double height, strip; /* heights; strip 0: there is none */
    double font;          /* of labels where there is room; 0: no labels */
    double most;          /* memory at the top of the strip */
    const int *chunk;     /* per stage */
    int n_chunks, n_shades;
    bool titles; /* an element for each action, with a title to hover over */
};

/* The smaller font, for cells where the other does not fit. */
#define PP_SVG_SMALL_FONT 7.0

/* Width of n digits in a font. */
static inline double pp_svg_digits(int n, double font)
{
    return 0.62 * font * n;
}

/* Writes v with at most two decimals. */
void pp_svg_number(FILE *f, double v);

/* The idle lane as a ground, and the strip with its limit and its peak. The
 * origin is the lane's upper left corner. */
void pp_svg_ground(const struct pp_svg_rows *l, const struct pp_svg_panel *p,
                   int row);

/* The actions and their labels. */
void pp_svg_cells(const struct pp_svg_rows *l, const struct pp_svg_panel *p,
                  int row);

#endif
