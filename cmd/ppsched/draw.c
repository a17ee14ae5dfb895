/* SPDX-License-Identifier: MIT */
/* Pictures of one schedule: -t, --svg and --trace. All show it at its channel
 * depth, as pprun would run it. */
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ppsched.h"
#include "schedule/draw/draw.h"
#include "schedule/draw/trace.h"

/* Times of the trace: a unit is a millisecond, a petaflop is a second. */
static const double ns_per_unit = 1e6, ns_per_flop = 1e-6, ns_per_second = 1e9;

const char *ppsched_unit(const struct ppsched *p)
{
    return p->costs.literal                   ? NULL
           : p->costs.step.costs.plan.profile ? "s"
                                              : "flop";
}

struct pp_draw ppsched_way_to_draw(const struct ppsched *p, FILE *f)
{
    const struct ppsched_options *o = &p->options;
    const char *no_color = getenv("NO_COLOR");
    bool terminal =
        f == stdout && isatty(STDOUT_FILENO) && (!no_color || !*no_color);
    bool color = o->color == PPSCHED_COLOR_ON ||
                 (o->color == PPSCHED_COLOR_AUTO && terminal);
    return (struct pp_draw){o->width,        color, o->ascii,
                            ppsched_unit(p), NULL,  p->manifest.row_names};
}

int ppsched_draw(struct ppsched *p, FILE *f)
{
    const struct pp_schedule *s = p->schedule;
    struct pp_draw d = ppsched_way_to_draw(p, f);
    struct pp_err *err = &p->tool->err;
    struct pp_sim sim = {0};
    if (ppsched_memory(p, NULL) ||
        pp_simulate(s, &p->costs.costs, s->channel_depth, &sim, err))
        return -1;
    if (sim.makespan > 0) /* pp_draw refuses any other */
        fprintf(
            f, "%s: %d rank%s, %d stage%s, %d microbatch%s, channel depth %d\n",
            s->kind, s->graph->n_rows, s->graph->n_rows == 1 ? "" : "s",
            s->graph->n_stages, s->graph->n_stages == 1 ? "" : "s",
            s->n_microbatches, s->n_microbatches == 1 ? "" : "es",
            s->channel_depth);
    int rc = pp_draw(f, s, &sim, &d, err);
    pp_sim_finish(&sim);
    return rc;
}

/* --- views --- */

static bool in_bytes(const struct ppsched *p)
{
    return p->costs.sized && !p->options.slots;
}

static int find_bytes(struct ppsched *p, int rank,
                      const struct pp_sim_row *ranks,
                      struct pp_memory_timeline *c)
{
    struct pp_memory m = {0};
    struct pp_err *err = &p->tool->err;
    if (pp_memory_plan(p->schedule, rank, p->costs.sizes, &m, err))
        return -1;
    pp_memory_timeline_bytes(&p->schedule->rows[rank], ranks[rank].spans, &m,
                             c);
    pp_memory_finish(&m);
    return 0;
}

/* Returns the part of --memory for a rank's activations and messages. */
static double limit_of(const struct ppsched *p, int rank)
{
    return p->options.slots
               ? (double)p->options.slots
               : (double)(p->options.memory -
                          ppsched_fixed_bytes(p, p->schedule, rank));
}

/* Fills the memory over the view's spans. */
static int find_curves(struct ppsched *p, struct ppsched_view *v)
{
    const struct pp_schedule *s = p->schedule;
    size_t n = (size_t)s->graph->n_rows;
    v->slots = pp_calloc(n, sizeof *v->slots);
    v->bytes = p->costs.sized ? pp_calloc(n, sizeof *v->bytes) : NULL;
    if (p->options.memory || p->options.slots)
        v->limit = pp_calloc(n, sizeof *v->limit);
    for (int r = 0; r < s->graph->n_rows; r++) {
        pp_memory_timeline_slots(s->graph, &s->rows[r], v->sim.rows[r].spans,
                                 &v->slots[r]);
        if (v->bytes && find_bytes(p, r, v->sim.rows, &v->bytes[r]))
            return -1;
        if (v->limit)
            v->limit[r] = limit_of(p, r);
    }
    return 0;
}

