/* SPDX-License-Identifier: MIT */
/* The width of a forward decides between three styles: labels with the
 * microbatch's whole number and the chunk's letter; one character for both; and
 * no labels, if actions are narrower than a column. */
#include "schedule/draw/draw.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "draw/page.h"
#include "schedule/memory/memory.h"

enum { LABEL = PP_AXIS_TEXT, MARGIN = 26, FEWEST_COLUMNS = 20 };
enum { WIDEST = 100000 };

/* A column of both forward and backward. It takes the value of PP_I, which a
 * picture without labels does not show. */
enum { OP_MIXED = PP_I };

/* A column of REDUCE_GRAD, UNSHARD or a copy. */
enum { OP_COLLECTIVE = PP_W + 1 };

enum style { STYLE_FULL, STYLE_SHORT, STYLE_BARS };

struct picture {
    FILE *f;
    const struct pp_schedule *s;
    const struct pp_sim *sim;
    struct pp_draw draw;
    enum style style;
    int *chunk;      /* per stage: its place among its rank's stages */
    int n_chunks;    /* most on one rank */
    int columns;     /* width of the time axis */
    double scale;    /* columns per time */
    double mean;     /* time of a forward */
    int last_color;  /* -1: none */
    bool last_pair;  /* the last colour was underlined */
    bool pairs;      /* there are overlap pairs */
    bool collects;   /* a collective takes time */
    bool copies;     /* a copy takes time */
    int row_columns; /* width of the longest rank number, with its name */
};

/* A column of a row of the picture. */
struct column {
    int op; /* -1: idle */
    int chunk;
    char label; /* or 0 */
    bool pair;  /* true in an overlap pair, which is underlined if there are
                   colours */
};

static const char *fill(const struct picture *p, int op)
{
    static const char *const blocks[] = {[PP_F] = "\u2591", /* light shade */
                                         [PP_B] = "\u2593", /* dark shade */
                                         [PP_I] = "\u2592", /* medium shade */
                                         [PP_W] = "\u259e",
                                         [OP_COLLECTIVE] =
                                             "\u2261"}; /* lines */
    static const char *const plain[] = {[PP_F] = "-",
                                        [PP_B] = "=",
                                        [PP_I] = "~",
                                        [PP_W] = "+",
                                        [OP_COLLECTIVE] = "#"};
    return op < 0 ? " " : p->draw.ascii ? plain[op] : blocks[op];
}

static void set_color(struct picture *p, int color, bool pair)
{
    if (!p->draw.color || (color == p->last_color && pair == p->last_pair))
        return;
    if (color < 0)
        fputs("\033[0m", p->f);
    else
        fprintf(p->f, "\033[%d;30;48;5;%dm", pair ? 4 : 24, color);
    p->last_color = color;
    p->last_pair = pair;
}

/* Returns a colour: blue forward, green backward, orange weight gradient,
 * violet reduction. Later chunks are darker. */
static int color_of(const struct column *c)
{
    static const int colors[][3] = {[PP_F] = {117, 74, 67},
                                    [PP_B] = {114, 71, 65},
                                    [PP_I] = {80, 73, 66},
                                    [PP_W] = {216, 173, 137},
                                    [OP_COLLECTIVE] = {183, 140, 97}};
    return c->op < 0 ? -1 : colors[c->op][c->chunk % 3];
}

/* Writes a label such as "b12.3": the chunk's letter if there are several, the
 * microbatch, and the slice if there are several. Returns its length. */
static int full_label(const struct picture *p, struct pp_action a, char *text)
{
    int n = 0;
    if (p->n_chunks > 1)
        text[n++] = (char)('a' + p->chunk[a.stage] % 26);
    n += snprintf(text + n, (size_t)(LABEL - n), "%d", a.microbatch);
    if (p->s->graph->slices.n > 1)
        n += snprintf(text + n, (size_t)(LABEL - n), ".%d", a.slice);
    return n;
}

/* Returns the microbatch's last digit, or a letter for the second chunk and on.
 */
static char short_label(const struct picture *p, struct pp_action a)
{
    static const char digits[] = "0123456789abcdefghijABCDEFGHIJ";
    return digits[p->chunk[a.stage] % 3 * 10 + a.microbatch % 10];
}

