/* SPDX-License-Identifier: MIT */
/* If actions are many, actions of one colour share one path: a picture of 50
 * thousand actions stays near a megabyte. */
#include "schedule/draw/svg_row.h"

#include <math.h>

static void put(FILE *f, const char *before, double v)
{
    fputs(before, f);
    pp_svg_number(f, v);
}

/* --- the strip of memory --- */

enum { DOT_RADIUS = 2, LOW_STRIP = 6 };

/* Returns the height of a value. A dot at the top would be half covered by the
 * row above, so a strip that is not low leaves space for it. */
static double level_y(const struct pp_svg_rows *l, double value)
{
    double height = l->most > 0 ? value / l->most : 0;
    double top = l->strip > LOW_STRIP ? DOT_RADIUS + 1 : 1;
    return l->height + top + (l->strip - top) * (1 - height);
}

/* Draws the memory. Levels closer than a quarter of a pixel become one line,
 * from the highest of them to the last. */
static void draw_curve(const struct pp_svg_rows *l,
                       const struct pp_memory_timeline *c)
{
    put(l->f, "<path class=\"s\" d=\"M0 ", level_y(l, 0));
    for (size_t i = 1; i < c->n;) {
        double x = c->at[i].time * l->scale, top = c->at[i].value;
        for (i++; i < c->n && c->at[i].time * l->scale - x < .25; i++)
            top = fmax(top, c->at[i].value);
        put(l->f, "H", x);
        put(l->f, "V", level_y(l, top));
        if (c->at[i - 1].value != top)
            put(l->f, "V", level_y(l, c->at[i - 1].value));
    }
    fputs("z\"/>\n", l->f);
}

void pp_svg_ground(const struct pp_svg_rows *l, const struct pp_svg_panel *p,
                   int row)
{
    double width = p->sim->makespan * l->scale;
    put(l->f, "<path class=\"l\" d=\"M0 0H", width);
    put(l->f, "V", l->height);
    fputs("H0z\"/>\n", l->f);
    if (l->strip <= 0)
        return;
    const struct pp_memory_timeline *c = &p->memory[row];
    draw_curve(l, c);
    if (p->limit && p->limit[row] <= l->most) {
        put(l->f, "<path class=\"k\" d=\"M0 ", level_y(l, p->limit[row]));
        put(l->f, "H", width);
        fputs("\"/>\n", l->f);
    }
    if (c->peak > 0) {
        put(l->f, "<circle class=\"p\" cx=\"", c->peak_time * l->scale);
        put(l->f, "\" cy=\"", level_y(l, c->peak));
        fprintf(l->f, "\" r=\"%d\"/>\n", DOT_RADIUS);
    }
}

/* --- the row of actions --- */

struct cell {
    struct pp_action action;
    double start, end; /* times, for the title */
    double x, to, y, bottom;
};

/* Returns the cell of span i. The two actions of a pair share its time, one
 * above the other. A collective or a copy may run beside computation, so it
 * takes the lowest part of the row, and a RELOAD the highest. */
static struct cell cell_at(const struct pp_svg_rows *l,
                           const struct pp_sim_row *r, size_t i)
{
    const struct pp_span *s = &r->spans[i];
    struct cell c = {s->action, 0, 0, 0, 0, 0, l->height};
    pp_span_piece(r->spans, i, &c.start, &c.end);
    if (s->action.op == PP_RELOAD)
        c.bottom = l->height / 4;
    else if (pp_is_transfer(s->action.op))
        c.y = l->height * 3 / 4;
    else if (s->action.overlap)
        c.bottom = l->height / 2;
    else if (i > 0 && s[-1].action.overlap)
        c.y = l->height / 2;
    c.x = c.start * l->scale;
    c.to = c.end * l->scale;
    return c;
}

/* A collective or a copy that takes no time is not drawn. */
static bool is_drawn(const struct cell *c)
{
    return pp_is_compute(c->action.op) ||
           (pp_is_transfer(c->action.op) && c->end > c->start);
}

static int shade_of(const struct pp_svg_rows *l, int stage)
{
    return l->chunk[stage] * l->n_shades / l->n_chunks;
}

static void outline(FILE *f, const struct cell *c)
{
    put(f, "M", c->x);
    put(f, " ", c->y);
    put(f, "H", c->to);
    put(f, "V", c->bottom);
    put(f, "H", c->x);
    fputc('z', f);
}

static void draw_titled(const struct pp_svg_rows *l, const struct cell *c)
{
    char text[PP_ACTION_TEXT];
    pp_action_format(c->action, false, text);
    fprintf(
        l->f, "<path class=\"%s\" d=\"",
        pp_svg_class(pp_svg_kind(c->action.op), shade_of(l, c->action.stage)));
    outline(l->f, c);
    fprintf(l->f, "\"><title>%s: %.6g to %.6g</title></path>\n", text, c->start,
            c->end);
}

/* Draws all actions of one colour as one path. */
static void draw_color(const struct pp_svg_rows *l, const struct pp_sim_row *r,
                       int kind, int shade)
{
    bool any = false;
    for (size_t i = 0; i < r->n; i++) {
        struct pp_action a = r->spans[i].action;
        if (pp_svg_kind(a.op) != kind || shade_of(l, a.stage) != shade)
            continue;
        struct cell c = cell_at(l, r, i);
        if (!is_drawn(&c))
            continue;
        if (!any)
            fprintf(l->f, "<path class=\"%s\" d=\"", pp_svg_class(kind, shade));
        any = true;
        outline(l->f, &c);
    }
    if (any)
        fputs("\"/>\n", l->f);
}

/* Draws the microbatch's number, and the slice's if there are several, in the
 * larger font that fits. */
static void draw_label(const struct pp_svg_rows *l, const struct cell *c,
                       bool slices)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%d", c->action.microbatch);
    if (slices)
        n +=
            snprintf(text + n, sizeof text - (size_t)n, ".%d", c->action.slice);
    double height = c->bottom - c->y, font = l->font;
    if (font + 2 > height || pp_svg_digits(n, font) + 3 > c->to - c->x)
        font = PP_SVG_SMALL_FONT;
    if (font + 1 > height || pp_svg_digits(n, font) + 1 > c->to - c->x)
        return;
    put(l->f, "<text x=\"", (c->x + c->to) / 2);
    put(l->f, "\" y=\"", (c->y + c->bottom) / 2 + .36 * font);
    fprintf(l->f, "\"%s>%s</text>\n", font < l->font ? " class=\"t\"" : "",
            text);
}

void pp_svg_cells(const struct pp_svg_rows *l, const struct pp_svg_panel *p,
                  int row)
{
    const struct pp_sim_row *r = &p->sim->rows[row];
    /* Copies lie above the cells that they run beside. */
    for (size_t i = 0; i < 2 * r->n && l->titles; i++) {
        struct cell c = cell_at(l, r, i % r->n);
        if (is_drawn(&c) && pp_is_copy(c.action.op) == (i >= r->n))
            draw_titled(l, &c);
    }
    for (int kind = 0; kind < PP_SVG_KINDS && !l->titles; kind++)
        for (int s = 0; s < l->n_shades; s++)
            draw_color(l, r, kind, s);
    if (l->font <= 0)
        return;
    fputs("<g class=\"n\">\n", l->f);
    for (size_t i = 0; i < r->n; i++) {
        struct cell c = cell_at(l, r, i);
        if (pp_is_compute(c.action.op))
            draw_label(l, &c, p->schedule->graph->slices.n > 1);
    }
    fputs("</g>\n", l->f);
}
