/* SPDX-License-Identifier: MIT */
/* chart - the page, and the axes and the legend of each chart.
 *
 * Any two colours differ for all common kinds of colour blindness. */
#include "draw/chart.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "draw/chart_marks.h"
#include "draw/page.h"

enum {
    WIDTH = 900,  /* of the page, in pixels */
    EDGE = 16,    /* margin of the page, and between charts */
    HEADING = 34, /* the page's title */
    LEFT = 62,    /* ticks of y */
    TOP = 44,     /* title and legend of a chart */
    BOTTOM = 40,  /* ticks and label of x */
    LINE = 16
};

/* Width of a character, with some reserve, as the font is the viewer's. */
static const double character = 6.2;

static const char *const colors[2][PP_CHART_COLORS] = {
    {"#2f76c0", "#d0603f", "#1f8f84", "#c98f12", "#8250df", "#8c959f",
     "#8a5a2b"},
    {"#6ab0f3", "#f08a6a", "#4fc7ba", "#f0c04a", "#bc8cff", "#6e7781",
     "#c9986a"},
};

static void print_colors(FILE *f, int theme)
{
    for (int i = 0; i < PP_CHART_COLORS; i++)
        fprintf(f,
                ".a%d{fill:%s}.l%d{stroke:%s;stroke-width:1.6;fill:none;"
                "stroke-linejoin:round}.o%d{stroke:%s;stroke-width:1.6;"
                "fill:none}",
                i, colors[theme][i], i, colors[theme][i], i, colors[theme][i]);
    fputc('\n', f);
}

static void print_style(FILE *f)
{
    pp_svg_style_begin(f);
    fputs(".t{font-size:12px;font-weight:600}\n", f);
    print_colors(f, 0);
    pp_svg_style_dark(f);
    fputc('\n', f);
    print_colors(f, 1);
    pp_svg_style_end(f);
}

/* --- ticks --- */

/* Returns the least of 1, 2 and 5 times a power of ten, or with `binary` the
 * least power of two, that cuts the range into at most n parts. */
static double tick_step(double range, int n, bool binary)
{
    double least = range / n;
    if (binary)
        return exp2(ceil(log2(least)));
    double power = pow(10, floor(log10(least)));
    double parts = least / power;
    return power * (parts <= 1 ? 1 : parts <= 2 ? 2 : parts <= 5 ? 5 : 10);
}

/* Writes a value with k, M or G for thousands; text has 48 bytes. */
static void format_tick(double v, double step, bool bytes, char *text)
{
    static const char units[] = {'\0', 'k', 'M', 'G', 'T'};
    double size = fmax(fabs(v), step);
    size_t u = 0;
    if (bytes) {
        pp_format_size(pp_size_of(fmax(v, 0)), text);
        return;
    }
    while (size >= 1e4 && u + 1 < sizeof units) {
        size /= 1000;
        v /= 1000;
        u++;
    }
    if (fabs(v) < size * 1e-9) /* what the addition of steps left */
        snprintf(text, 48, "0");
    else
        snprintf(text, 48, "%.5g%c", v, units[u]);
}

/* Moves the ends of an axis so that the range is not empty. */
static void widen(double *from, double *to)
{
    double by = *to > *from ? 0 : fmax(fabs(*to) * .1, 1e-9);
    *from -= by;
    *to += by;
}

static void ticks_of_y(FILE *f, const struct pp_chart *c,
                       struct pp_chart_area *a)
{
    char text[48];
    double step = tick_step(a->y1 - a->y0, 5, c->bytes);
    a->y0 = floor(a->y0 / step + 1e-9) * step;
    a->y1 = ceil(a->y1 / step - 1e-9) * step;
    int n = (int)lround((a->y1 - a->y0) / step);
    for (int i = 0; i <= n; i++) {
        double v = a->y0 + i * step, y = pp_chart_y(a, v);
        fprintf(f, "<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/>\n", a->left, y,
                a->left + a->width);
        format_tick(v, step, c->bytes, text);
        pp_svg_text(f, "m e", a->left - 6, y + 4, text);
    }
}

