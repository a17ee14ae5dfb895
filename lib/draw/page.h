/* SPDX-License-Identifier: MIT */
/* page - what all pictures share: numbers and ticks of axes, the page of an
 * SVG file, its text, and one style that is light, and dark on screens that ask
 * for it. */
#ifndef PP_DRAW_PAGE_H
#define PP_DRAW_PAGE_H

#include <stdio.h>

/* Longest text of a number on an axis, with the final NUL. */
#define PP_AXIS_TEXT 16

/* Returns the smallest of 1, 2, 5, 10, ... (times any power of ten) that is not
 * below least, which is positive. */
double pp_axis_step(double least);

/* Writes a number in at most five characters if possible: 12, 3.5, 120k, 4.2G.
 * Returns its length. */
int pp_axis_format(double v, char *text);

/* Writes v with at most two decimals. */
void pp_svg_number(FILE *f, double v);

/* Writes text as XML or as part of an attribute. Control characters, which XML
 * cannot hold, become spaces. */
void pp_svg_escape(FILE *f, const char *text);

/* Writes a text element. Classes: h heading, m muted, e right-aligned, c
 * centred. */
void pp_svg_text(FILE *f, const char *class, double x, double y,
                 const char *text);

/* Begins the file: the size of the page in pixels. The title follows, and then
 * "</title>". */
void pp_svg_begin(FILE *f, double width, double height);

/* Writes the style sheet in four parts: after the second and the third the
 * picture may add rules of its own, for light and for dark screens. */
void pp_svg_style_begin(FILE *f);
void pp_svg_style_dark(FILE *f);
void pp_svg_style_end(FILE *f);

#endif
