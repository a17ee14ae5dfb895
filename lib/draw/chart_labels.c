/* SPDX-License-Identifier: MIT */
/* chart_labels - text beside points. A label without a place is left out; the
 * note of the point can still be read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "draw/chart_marks.h"
#include "draw/page.h"

enum { TEXT = 11 }; /* height of a label */

static const double character = 6.2; /* width, with some reserve */

struct box {
    double x, y, width, height; /* x and y of the upper left corner */
};

struct label_places {
    const struct pp_chart_area *area;
    struct box *taken;
    size_t n;
};

static bool overlap(const struct box *a, const struct box *b)
{
    return a->x < b->x + b->width && b->x < a->x + a->width &&
           a->y < b->y + b->height && b->y < a->y + a->height;
}

static bool is_free(const struct label_places *p, const struct box *b)
{
    const struct pp_chart_area *a = p->area;
    bool inside = b->x >= a->left && b->x + b->width <= a->left + a->width &&
                  b->y >= a->top && b->y + b->height <= a->top + a->height;
    for (size_t i = 0; inside && i < p->n; i++)
        inside = !overlap(b, &p->taken[i]);
    return inside;
}

/* Tries the right and the left, above and below, and the corners. */
static void place_label(FILE *f, struct label_places *p, double x, double y,
                        const char *text)
{
    static const double sides[][2] = {{1, 0},  {-1, 0}, {0, -1},  {0, 1},
                                      {1, -1}, {1, 1},  {-1, -1}, {-1, 1}};
    double width = character * (double)strlen(text);
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        double dx = sides[i][0], dy = sides[i][1];
        struct box b = {x + dx * (PP_CHART_RADIUS + 4) - (1 - dx) / 2 * width,
                        y + dy * (PP_CHART_RADIUS + TEXT / 2.0 + 1) -
                            TEXT / 2.0,
                        width, TEXT};
        if (!is_free(p, &b))
            continue;
        p->taken[p->n++] = b;
        pp_svg_text(f, "m", b.x, b.y + TEXT - 2, text);
        return;
    }
}

static void take_points(struct label_places *p, const struct pp_series *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->x[i]) && isfinite(s->y[i]))
            p->taken[p->n++] =
                (struct box){pp_chart_x(p->area, s->x[i]) - PP_CHART_RADIUS,
                             pp_chart_y(p->area, s->y[i]) - PP_CHART_RADIUS,
                             2 * PP_CHART_RADIUS, 2 * PP_CHART_RADIUS};
}

void pp_chart_labels(FILE *f, const struct pp_chart *c,
                     const struct pp_chart_area *a)
{
    size_t n = 0;
    for (int k = 0; k < c->n_series; k++)
        n += c->series[k].mark == PP_CHART_POINTS ? 2 * c->series[k].n : 0;
    struct label_places p = {a, pp_calloc(n + 1, sizeof *p.taken), 0};
    for (int k = 0; k < c->n_series; k++)
        if (c->series[k].mark == PP_CHART_POINTS)
            take_points(&p, &c->series[k]);
    for (int k = 0; k < c->n_series; k++) {
        const struct pp_series *s = &c->series[k];
        for (size_t i = 0; i < s->n && s->labels; i++)
            if (isfinite(s->x[i]) && isfinite(s->y[i]))
                place_label(f, &p, pp_chart_x(a, s->x[i]),
                            pp_chart_y(a, s->y[i]), s->labels[i]);
    }
    free(p.taken);
}
