/* SPDX-License-Identifier: MIT */
/* svg_row - parts of the SVG picture, private to lib/schedule/draw: one rank
 * with its row of actions and the strip of memory below it, and the colours and
 * the legend. */
#ifndef PP_SCHEDULE_DRAW_SVG_ROW_H
#define PP_SCHEDULE_DRAW_SVG_ROW_H

#include "draw/page.h"
#include "schedule/draw/svg.h"

/* Sizes in pixels, and what the ranks of a panel have in common. */
struct pp_svg_rows {
    FILE *f;
    double scale;         /* pixels per time */
    double height, strip; /* heights; strip is 0 if there is none */
    double font;          /* font size of the labels; 0: no labels */
    double most;          /* memory at the top of the strip */
    const int *chunk;     /* per stage */
    int n_chunks, n_shades;
    bool titles; /* give each action an element with a title to hover over */
};

/* The smaller font, for cells in which the other does not fit. */
#define PP_SVG_SMALL_FONT 7.0

/* Returns the width of n digits in a font. */
static inline double pp_svg_digits(int n, double font)
{
    return 0.62 * font * n;
}

/* Draws the background of the row, and the strip with its limit and its peak.
 * The origin is the row's upper left corner. */
void pp_svg_ground(const struct pp_svg_rows *l, const struct pp_svg_panel *p,
                   int row);

/* Draws the actions and their labels. */
void pp_svg_cells(const struct pp_svg_rows *l, const struct pp_svg_panel *p,
                  int row);

/* --- colours and legend --- */

/* The most shades of a colour; a rank with more stages shares them. */
enum { PP_SVG_SHADES = 6 };

/* The kinds of cells: cells of computation, by enum pp_op, and collectives and
 * copies. */
enum { PP_SVG_COLLECTIVE = PP_W + 1, PP_SVG_KINDS };

/* Returns the kind of cell that the action has, or -1 for none. */
static inline int pp_svg_kind(enum pp_op op)
{
    return pp_is_compute(op)    ? (int)op
           : pp_is_transfer(op) ? PP_SVG_COLLECTIVE
                                : -1;
}

/* Returns the class of a cell: "f0", "w3", "r0". */
const char *pp_svg_class(int kind, int shade);

/* Writes the style sheet: light, and dark on screens that ask for it. */
void pp_svg_style(FILE *f, int n_shades, double font);

/* The items that the legend explains. */
struct pp_svg_legend {
    bool kinds[PP_SVG_KINDS];
    bool copies, pairs, messages, memory, limit, bound;
    int n_shades, n_chunks;
    char memory_text[64]; /* "slots, up to 8" */
    char label[64];       /* "3: microbatch 3"; empty if there are no labels */
};

/* Writes the legend from (x, y) on, in lines that end before right. If f is
 * NULL it only measures. Returns the legend's height. */
double pp_svg_legend(FILE *f, const struct pp_svg_legend *l, double x, double y,
                     double right);

#endif
