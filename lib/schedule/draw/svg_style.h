/* SPDX-License-Identifier: MIT */
/* svg_style - the colours of the SVG picture and the legend that explains
 * them, private to lib/schedule/draw. */
#ifndef PP_SCHEDULE_DRAW_SVG_STYLE_H
#define PP_SCHEDULE_DRAW_SVG_STYLE_H

#include <stdbool.h>
#include <stdio.h>

#include "schedule/ir/action.h"

/* Most shades of a colour; a rank with more stages shares them out. */
enum { PP_SVG_SHADES = 6 };

/* The class of an action's cell: "f0", "w3". */
const char *pp_svg_class(enum pp_op op, int shade);

/* The style sheet: light, and dark on screens that ask for it. */
void pp_svg_style(FILE *f, int n_shades, double font);

/* What the legend has to explain. */
struct pp_svg_legend {
    bool ops[4]; /* by enum pp_op */
    bool pairs, messages, memory, limit, bound;
    int n_shades, n_chunks;
    char memory_text[64]; /* "slots, up to 8" */
    char label[64];       /* "3: microbatch 3"; empty: there are no labels */
};

/* Writes the legend from (x, y) on, in lines that end before right, or with f
 * NULL only measures. Returns its height. */
double pp_svg_legend(FILE *f, const struct pp_svg_legend *l, double x, double y,
                     double right);

#endif
