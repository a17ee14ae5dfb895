/* SPDX-License-Identifier: MIT */
/* svg - draws the page: sizes, headings, axis and messages around the rows. It
 * is one file because every part depends on the sizes. */
#include "schedule/draw/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "schedule/draw/draw.h"
#include "schedule/draw/svg_row.h"

enum {
    LEFT = 70,    /* start of the time axis, after the ranks' numbers */
    IDLE = 50,    /* the column of idle shares, after the time axis */
    EDGE = 16,    /* margin of the page */
    HEADING = 44, /* height of a panel's heading */
    AXIS = 28,
    NARROWEST = 600, /* time axis, if no width is given */
    WIDEST = 1330,
    MANY_TITLES = 4000, /* the most actions that get titles */
    MANY_MESSAGES = 300 /* the most messages that are drawn */
};

struct page {
    FILE *f;
    const struct pp_svg *o;
    const struct pp_svg_panel *panels;
    int n_panels, n_rows; /* ranks of all panels */
    double makespan;      /* the latest end */
    double mean, longest; /* mean forward; longest action */
    size_t n_compute, n_messages;
    int digits;  /* digits of the longest label */
    bool slices; /* labels have slices */
    struct pp_svg_legend legend;
    struct pp_svg_rows rows; /* chunk and n_chunks are the panel's */
    double plot, pitch;      /* width of the axis; from rank to rank */
    double right;            /* width to the right of the axis */
    int left;                /* start of the axis, after the ranks' names */
    int **chunks;            /* per panel and stage */
    int *n_chunks;           /* per panel */
};

/* --- measures --- */

static void measure_panel(struct page *g, const struct pp_svg_panel *p)
{
    const struct pp_schedule *s = p->schedule;
    double forward = 0;
    size_t n = 0;
    g->n_rows += p->sim->n_rows;
    g->makespan = fmax(g->makespan, p->sim->makespan);
    for (int r = 0; r < p->sim->n_rows; r++)
        for (size_t i = 0; i < p->sim->rows[r].n; i++) {
            const struct pp_span *span = &p->sim->rows[r].spans[i];
            g->legend.copies |= pp_is_copy(span->action.op);
            if (pp_is_transfer(span->action.op))
                g->legend.kinds[PP_SVG_COLLECTIVE] |= span->end > span->start;
            if (!pp_is_compute(span->action.op))
                continue;
            g->n_compute++;
            g->longest = fmax(g->longest, span->end - span->start);
            g->legend.kinds[span->action.op] = true;
            g->legend.pairs |= span->action.overlap;
            if (span->action.op == PP_F && span->end > span->start) {
                forward += span->end - span->start;
                n++;
            }
        }
    if (n > 0 && (g->mean <= 0 || forward / (double)n < g->mean))
        g->mean = forward / (double)n;
    g->n_messages += p->messages ? p->messages->n : 0;
    g->legend.bound |= p->bound > 0;
    int digits = snprintf(NULL, 0, "%d", s->n_microbatches - 1);
    if (s->graph->slices.n > 1) {
        digits += snprintf(NULL, 0, ".%d", s->graph->slices.n - 1);
        g->slices = true;
    }
    g->digits = digits > g->digits ? digits : g->digits;
}

static const char *plural(double n)
{
    return n == 1 ? "" : "s";
}

/* Writes an amount of a panel's memory; text has 48 bytes. */
static void format_memory(const struct pp_svg_panel *p, double v, bool unit,
                          char *text)
{
    if (!p->memory_unit)
        pp_format_size(pp_size_of(v), text);
    else if (!unit)
        snprintf(text, 48, "%.4g", v);
    else
        snprintf(text, 48, "%.4g %.20s%s", v, p->memory_unit,
                 v > 1 && !strcmp(p->memory_unit, "microbatch") ? "es"
                                                                : plural(v));
}

/* Chooses the memory at the top of the strips: the highest peak, or the limit
 * if it is not far above. */
static void measure_memory(struct page *g)
{
    double peak = 0, limit = 0;
    for (int i = 0; i < g->n_panels; i++) {
        const struct pp_svg_panel *p = &g->panels[i];
        for (int r = 0; p->memory && r < p->sim->n_rows; r++) {
            peak = fmax(peak, p->memory[r].peak);
            limit = fmax(limit, p->limit ? p->limit[r] : 0);
        }
    }
    g->legend.memory = peak > 0;
    g->legend.limit = peak > 0 && limit > 0 && limit <= 2 * peak;
    g->rows.most = g->legend.limit ? fmax(peak, limit) : peak;
    char text[48];
    format_memory(&g->panels[0], g->rows.most, true, text);
    /* Bytes take more room than a count. */
    g->right = IDLE + EDGE + (g->panels[0].memory_unit ? 44 : 72);
    snprintf(g->legend.memory_text, sizeof g->legend.memory_text,
             "memory, up to %s", text);
}

