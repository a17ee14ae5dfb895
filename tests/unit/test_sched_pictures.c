/* SPDX-License-Identifier: MIT */
/* Pictures draw every action once and to scale. Messages go from the action
 * that makes them to the action that uses them. Memory peaks as in the memory
 * plan, and text is quoted. Sizes are odd on purpose. */
#include "sched_fixture.h"

#include <jansson.h>
#include <limits.h>

#include "draw/page.h"
#include "schedule/draw/svg.h"
#include "schedule/draw/trace.h"

/* A schedule with everything that a picture needs. */
struct scene {
    struct fixture f;
    struct pp_literal_costs literal;
    struct pp_costs costs;
    struct pp_sim sim;
    struct pp_messages messages;
    struct pp_memory_timeline slots[64];
};

struct shape {
    const char *kind;
    int p, c;
    enum pp_placement placement;
    int m;
    double cost[4];
};

static const struct shape shapes[] = {
    {"1f1b", 1, 1, PP_PLACEMENT_LOOP, 1, {1, 1, 1, 0}},
    {"1f1b", 4, 1, PP_PLACEMENT_LOOP, 7, {1, 1, 1, .25}},
    {"gpipe", 3, 1, PP_PLACEMENT_LOOP, 11, {1e-9, 2e-9, 3e-9, 0}},
    {"interleaved", 4, 4, PP_PLACEMENT_LOOP, 8, {3e14, 1, 1, 7}},
    {"zb-h1", 5, 1, PP_PLACEMENT_LOOP, 9, {10, 10, 8, 1}},
    {"zb-h2", 2, 1, PP_PLACEMENT_LOOP, 1, {0, 1, 0, 0}},
    {"zbv", 4, 2, PP_PLACEMENT_V, 6, {1, 0, 1, .1}},
    {"dualpipev", 4, 2, PP_PLACEMENT_V, 8, {1, 1, 1, 0}},
    {"dualpipev", 16, 2, PP_PLACEMENT_V, 33, {1, 2, .5, .1}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static bool build(struct scene *s, const struct shape *h)
{
    *s = (struct scene){0};
    struct fixture *f = &s->f;
    chain(f, h->p, h->c, h->placement);
    s->literal = (struct pp_literal_costs){.graph = &f->graph,
                                           .f = h->cost[0],
                                           .i = h->cost[1],
                                           .w = h->cost[2],
                                           .comm = h->cost[3],
                                           .textbook = true};
    s->costs = (struct pp_costs){.time = pp_literal_time, .ctx = &s->literal};
    bool good =
        !emit(f, h->kind, h->m, 0) && !pp_lower(&f->s, &f->err) &&
        !pp_check(&f->s, &f->err) &&
        !pp_simulate(&f->s, &s->costs, 1, &s->sim, &f->err) &&
        (pp_messages_find(&f->s, s->sim.rows, &s->costs, 1, &s->messages),
         true);
    for (int r = 0; good && r < h->p; r++)
        pp_memory_timeline_slots(&f->graph, &f->s.rows[r], s->sim.rows[r].spans,
                                 &s->slots[r]);
    if (!good)
        printf("# %s\n", f->err.text);
    return good;
}

static void finish(struct scene *s)
{
    for (int r = 0; r < 64; r++)
        pp_memory_timeline_finish(&s->slots[r]);
    pp_messages_finish(&s->messages);
    pp_sim_finish(&s->sim);
    drop(&s->f);
}

static char *draw(struct scene *s, int width)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    struct pp_svg_panel panel = {.schedule = &s->f.s,
                                 .title = "a<b>&\"c\"\n",
                                 .sim = &s->sim,
                                 .messages = &s->messages,
                                 .memory = s->slots,
                                 .memory_unit = "slot"};
    struct pp_svg o = {width, NULL};
    int rc = pp_svg(f, &panel, 1, &o, &s->f.err);
    fclose(f);
    if (rc)
        printf("# %s\n", s->f.err.text);
    /* The legend follows the axis and has cells of its own. */
    char *axis = strstr(text, ">time</text>");
    if (axis)
        *axis = '\0';
    return text;
}

/* --- cells --- */

struct box {
    double x, y, to, bottom;
};

/* Finds the next outline of an action in the picture. Returns NULL at the end.
 */
static const char *next_box(const char *at, struct box *b)
{
    double back;
    while ((at = strstr(at, "M"))) {
        if (sscanf(at, "M%lf %lfH%lfV%lfH%lfz", &b->x, &b->y, &b->to,
                   &b->bottom, &back) == 5 &&
            back == b->x && (at[-1] == '"' || at[-1] == 'z'))
            return at + 1;
        at++;
    }
    return NULL;
}

static bool is_cell(const struct pp_span *s)
{
    return pp_is_compute(s->action.op);
}

/* Returns the time at which a span is drawn: a pair as a whole. */
static void extent(const struct pp_sim_row *r, size_t i, double *from,
                   double *to)
{
    const struct pp_span *s = &r->spans[i];
    bool second = i > 0 && s[-1].action.overlap;
    *from = second ? s[-1].start : s->start;
    *to = s->action.overlap ? s[1].end : s->end;
}

/* With titles, the cells are in the order of the spans. */
static void test_cells(const struct shape *h)
{
    struct scene s;
    if (!ok(build(&s, h), "%s, %d ranks: planned", h->kind, h->p))
        goto out;
    char *svg = draw(&s, 900);
    const char *at = svg ? strstr(svg, "<g class=\"d\"") : NULL;
    ok(svg && strstr(svg, "a&lt;b&gt;&amp;&quot;c&quot; ,"),
       "%s: the title is quoted", h->kind);
    double plot = 900 - 70 - (50 + 16 + 44), scale = plot / s.sim.makespan;
    size_t cells = 0, wrong = 0, outside = 0;
    at = at ? at : svg;
    /* The backgrounds of rows come first; they begin at 0 0, as cells may. */
    at = at ? strstr(at, "<title>0F0: ") : NULL;
    while (at && strncmp(at, "<path", 5))
        at--;
    for (int r = 0; at && r < h->p; r++)
        for (size_t i = 0; i < s.sim.rows[r].n; i++) {
            struct box b;
            double from, to;
            if (!is_cell(&s.sim.rows[r].spans[i]) || !(at = next_box(at, &b)))
                continue;
            extent(&s.sim.rows[r], i, &from, &to);
            wrong += fabs(b.x - from * scale) > .006 ||
                     fabs(b.to - to * scale) > .006 || b.y >= b.bottom;
            outside +=
                b.x < 0 || b.to > plot + .006 || b.y < 0 || b.bottom > 40;
            cells++;
        }
    struct box more;
    is_int((long long)cells,
           (long long)pp_schedule_count(&s.f.s, PP_COMPUTE_OPS),
           "every action has a cell");
    ok(at && !next_box(at, &more), "there are no other cells");
    is_int((long long)wrong, 0, "each cell is to scale");
    is_int((long long)outside, 0, "each cell is inside its row");
    free(svg);
out:
    finish(&s);
}

/* Without titles, cells are joined by colour, each once. */
static void test_many(void)
{
    static const struct shape big = {"zbv",          8,   2,
                                     PP_PLACEMENT_V, 256, {1, 1, 1, 0}};
    struct scene s;
    if (!ok(build(&s, &big), "a large picture is planned"))
        goto out;
    char *svg = draw(&s, 0);
    long long cells = 0,
              n = (long long)pp_schedule_count(&s.f.s, PP_COMPUTE_OPS);
    struct box b;
    for (const char *at = svg; (at = next_box(at, &b));)
        cells++;
    is_int(cells, n + 8,
           "each action is drawn once, and a background for each rank");
    ok(!strstr(svg, "<title>0F0"), "none has a title");
    ok(strlen(svg) < 40 * (size_t)n, "an action takes few bytes");
    free(svg);
out:
    finish(&s);
}

static void test_refused(void)
{
    static const struct shape nothing = {"gpipe",           2, 1,
                                         PP_PLACEMENT_LOOP, 2, {0, 0, 0, 0}};
    struct scene s;
    ok(build(&s, &nothing), "work without time is planned");
    free(draw(&s, 0));
    is_int(s.f.err.code, PP_EXIT_INPUT, "work without time cannot be drawn");
    finish(&s);
}

/* --- messages and curves --- */

static void test_messages(const struct shape *h, int depth)
{
    struct scene s;
    size_t bad = 0;
    if (!build(&s, h))
        goto out;
    pp_sim_finish(&s.sim);
    pp_messages_finish(&s.messages);
    ok(!pp_simulate(&s.f.s, &s.costs, depth, &s.sim, &s.f.err) &&
           (pp_messages_find(&s.f.s, s.sim.rows, &s.costs, depth, &s.messages),
            true),
       "%s: messages at depth %d", h->kind, depth);
    is_int((long long)s.messages.n,
           (long long)pp_schedule_count(&s.f.s, PP_SEND_OPS),
           "as many messages as simulated");
    double slack = 1e-9 * s.sim.makespan;
    for (size_t i = 0; i < s.messages.n; i++) {
        const struct pp_message *m = &s.messages.at[i];
        const struct pp_span *from = s.sim.rows[m->from].spans;
        const struct pp_span *to = s.sim.rows[m->to].spans;
        struct pp_action recv = to[m->recv].action;
        bad += recv.stage != m->action.peer || recv.peer != m->action.stage ||
               recv.microbatch != m->action.microbatch ||
               from[m->producer].action.stage != m->action.stage ||
               to[m->consumer].action.stage != m->action.peer ||
               m->leaves < from[m->producer].end - slack ||
               m->arrives > to[m->consumer].start + slack ||
               m->waits > to[m->consumer].start + slack ||
               fabs(m->arrives - m->leaves - h->cost[3]) > slack;
    }
    is_int((long long)bad, 0, "each message arrives before its use");
out:
    finish(&s);
}

static void test_curves(const struct shape *h)
{
    struct scene s;
    size_t bad = 0;
    struct pp_stage_bytes sizes[64];
    if (!build(&s, h))
        goto out;
    for (int i = 0; i < 64; i++)
        sizes[i] = (struct pp_stage_bytes){700 + (size_t)i, 300, 200, 64};
    for (int r = 0; r < h->p; r++) {
        const struct pp_row *row = &s.f.s.rows[r];
        const struct pp_span *spans = s.sim.rows[r].spans;
        struct pp_memory m;
        struct pp_memory_timeline bytes = {0};
        if (pp_memory_plan(&s.f.s, r, sizes, &m, &s.f.err))
            break;
        pp_memory_timeline_bytes(row, spans, &m, &bytes);
        bad += s.slots[r].peak != pp_row_slots(&s.f.s, r) ||
               bytes.peak != (double)m.peak_bytes ||
               s.slots[r].at[s.slots[r].n - 1].value != 0 ||
               bytes.at[bytes.n - 1].value != 0;
        for (size_t i = 1; i < bytes.n; i++)
            bad += bytes.at[i].time < bytes.at[i - 1].time;
        pp_memory_finish(&m);
        pp_memory_timeline_finish(&bytes);
    }
    ok(!s.f.err.code && bad == 0, "%s: memory peaks as planned and ends empty",
       h->kind);
out:
    finish(&s);
}

/* A measured receive has the span of a wait, which a later action makes. */
static void test_measured(const struct shape *h)
{
    struct scene s;
    struct pp_messages again = {0};
    size_t bad = 0, waited = 0;
    struct pp_stage_bytes sizes[64];
    if (!build(&s, h))
        goto out;
    for (int i = 0; i < 64; i++)
        sizes[i] = (struct pp_stage_bytes){700 + (size_t)i, 300, 200, 64};
    for (int r = 0; r < h->p; r++) {
        struct pp_span *spans = s.sim.rows[r].spans;
        struct pp_memory m;
        struct pp_memory_timeline curve[2] = {{0}};
        if (pp_memory_plan(&s.f.s, r, sizes, &m, &s.f.err))
            break;
        for (int k = 0; k < 2; k++) {
            pp_memory_timeline_bytes(&s.f.s.rows[r], spans, &m, &curve[k]);
            for (size_t i = 0; i < s.messages.n; i++) {
                const struct pp_message *a = &s.messages.at[i];
                if (a->to != r)
                    continue;
                spans[a->recv].start = a->waits;
                spans[a->recv].end = fmax(a->waits, a->arrives);
                waited += a->arrives > a->waits;
            }
        }
        bad += curve[0].n != curve[1].n ||
               memcmp(curve[0].at, curve[1].at,
                      curve[0].n * sizeof *curve[0].at) != 0;
        pp_memory_finish(&m);
        pp_memory_timeline_finish(&curve[0]);
        pp_memory_timeline_finish(&curve[1]);
    }
    pp_messages_find(&s.f.s, s.sim.rows, NULL, 0, &again);
    for (size_t i = 0; i < again.n; i++)
        bad += again.at[i].waits != s.messages.at[i].waits;
    ok(waited > 0 && bad == 0, "%s: measured waits give the curve of the plan",
       h->kind);
    pp_messages_finish(&again);
out:
    finish(&s);
}

/* Clocks of ranks that differ make times negative, and let messages arrive
 * before they leave. The trace is valid, and no slice ends before it begins. */
static void test_clocks(const struct shape *h)
{
    struct scene s;
    char *text = NULL;
    size_t bytes = 0, i, negative = 0, early = 0, slices = 0;
    json_t *event;
    if (!build(&s, h)) {
        ok(false, "%s: clocks", h->kind);
        goto out;
    }
    for (i = 0; i < s.messages.n; i++)
        s.messages.at[i].arrives = s.messages.at[i].leaves - 0.0005;
    s.sim.rows[0].spans[0].start -= 0.0004;
    struct pp_trace t = {.schedule = &s.f.s,
                         .rows = s.sim.rows,
                         .messages = &s.messages,
                         .ns = 1e6,
                         .unit = "ms"};
    FILE *f = open_memstream(&text, &bytes);
    pp_trace_print(f, &t);
    fclose(f);
    json_t *trace = json_loadb(text, bytes, 0, NULL);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        json_t *dur = json_object_get(event, "dur");
        slices += dur != NULL;
        negative += json_number_value(dur) < 0;
        early += json_number_value(json_object_get(event, "ts")) == -0.4;
    }
    ok(trace && slices > s.messages.n && negative == 0,
       "%s: a trace of clocks that differ is valid", h->kind);
    ok(early == 1, "%s: with a negative time", h->kind);
    json_decref(trace);
    free(text);
out:
    finish(&s);
}