int ppsched_view_init(struct ppsched *p, struct ppsched_view *v)
{
    const struct pp_schedule *s = p->schedule;
    struct pp_err *err = &p->tool->err;
    struct pp_bound bound;
    *v = (struct ppsched_view){0};
    if (ppsched_memory(p, NULL) ||
        pp_simulate(s, &p->costs.costs, s->channel_depth, &v->sim, err))
        return -1;
    pp_messages_find(s, v->sim.rows, &p->costs.costs, s->channel_depth,
                     &v->messages);
    if (ppsched_bound(p, v->sim.makespan, &bound))
        return -1;
    v->bound = bound.makespan;
    return find_curves(p, v);
}

int ppsched_view_measured(struct ppsched *p, struct pp_sim *sim,
                          struct ppsched_view *v)
{
    *v = (struct ppsched_view){.sim = *sim};
    *sim = (struct pp_sim){0};
    pp_messages_find(p->schedule, v->sim.rows, NULL, 0, &v->messages);
    return find_curves(p, v);
}

static void finish_curves(struct pp_memory_timeline *c, int n)
{
    for (int r = 0; c && r < n; r++)
        pp_memory_timeline_finish(&c[r]);
    free(c);
}

void ppsched_view_finish(struct ppsched *p, struct ppsched_view *v)
{
    finish_curves(v->slots, p->manifest.graph.n_rows);
    finish_curves(v->bytes, p->manifest.graph.n_rows);
    free(v->limit);
    pp_messages_finish(&v->messages);
    pp_sim_finish(&v->sim);
    *v = (struct ppsched_view){0};
}

struct pp_svg_panel ppsched_panel(const struct ppsched *p,
                                  const struct ppsched_view *v)
{
    bool bytes = in_bytes(p);
    return (struct pp_svg_panel){.schedule = p->schedule,
                                 .sim = &v->sim,
                                 .messages = &v->messages,
                                 .memory = bytes ? v->bytes : v->slots,
                                 .limit = v->limit,
                                 .bound = v->bound,
                                 .memory_unit = bytes ? NULL : "slot",
                                 .names = p->manifest.row_names};
}

/* --- files --- */

int ppsched_write_svg(struct ppsched *p, const struct pp_svg_panel *panels,
                      int n_panels, const char *unit)
{
    struct pp_svg o = {p->options.width, unit};
    FILE *f;
    if (p->options.timeline)
        o.width = 0; /* --width is -t's */
    if (!(f = tool_open(p->tool, p->options.svg)))
        return -1;
    int rc = pp_svg(f, panels, n_panels, &o, &p->tool->err);
    return tool_close(p->tool, f) || rc ? -1 : 0;
}

static int write_trace(struct ppsched *p, const struct ppsched_view *v)
{
    const struct pp_plan_name name = pp_manifest_plan_name(&p->manifest);
    const char *unit = ppsched_unit(p);
    double wish = !unit                              ? ns_per_unit
                  : p->costs.step.costs.plan.profile ? ns_per_second
                                                     : ns_per_flop;
    struct pp_trace t = {.schedule = p->schedule,
                         .rows = v->sim.rows,
                         .messages = &v->messages,
                         .slots = v->slots,
                         .bytes = v->bytes,
                         .ns = pp_trace_ns(v->sim.makespan, wish),
                         .unit = unit ? unit : "unit",
                         .plan = name.text,
                         .names = p->manifest.row_names};
    FILE *f;
    if (!(f = tool_open(p->tool, p->options.trace)))
        return -1;
    pp_trace_print(f, &t);
    return tool_close(p->tool, f);
}

int ppsched_pictures(struct ppsched *p)
{
    struct ppsched_view v;
    int rc = ppsched_view_init(p, &v);
    if (!rc && p->options.svg) {
        struct pp_svg_panel panel = ppsched_panel(p, &v);
        rc = ppsched_write_svg(p, &panel, 1, ppsched_unit(p));
    }
    if (!rc && p->options.trace)
        rc = write_trace(p, &v);
    ppsched_view_finish(p, &v);
    return rc;
}