static void find_chunks(struct page *g)
{
    g->chunks = pp_calloc((size_t)g->n_panels, sizeof *g->chunks);
    g->n_chunks = pp_calloc((size_t)g->n_panels, sizeof *g->n_chunks);
    for (int i = 0; i < g->n_panels; i++) {
        g->chunks[i] = pp_chunks(g->panels[i].schedule->graph, &g->n_chunks[i]);
        if (g->n_chunks[i] > g->legend.n_chunks)
            g->legend.n_chunks = g->n_chunks[i];
    }
    g->legend.n_shades =
        g->legend.n_chunks < PP_SVG_SHADES ? g->legend.n_chunks : PP_SVG_SHADES;
}

/* --- sizes --- */

/* Writes what a row is called: its rank, and the components that it has. */
static int name_row(const struct pp_svg_panel *p, int r, char *text, size_t n)
{
    const char *name = p->names ? p->names[r] : "";
    return snprintf(text, n, "rank %d%s%.40s", r, *name ? ", " : "", name);
}

/* Makes room for the names of all rows. */
static void fit_names(struct page *g)
{
    char text[64];
    int most = 0;
    g->left = LEFT;
    for (int k = 0; k < g->n_panels; k++)
        for (int r = 0; g->panels[k].names && r < g->panels[k].sim->n_rows;
             r++) {
            int n = name_row(&g->panels[k], r, text, sizeof text);
            most = n > most ? n : most;
        }
    double wide = EDGE + 8 + pp_svg_digits(most, 11);
    g->left = wide > g->left ? (int)wide : g->left;
}

/* Makes rows lower if there are many. The halves of pairs need two labels. */
static void fit_height(struct page *g)
{
    static const struct {
        int rows;
        double height, strip, gap;
    } sizes[] = {{8, 24, 14, 8},
                 {16, 20, 11, 6},
                 {40, 16, 8, 4},
                 {80, 12, 6, 3},
                 {INT32_MAX, 8, 4, 2}};
    size_t i = 0;
    while (g->n_rows > sizes[i].rows)
        i++;
    g->rows.height = sizes[i].height + (g->legend.pairs && i < 3 ? 4 : 0);
    g->rows.strip = g->legend.memory ? sizes[i].strip : 0;
    g->rows.font = fmin(11, g->rows.height - 4);
    g->pitch = g->rows.height + g->rows.strip + sizes[i].gap;
}

static void fit_width(struct page *g)
{
    double cell = fmax(24, pp_svg_digits(g->digits, g->rows.font) + 5);
    double wish = g->mean > 0 ? g->makespan / g->mean * cell : NARROWEST;
    g->plot = fmin(fmax(wish, NARROWEST), WIDEST);
    if (g->o->width > 0)
        g->plot = fmax(g->o->width - g->left - g->right, 100);
    g->rows.scale = g->plot / g->makespan;
    /* If forwards are narrow, wider actions get the same small font. */
    double fits = (g->mean * g->rows.scale - 3) / pp_svg_digits(g->digits, 1);
    g->rows.font = fmin(g->rows.font, fmax(fits, 8.5));
    /* If the longest action is too narrow for the smallest label, none fits. */
    if (g->rows.font < PP_SVG_SMALL_FONT ||
        g->longest * g->rows.scale < pp_svg_digits(1, PP_SVG_SMALL_FONT) + 1)
        g->rows.font = 0;
    else
        snprintf(g->legend.label, sizeof g->legend.label,
                 g->slices ? "number: the microbatch and its slice"
                           : "number: the microbatch");
}

static double panel_height(const struct page *g, const struct pp_svg_panel *p)
{
    return HEADING + p->sim->n_rows * g->pitch;
}

static double page_width(const struct page *g)
{
    return g->left + g->plot + g->right;
}

/* --- output --- */