static void draw_cell(const struct picture *p, struct column *list,
                      const struct pp_span *s, bool pair)
{
    int from = (int)lround(s->start * p->scale);
    int to = (int)lround(s->end * p->scale);
    char label[LABEL];
    int n = full_label(p, s->action, label);
    if (p->style == STYLE_SHORT || n > to - from) {
        label[0] = short_label(p, s->action);
        n = 1;
    }
    for (int i = from; i < to && i < p->columns; i++)
        list[i] = (struct column){s->action.op, p->chunk[s->action.stage],
                                  i - from < n ? label[i - from] : 0, pair};
}

/* Draws a collective or a copy where the row does not compute. */
static void draw_collective(struct picture *p, struct column *list,
                            const struct pp_span *s)
{
    int from = (int)lround(s->start * p->scale);
    int to = (int)lround(s->end * p->scale);
    for (int i = from; i < to && i < p->columns; i++)
        if (list[i].op < 0) {
            list[i] = (struct column){OP_COLLECTIVE, p->chunk[s->action.stage],
                                      0, false};
            p->collects |= pp_is_collective(s->action.op);
            p->copies |= pp_is_copy(s->action.op);
        }
}

static void draw_cells(struct picture *p, struct column *list,
                       const struct pp_sim_row *row)
{
    for (size_t i = 0; i < row->n; i++) {
        const struct pp_span *s = &row->spans[i];
        bool pair = s->action.overlap || (i > 0 && s[-1].action.overlap);
        p->pairs |= pair;
        if (pp_is_compute(s->action.op))
            draw_cell(p, list, s, pair);
    }
    for (size_t i = 0; i < row->n; i++)
        if (pp_is_transfer(row->spans[i].action.op))
            draw_collective(p, list, &row->spans[i]);
}

/* Draws a row without labels: each column shows the action that takes most of
 * its time, or a mixture of forward and backward. */
static void draw_bars(const struct picture *p, struct column *list,
                      const struct pp_sim_row *row)
{
    size_t next = 0;
    for (int i = 0; i < p->columns; i++) {
        double from = i / p->scale, to = (i + 1) / p->scale;
        double forward = 0, busy = 0;
        while (next < row->n && row->spans[next].end <= from)
            next++;
        for (size_t k = next; k < row->n && row->spans[k].start < to; k++) {
            const struct pp_span *s = &row->spans[k];
            double part = fmin(s->end, to) - fmax(s->start, from);
            if (!pp_is_compute(s->action.op) || part <= 0)
                continue;
            busy += part;
            forward += s->action.op == PP_F ? part : 0;
        }
        if (busy >= (to - from) / 2)
            list[i].op = forward > 0.75 * busy   ? PP_F
                         : forward < 0.25 * busy ? PP_B
                                                 : OP_MIXED;
    }
}

static void print_columns(struct picture *p, const struct column *list)
{
    for (int i = 0; i < p->columns; i++) {
        set_color(p, color_of(&list[i]), list[i].pair);
        if (list[i].label)
            fputc(list[i].label, p->f);
        else
            fputs(p->draw.color && p->style != STYLE_BARS ? " "
                                                          : fill(p, list[i].op),
                  p->f);
    }
    set_color(p, -1, false);
}

/* Writes the number of a rank, and the components that it has. */
static int name_rank(const struct pp_draw *d, int r, char *text, size_t n)
{
    const char *name = d->names ? d->names[r] : "";
    return snprintf(text, n, "%d%s%.40s", r, *name ? ", " : "", name);
}

static int widest_name(const struct picture *p)
{
    int widest = 0;
    for (int r = 0; r < p->sim->n_rows; r++) {
        int columns = name_rank(&p->draw, r, NULL, 0);
        widest = columns > widest ? columns : widest;
    }
    return widest;
}