static void ticks_of_x(FILE *f, const struct pp_chart *c,
                       const struct pp_chart_area *a)
{
    char text[48];
    double y = a->top + a->height + 16;
    if (c->groups) {
        /* Names that do not fit side by side are thinned out. */
        size_t longest = 1;
        for (int i = 0; i < c->n_groups; i++)
            longest =
                strlen(c->groups[i]) > longest ? strlen(c->groups[i]) : longest;
        double room = pp_chart_x(a, 1) - pp_chart_x(a, 0);
        int each = (int)ceil(character * (double)(longest + 1) / room);
        for (int i = 0; i < c->n_groups; i += each)
            pp_svg_text(f, "m c", pp_chart_x(a, i), y, c->groups[i]);
        return;
    }
    double step = tick_step(a->x1 - a->x0, 6, false);
    if (c->whole)
        step = fmax(step, 1);
    for (double v = ceil(a->x0 / step - 1e-9) * step; v <= a->x1 + step * 1e-9;
         v += step) {
        format_tick(v, step, false, text);
        pp_svg_text(f, "m c", pp_chart_x(a, v), y, text);
    }
}

/* --- charts --- */

static double height_of(const struct pp_chart *c)
{
    return c->height > 0 ? c->height : 180;
}

static void legend_item(FILE *f, const char *class, enum pp_chart_mark mark,
                        const char *name, double *x, double y)
{
    if (mark == PP_CHART_LINE)
        fprintf(f, "<path class=\"%s\" d=\"M%.1f %.1fh16\"/>\n", class, *x,
                y - 4);
    else if (mark == PP_CHART_BARS)
        fprintf(f,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"16\" "
                "height=\"9\"/>\n",
                class, *x, y - 9);
    else
        fprintf(f, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n",
                class, *x + 8, y - 4);
    pp_svg_text(f, "m", *x + 21, y, name);
    *x += 21 + character * (double)strlen(name) + 14;
}

static void legend(FILE *f, const struct pp_chart *c, double x, double y)
{
    for (int k = 0; k < c->n_series; k++) {
        const struct pp_series *s = &c->series[k];
        char class[16];
        snprintf(class, sizeof class, "%c%d",
                 s->mark == PP_CHART_LINE                  ? 'l'
                 : s->mark == PP_CHART_POINTS && s->hollow ? 'o'
                                                           : 'a',
                 s->color);
        if (s->name)
            legend_item(f, class, s->mark, s->name, &x, y);
    }
    if (c->limit > 0 && c->limit_label)
        legend_item(f, "k", PP_CHART_LINE, c->limit_label, &x, y);
}

static void chart(FILE *f, const struct pp_chart *c, double left, double top,
                  double width)
{
    struct pp_chart_area a = {.left = left + LEFT,
                              .top = top + TOP,
                              .width = width - LEFT,
                              .height = height_of(c)};
    fputs("<g>\n", f);
    if (c->title)
        pp_svg_text(f, "t", a.left, top + LINE - 4, c->title);
    if (!pp_chart_range(c, &a)) {
        pp_svg_text(f, "m c", a.left + a.width / 2, a.top + a.height / 2,
                    "nothing yet");
        fputs("</g>\n", f);
        return;
    }
    legend(f, c, a.left, top + 2 * LINE);
    if (c->from_zero)
        a.y0 = fmin(a.y0, 0);
    if (c->limit > 0)
        a.y1 = fmax(a.y1, c->limit);
    widen(&a.x0, &a.x1);
    widen(&a.y0, &a.y1);
    ticks_of_y(f, c, &a);
    ticks_of_x(f, c, &a);
    pp_chart_marks(f, c, &a);
    pp_chart_labels(f, c, &a);
    if (c->limit > 0)
        fprintf(f, "<path class=\"k\" d=\"M%.1f %.1fh%.1f\"/>\n", a.left,
                pp_chart_y(&a, c->limit), a.width);
    if (c->x_label)
        pp_svg_text(f, "m c", a.left + a.width / 2, a.top + a.height + 32,
                    c->x_label);
    if (c->y_label)
        pp_svg_text(f, "m e", left + width, top + LINE - 4, c->y_label);
    fputs("</g>\n", f);
}

void pp_charts(FILE *f, const char *title, const struct pp_chart *charts, int n,
               int columns)
{
    int rows = (n + columns - 1) / columns;
    double top = title ? EDGE + HEADING : EDGE, pitch = 0;
    for (int i = 0; i < n; i++)
        pitch = fmax(pitch, TOP + height_of(&charts[i]) + BOTTOM);
    double each = (WIDTH - EDGE * (columns + 1.0)) / columns;
    double height = top + rows * pitch + EDGE;
    pp_svg_begin(f, WIDTH, height);
    pp_svg_escape(f, title ? title : "");
    fputs("</title>\n", f);
    print_style(f);
    fputs("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n", f);
    if (title)
        pp_svg_text(f, "h", EDGE, EDGE + 14, title);
    for (int i = 0; i < n; i++)
        chart(f, &charts[i], EDGE + i % columns * (each + EDGE),
              top + i / columns * pitch, each);
    fputs("</svg>\n", f);
}
