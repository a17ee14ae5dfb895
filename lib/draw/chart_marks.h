/* SPDX-License-Identifier: MIT */
/* chart_marks - what is drawn between the axes. Private to lib/draw. */
#ifndef PP_DRAW_CHART_MARKS_H
#define PP_DRAW_CHART_MARKS_H

#include "draw/chart.h"

/* The rectangle between the axes in pixels, and the values at its edges. */
struct pp_chart_area {
    double left, top, width, height;
    double x0, x1, y0, y1;
};

/* Finds the least and largest x and y; stacked bars count with their sums.
 * Returns false if no point is finite. */
bool pp_chart_range(const struct pp_chart *c, struct pp_chart_area *a);

/* Draws the series. */
void pp_chart_marks(FILE *f, const struct pp_chart *c,
                    const struct pp_chart_area *a);

/* Writes the labels of points where they cover no point and no other label. */
void pp_chart_labels(FILE *f, const struct pp_chart *c,
                     const struct pp_chart_area *a);

enum { PP_CHART_RADIUS = 4 }; /* of a point */

static inline double pp_chart_x(const struct pp_chart_area *a, double x)
{
    return a->left + (x - a->x0) / (a->x1 - a->x0) * a->width;
}

static inline double pp_chart_y(const struct pp_chart_area *a, double y)
{
    return a->top + (a->y1 - y) / (a->y1 - a->y0) * a->height;
}

#endif