static void draw_row(struct picture *p, const struct pp_sim *sim, int r,
                     struct column *list)
{
    const struct pp_sim_row *row = &sim->rows[r];
    const char *wall = p->draw.ascii ? "|" : "\u2502";
    char name[64];
    for (int i = 0; i < p->columns; i++)
        list[i] = (struct column){.op = -1};
    if (p->style == STYLE_BARS)
        draw_bars(p, list, row);
    else
        draw_cells(p, list, row);
    name_rank(&p->draw, r, name, sizeof name);
    if (sim == p->sim)
        fprintf(p->f, "rank %-*s %s", p->row_columns, name, wall);
    else
        fprintf(p->f, "plan %*s %s", p->row_columns, "", wall);
    print_columns(p, list);
    double span = sim->makespan;
    size_t place;
    fprintf(p->f, "%s %5.1f%% %6.10g\n", wall,
            span > 0 ? 100 * (1 - row->busy / span) : 0,
            pp_row_peak(p->s, r, &place));
}

static void draw_axis(struct picture *p)
{
    double step = pp_axis_step(8 / p->scale); /* labels do not touch */
    int at = 0;
    fprintf(p->f, "%-4s%*s", p->draw.unit ? p->draw.unit : "time",
            p->row_columns + 3, "");
    for (int k = 0; k * step * p->scale < p->columns; k++) {
        char text[LABEL];
        int column = (int)lround(k * step * p->scale);
        int n = pp_axis_format(k * step, text);
        if (column + n > p->columns)
            break;
        fprintf(p->f, "%*s%s", column - at, "", text);
        at = column + n;
    }
    fprintf(p->f, "%*s  bubble  slots\n", p->columns - at, "");
}

static bool uses(const struct pp_schedule *s, enum pp_op op)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (s->rows[r].actions[i].op == op)
                return true;
    return false;
}

/* Explains the labels, or how to see them. */
static void draw_key(struct picture *p)
{
    double needed = p->sim->makespan / p->mean + MARGIN + p->row_columns;
    bool slices = p->s->graph->slices.n > 1;
    if (p->style == STYLE_FULL)
        fprintf(p->f, "   %s3%s: %smicrobatch 3%s", p->n_chunks > 1 ? "b" : "",
                slices ? ".1" : "",
                p->n_chunks > 1 ? "second stage of the rank, " : "",
                slices ? ", slice 1" : "");
    else if (p->style == STYLE_SHORT && p->n_chunks > 1)
        fprintf(p->f,
                "\n3: last digit of the microbatch; second stage a-j, third "
                "A-J%s",
                p->n_chunks > 3 ? ", fourth 0-9, ..." : "");
    else if (p->style == STYLE_SHORT)
        fputs("   3: last digit of the microbatch", p->f);
    else if (needed < WIDEST)
        fprintf(p->f, "   (microbatches show at width %.0f)", ceil(needed) + 1);
    if (p->pairs && p->draw.color)
        fputs("   underlined: pairs", p->f);
    fputc('\n', p->f);
}

static void draw_legend(struct picture *p)
{
    static const char *const names[] = {[PP_F] = "forward",
                                        [PP_B] = "backward",
                                        [PP_I] = "input gradient",
                                        [PP_W] = "weight gradient",
                                        [OP_COLLECTIVE] = "collective"};
    bool bars = p->style == STYLE_BARS;
    const char *between = "";
    for (int op = 0; op <= OP_COLLECTIVE; op++) {
        struct column c = {.op = op};
        const char *name = op == OP_COLLECTIVE && p->copies
                               ? p->collects ? "collective or copy" : "copy"
                               : names[op];
        if (op == OP_COLLECTIVE ? !p->collects && !p->copies
            : bars              ? op == PP_W
                                : !uses(p->s, (enum pp_op)op))
            continue;
        fputs(between, p->f);
        set_color(p, color_of(&c), false);
        fprintf(p->f, "%s%s", fill(p, op), fill(p, op));
        set_color(p, -1, false);
        fprintf(p->f, " %s", bars && op == OP_MIXED ? "both" : name);
        between = "   ";
    }
    draw_key(p);
}