static void describe(const struct pp_svg_panel *p, char *text, size_t n)
{
    const struct pp_schedule *s = p->schedule;
    snprintf(text, n, "%s%s%.80s: %d rank%s, %d stage%s, %d microbatch%s",
             p->title ? p->title : "", p->title ? ", " : "", s->kind,
             s->graph->n_rows, plural(s->graph->n_rows), s->graph->n_stages,
             plural(s->graph->n_stages), s->n_microbatches,
             s->n_microbatches == 1 ? "" : "es");
}

static void print_figures(const struct page *g, const struct pp_svg_panel *p)
{
    const char *unit = g->o->unit ? g->o->unit : "";
    char makespan[PP_AXIS_TEXT], bound[PP_AXIS_TEXT], peak[48], text[280];
    double most = 0;
    size_t n_messages = pp_schedule_count(p->schedule, PP_SEND_OPS);
    int n;
    pp_axis_format(p->sim->makespan, makespan);
    n = snprintf(text, sizeof text, "makespan %s%s%s, bubble %.1f%%", makespan,
                 *unit ? " " : "", unit, 100 * p->sim->bubble);
    for (int r = 0; p->memory && r < p->sim->n_rows; r++)
        most = fmax(most, p->memory[r].peak);
    format_memory(p, most, true, peak);
    if (p->memory)
        n += snprintf(text + n, sizeof text - (size_t)n, ", peak %s", peak);
    n += snprintf(text + n, sizeof text - (size_t)n,
                  ", %zu message%s, channel depth %d", n_messages,
                  n_messages == 1 ? "" : "s", p->schedule->channel_depth);
    pp_axis_format(p->bound, bound);
    if (p->bound > 0)
        snprintf(text + n, sizeof text - (size_t)n, ", lower bound %s%s%s",
                 bound, *unit ? " " : "", unit);
    pp_svg_text(g->f, "m", EDGE, 35, text);
}

static void print_heading(const struct page *g, const struct pp_svg_panel *p)
{
    char text[200];
    double right = g->left + g->plot + g->right - EDGE;
    describe(p, text, sizeof text);
    pp_svg_text(g->f, "h", EDGE, 18, text);
    print_figures(g, p);
    pp_svg_text(g->f, "m e", g->left + g->plot + IDLE, 35, "idle");
    if (p->memory)
        pp_svg_text(g->f, "m e", right, 35, "peak");
}

static void print_sides(const struct page *g, const struct pp_svg_panel *p,
                        int r)
{
    const struct pp_sim_row *row = &p->sim->rows[r];
    char text[64];
    double y = g->rows.height / 2 + 4;
    double idle = p->sim->makespan > 0 ? 1 - row->busy / p->sim->makespan : 0;
    name_row(p, r, text, sizeof text);
    pp_svg_text(g->f, "e", -8, y, text);
    snprintf(text, sizeof text, "%.1f%%", 100 * fmax(idle, 0));
    pp_svg_text(g->f, "m e", g->plot + IDLE, y, text);
    if (!p->memory)
        return;
    format_memory(p, p->memory[r].peak, false, text);
    pp_svg_text(g->f, "m e", g->plot + g->right - EDGE, y, text);
}

/* Draws vertical lines behind a panel's rows: ticks, and the bound. */
static void print_grid(const struct page *g, const struct pp_svg_panel *p)
{
    double step = pp_axis_step(60 / g->rows.scale);
    double height = p->sim->n_rows * g->pitch;
    fputs("<path class=\"g\" d=\"", g->f);
    for (int k = 0; k * step * g->rows.scale <= g->plot + .01; k++) {
        fputs("M", g->f);
        pp_svg_number(g->f, k * step * g->rows.scale);
        fputs(" -4V", g->f);
        pp_svg_number(g->f, height);
    }
    fputs("\"/>\n", g->f);
    if (p->bound <= 0)
        return;
    fputs("<path class=\"u\" d=\"M", g->f);
    pp_svg_number(g->f, p->bound * g->rows.scale);
    fputs(" -4V", g->f);
    pp_svg_number(g->f, height);
    fputs("\"/>\n", g->f);
}

/* Draws lines from the sender's row to the facing edge of the receiver's. */
static void print_messages(const struct page *g, const struct pp_svg_panel *p)
{
    if (!p->messages || !g->legend.messages)
        return;
    fputs("<path class=\"x\" d=\"", g->f);
    for (size_t i = 0; i < p->messages->n; i++) {
        const struct pp_message *m = &p->messages->at[i];
        bool down = m->to > m->from;
        fputs("M", g->f);
        pp_svg_number(g->f, m->leaves * g->rows.scale);
        fputs(" ", g->f);
        pp_svg_number(g->f, m->from * g->pitch + (down ? g->rows.height : 0));
        fputs("L", g->f);
        pp_svg_number(g->f, m->arrives * g->rows.scale);
        fputs(" ", g->f);
        pp_svg_number(g->f, m->to * g->pitch + (down ? 0 : g->rows.height));
    }
    fputs("\"/>\n", g->f);
}