/* --- text --- */

static void test_text(void)
{
    char number[PP_AXIS_TEXT];
    is_near(pp_axis_step(1), 1, 0, "a step is one");
    is_near(pp_axis_step(1.01), 2, 0, "two");
    is_near(pp_axis_step(.03), .05, 1e-12, "or five of a power of ten");
    is_near(pp_axis_step(51), 100, 1e-12, "or the next");
    pp_axis_format(123456, number);
    is_str(number, "123.5k", "large numbers are short");
    is_near(pp_trace_ns(57, 1e6), 1e6, 0, "a unit is a millisecond");
    ok(1e-9 * pp_trace_ns(1e-9, 1e6) >= 1e3, "small times grow");
    ok(1e17 * pp_trace_ns(1e17, 1e6) < 4e14, "large times shrink");
}

int main(void)
{
    for (int i = 0; i < N_SHAPES; i++) {
        test_cells(&shapes[i]);
        test_messages(&shapes[i], 1);
        test_curves(&shapes[i]);
    }
    test_messages(&shapes[4], 0);
    test_messages(&shapes[4], 3);
    test_messages(&shapes[4], INT_MAX);
    test_messages(&shapes[7], INT_MAX);
    test_measured(&shapes[3]);
    test_measured(&shapes[6]);
    test_clocks(&shapes[1]);
    test_many();
    test_refused();
    test_text();
    return done();
}
