/* SPDX-License-Identifier: MIT */
/* chart_marks - lines, points and bars. */
#include "draw/chart_marks.h"

#include <math.h>

#include "draw/page.h"

static bool is_point(const struct pp_series *s, size_t i)
{
    return isfinite(s->x[i]) && isfinite(s->y[i]);
}

static double bar_width(const struct pp_chart *c)
{
    return c->bar_width > 0 ? c->bar_width : .8;
}

/* Returns where bar i of series k begins: the sum of the earlier series' bars
 * with its x. */
static double below(const struct pp_chart *c, int k, size_t i)
{
    double sum = 0, x = c->series[k].x[i];
    for (int e = 0; e < k; e++) {
        const struct pp_series *s = &c->series[e];
        if (s->mark != PP_CHART_BARS)
            continue;
        /* Series of one chart mostly have the same x at the same place. */
        if (i < s->n && s->x[i] == x) {
            sum += is_point(s, i) ? s->y[i] : 0;
            continue;
        }
        for (size_t j = 0; j < s->n; j++)
            sum += s->x[j] == x && is_point(s, j) ? s->y[j] : 0;
    }
    return sum;
}

bool pp_chart_range(const struct pp_chart *c, struct pp_chart_area *a)
{
    a->x0 = a->y0 = INFINITY;
    a->x1 = a->y1 = -INFINITY;
    for (int k = 0; k < c->n_series; k++) {
        const struct pp_series *s = &c->series[k];
        bool bars = s->mark == PP_CHART_BARS;
        double half = bars ? bar_width(c) / 2 : 0;
        for (size_t i = 0; i < s->n; i++) {
            if (!is_point(s, i))
                continue;
            double y = s->y[i] + (bars ? below(c, k, i) : 0);
            a->x0 = fmin(a->x0, s->x[i] - half);
            a->x1 = fmax(a->x1, s->x[i] + half);
            a->y0 = fmin(a->y0, bars ? 0 : y);
            a->y1 = fmax(a->y1, y);
        }
    }
    return a->x0 <= a->x1;
}

/* Ends an element that may have a note. */
static void close_element(FILE *f, const struct pp_series *s, size_t i,
                          const char *name)
{
    if (!s->notes || !s->notes[i]) {
        fputs("/>\n", f);
        return;
    }
    fputs("><title>", f);
    pp_svg_escape(f, s->notes[i]);
    fprintf(f, "</title></%s>\n", name);
}

static void points(FILE *f, const struct pp_series *s,
                   const struct pp_chart_area *a)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!is_point(s, i))
            continue;
        fprintf(f, "<circle class=\"%s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"",
                s->hollow ? "o" : "a", s->color, pp_chart_x(a, s->x[i]),
                pp_chart_y(a, s->y[i]), PP_CHART_RADIUS);
        close_element(f, s, i, "circle");
    }
}

static void bars(FILE *f, const struct pp_chart *c, int k,
                 const struct pp_chart_area *a)
{
    const struct pp_series *s = &c->series[k];
    double half = bar_width(c) / 2;
    for (size_t i = 0; i < s->n; i++) {
        if (!is_point(s, i) || s->y[i] == 0)
            continue;
        double from = below(c, k, i), left = pp_chart_x(a, s->x[i] - half);
        double top = pp_chart_y(a, from + s->y[i]);
        fprintf(f,
                "<rect class=\"a%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                "height=\"%.1f\"",
                s->color, left, top,
                fmax(pp_chart_x(a, s->x[i] + half) - left, .5),
                pp_chart_y(a, from) - top);
        close_element(f, s, i, "rect");
    }
}

/* The points of a line that share a column of pixels: the line goes through
 * its first, least, largest and last y. */
struct pixel_column {
    double x, first, least, most, last;
};

static void move_to(FILE *f, char *command, double x, double y)
{
    fprintf(f, "%c%.1f %.1f", *command, x, y);
    *command = 'L';
}

static void flush_column(FILE *f, char *command, const struct pixel_column *c)
{
    move_to(f, command, c->x, c->first);
    if (c->least < c->most) {
        move_to(f, command, c->x, c->least);
        move_to(f, command, c->x, c->most);
        move_to(f, command, c->x, c->last);
    }
}

static void line(FILE *f, const struct pp_series *s,
                 const struct pp_chart_area *a)
{
    char command = 'M';
    struct pixel_column c = {0};
    bool open = false;
    fprintf(f, "<path class=\"l%d\" d=\"", s->color);
    for (size_t i = 0; i < s->n; i++) {
        if (!is_point(s, i)) {
            if (open)
                flush_column(f, &command, &c);
            open = false;
            command = 'M';
            continue;
        }
        double x = pp_chart_x(a, s->x[i]), y = pp_chart_y(a, s->y[i]);
        if (open && x - c.x < .5) {
            c.least = fmin(c.least, y);
            c.most = fmax(c.most, y);
            c.last = y;
            continue;
        }
        if (open)
            flush_column(f, &command, &c);
        c = (struct pixel_column){x, y, y, y, y};
        open = true;
    }
    if (open)
        flush_column(f, &command, &c);
    fputs("\"/>\n", f);
}

void pp_chart_marks(FILE *f, const struct pp_chart *c,
                    const struct pp_chart_area *a)
{
    for (int k = 0; k < c->n_series; k++) {
        const struct pp_series *s = &c->series[k];
        if (s->mark == PP_CHART_BARS)
            bars(f, c, k, a);
        else if (s->mark == PP_CHART_LINE)
            line(f, s, a);
        else
            points(f, s, a);
    }
}