static void open_row(const struct page *g, int row, const char *class)
{
    fprintf(g->f, "<g%s transform=\"translate(0,", class);
    pp_svg_number(g->f, row * g->pitch);
    fputs(")\">\n", g->f);
}

static void print_panel(struct page *g, int panel, double y)
{
    const struct pp_svg_panel *p = &g->panels[panel];
    /* Draw a seam between actions if they are wide enough. */
    bool seam = g->mean * g->rows.scale > 3;
    g->rows.chunk = g->chunks[panel];
    g->rows.n_chunks = g->n_chunks[panel];
    fputs("<g transform=\"translate(0,", g->f);
    pp_svg_number(g->f, y);
    fputs(")\">\n", g->f);
    print_heading(g, p);
    fprintf(g->f, "<g transform=\"translate(%d,%d)\">\n", g->left, HEADING);
    for (int r = 0; r < p->sim->n_rows; r++) {
        open_row(g, r, "");
        pp_svg_ground(&g->rows, p, r);
        print_sides(g, p, r);
        fputs("</g>\n", g->f);
    }
    print_grid(g, p);
    print_messages(g, p);
    for (int r = 0; r < p->sim->n_rows; r++) {
        open_row(g, r, seam ? " class=\"d\"" : "");
        pp_svg_cells(&g->rows, p, r);
        fputs("</g>\n", g->f);
    }
    fputs("</g>\n</g>\n", g->f);
}

static void print_axis(const struct page *g, double y)
{
    double step = pp_axis_step(60 / g->rows.scale);
    pp_svg_text(g->f, "m e", g->left - 8, y + 12,
                g->o->unit ? g->o->unit : "time");
    for (int k = 0; k * step * g->rows.scale <= g->plot + .01; k++) {
        char text[PP_AXIS_TEXT];
        pp_axis_format(k * step, text);
        pp_svg_text(g->f, "m c", g->left + k * step * g->rows.scale, y + 12,
                    text);
    }
}

static void print_page(struct page *g)
{
    char title[200];
    double y = EDGE / 2, width = page_width(g), height = y;
    double legend =
        pp_svg_legend(NULL, &g->legend, EDGE, 0, width - EDGE) + EDGE / 2;
    for (int i = 0; i < g->n_panels; i++)
        height += panel_height(g, &g->panels[i]);
    height += AXIS + legend;
    describe(&g->panels[0], title, sizeof title);
    pp_svg_begin(g->f, width, height);
    pp_svg_escape(g->f, title);
    if (g->n_panels > 1)
        fprintf(g->f, ", and %d more", g->n_panels - 1);
    fputs("</title>\n", g->f);
    pp_svg_style(g->f, g->legend.n_shades, g->rows.font);
    fputs("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n", g->f);
    for (int i = 0; i < g->n_panels; i++) {
        print_panel(g, i, y);
        y += panel_height(g, &g->panels[i]);
    }
    print_axis(g, y);
    pp_svg_legend(g->f, &g->legend, EDGE, y + AXIS, width - EDGE);
    fputs("</svg>\n", g->f);
}

int pp_svg(FILE *f, const struct pp_svg_panel *panels, int n_panels,
           const struct pp_svg *o, struct pp_err *err)
{
    struct page g = {.f = f, .o = o, .panels = panels, .n_panels = n_panels};
    for (int i = 0; i < n_panels; i++)
        measure_panel(&g, &panels[i]);
    if (g.makespan <= 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "no action takes time, so there is nothing to draw");
    find_chunks(&g);
    g.rows.f = f;
    g.rows.titles = g.n_compute <= MANY_TITLES;
    g.legend.messages = g.n_messages > 0 && g.n_messages <= MANY_MESSAGES;
    measure_memory(&g);
    fit_names(&g);
    fit_height(&g);
    fit_width(&g);
    g.rows.n_shades = g.legend.n_shades;
    print_page(&g);
    for (int i = 0; i < n_panels && g.chunks; i++)
        free(g.chunks[i]);
    free(g.chunks);
    free(g.n_chunks);
    return 0;
}
