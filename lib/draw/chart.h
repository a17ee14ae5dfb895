/* SPDX-License-Identifier: MIT */
/* chart - curves, points and stacked bars as an SVG picture. The tools share
 * its style, in light and dark. */
#ifndef PP_DRAW_CHART_H
#define PP_DRAW_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum pp_chart_mark {
    PP_CHART_LINE,
    PP_CHART_POINTS,
    PP_CHART_BARS /* bars of one chart with the same x are stacked */
};

/* Values of one kind. All is borrowed. A point whose x or y is not finite is
 * left out, and interrupts a line. */
struct pp_series {
    const char *name; /* in the legend; NULL: not there */
    enum pp_chart_mark mark;
    int color;                /* 0 to PP_CHART_COLORS - 1 */
    bool hollow;              /* points: a ring */
    const double *x, *y;      /* (n) x ascends for lines */
    const char *const *notes; /* (n) what a viewer shows for a point; or NULL */
    const char *const *labels; /* (n) text beside points, where there is room;
                                  or NULL */
    size_t n;
};

enum { PP_CHART_COLORS = 7 };

/* A chart: axes and the series between them. Zeroed members have defaults. */
struct pp_chart {
    const char *title, *x_label, *y_label; /* NULL: none */
    const struct pp_series *series;
    int n_series;
    const char *const *groups; /* (n_groups) names of x = 0, 1, ...; or NULL */
    int n_groups;
    bool from_zero;   /* the y axis begins at 0; with bars it always does */
    bool whole;       /* x are whole numbers, and so are ticks */
    bool bytes;       /* y are bytes: ticks are GiB and so on */
    double bar_width; /* in x; 0: 0.8 */
    double height;    /* between the axes, in pixels; 0: 180 */
    double limit;     /* y of a dashed line; 0: none */
    const char *limit_label; /* in the legend */
};

/* Writes a picture of charts, `columns` side by side. title is a heading; NULL:
 * none. A chart without a finite point says so. ferror(f) tells if it failed.
 */
void pp_charts(FILE *f, const char *title, const struct pp_chart *charts, int n,
               int columns);

#endif