static void draw_figures(struct picture *p)
{
    char makespan[LABEL];
    pp_axis_format(p->sim->makespan, makespan);
    double slots = 0;
    size_t place;
    for (int r = 0; r < p->s->graph->n_rows; r++)
        slots = fmax(slots, pp_row_peak(p->s, r, &place));
    fprintf(
        p->f,
        "makespan %s%s%s, bubble %.1f%%, at most %.10g slot%s, %zu messages\n",
        makespan, p->draw.unit ? " " : "", p->draw.unit ? p->draw.unit : "",
        100 * p->sim->bubble, slots, slots == 1 ? "" : "s",
        pp_schedule_count(p->s, PP_SEND_OPS));
}

/* Measures the shortest compute action that takes time, and the mean forward.
 */
static void measure(const struct pp_sim *sim, double *shortest, double *mean)
{
    double sum = 0;
    size_t n = 0;
    *shortest = sim->makespan;
    for (int r = 0; r < sim->n_rows; r++)
        for (size_t i = 0; i < sim->rows[r].n; i++) {
            const struct pp_span *s = &sim->rows[r].spans[i];
            double time = s->end - s->start;
            if (!pp_is_compute(s->action.op) || time <= 0)
                continue;
            *shortest = time < *shortest ? time : *shortest;
            sum += s->action.op == PP_F ? time : 0;
            n += s->action.op == PP_F;
        }
    *mean = n ? sum / (double)n : *shortest;
}

/* Chooses scale and style. If the shortest action is at least a column wide, it
 * becomes a whole number of columns, so that equal actions look equal. */
static void fit(struct picture *p)
{
    const struct pp_sim *sim = p->sim;
    double shortest;
    char label[LABEL];
    int width = p->draw.width ? p->draw.width : WIDEST;
    int room = width - MARGIN - p->row_columns, longest;
    struct pp_action last = {.stage = p->s->graph->n_stages - 1,
                             .microbatch = p->s->n_microbatches - 1,
                             .slice = (int16_t)(p->s->graph->slices.n - 1)};
    longest = full_label(p, last, label) + 1;
    measure(sim, &shortest, &p->mean);
    room = room < FEWEST_COLUMNS ? FEWEST_COLUMNS : room;
    double end = sim->makespan;
    if (p->draw.plan)
        end = fmax(end, p->draw.plan->makespan);
    double whole = floor(room * shortest / end * (1 + 1e-12));
    double most = ceil(longest * shortest / p->mean);
    if (whole >= 1)
        p->scale = (whole < most ? whole : most) / shortest;
    else
        p->scale = room / end;
    p->columns = (int)lround(end * p->scale);
    double forward = p->mean * p->scale * (1 + 1e-12);
    p->style = forward >= longest ? STYLE_FULL
               : forward >= 1     ? STYLE_SHORT
                                  : STYLE_BARS;
}

int pp_draw(FILE *f, const struct pp_schedule *s, const struct pp_sim *sim,
            const struct pp_draw *d, struct pp_err *err)
{
    struct picture p = {
        .f = f, .s = s, .sim = sim, .draw = *d, .last_color = -1};
    struct column *list = NULL;
    if (sim->makespan <= 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "no action takes time, so there is nothing to draw");
    p.row_columns = widest_name(&p);
    if (d->width && p.row_columns > d->width / 3) {
        p.draw.names = NULL; /* they leave too little to the picture */
        p.row_columns = widest_name(&p);
    }
    p.chunk = pp_chunks(s->graph, &p.n_chunks);
    fit(&p);
    list = pp_calloc((size_t)p.columns + 1, sizeof *list);
    draw_axis(&p);
    for (int r = 0; r < sim->n_rows; r++) {
        draw_row(&p, sim, r, list);
        if (d->plan)
            draw_row(&p, d->plan, r, list);
    }
    draw_legend(&p);
    if (!d->plan)
        draw_figures(&p);
    free(list);
    free(p.chunk);
    return err->code == PP_EXIT_OK ? 0 : -1;
}

int *pp_chunks(const struct pp_graph *g, int *most)
{
    int *n = pp_calloc((size_t)g->n_rows, sizeof *n);
    int *chunk = pp_calloc((size_t)g->n_stages + 1, sizeof *chunk);
    *most = 0;
    for (int s = 0; s < g->n_stages; s++) {
        chunk[s] = n[g->stages[s].row]++;
        *most = chunk[s] >= *most ? chunk[s] + 1 : *most;
    }
    free(n);
    return chunk;
}
