/* SPDX-License-Identifier: MIT */
/* --overlay: compares a run of the schedule, from its trace, with the plan.
 *
 * If the plan is not in seconds, its unit is scaled so that all its compute
 * actions together take the measured time. */
#include <inttypes.h>

#include "manifest/trace_json.h"
#include "ppsched.h"

struct overlay {
    struct ppsched *p;
    struct ppsched_view measured, planned;
    struct pp_costs inner; /* the plan's costs, in its own unit */
    double second;         /* seconds per unit */
};

static double scaled_time(const void *ctx, struct pp_action a)
{
    const struct overlay *o = ctx;
    return o->second * o->inner.time(o->inner.ctx, a);
}

static double busy(const struct pp_sim *sim)
{
    double sum = 0;
    for (int r = 0; r < sim->n_rows; r++)
        sum += sim->rows[r].busy;
    return sum;
}

/* Converts the plan's costs to seconds. */
static int scale_plan(struct overlay *o)
{
    struct ppsched *p = o->p;
    struct pp_sim sim;
    if (!p->costs.literal && p->costs.step.costs.plan.profile)
        return 0;
    if (pp_simulate(p->schedule, &p->costs.costs, p->schedule->channel_depth,
                    &sim, &p->tool->err))
        return -1;
    double planned = busy(&sim);
    pp_sim_finish(&sim);
    o->inner = p->costs.costs;
    o->second = planned > 0 ? busy(&o->measured.sim) / planned : 0;
    p->costs.costs.time = scaled_time;
    p->costs.costs.ctx = o;
    return 0;
}

/* --- output --- */

struct total {
    size_t n;
    double seconds;
};

static struct total total(const struct pp_sim *sim, enum pp_op op)
{
    struct total t = {0};
    for (int r = 0; r < sim->n_rows; r++)
        for (size_t i = 0; i < sim->rows[r].n; i++) {
            const struct pp_span *s = &sim->rows[r].spans[i];
            t.n += s->action.op == op;
            t.seconds += s->action.op == op ? s->end - s->start : 0;
        }
    return t;
}

static void print_ratio(FILE *f, double measured, double planned)
{
    if (planned > 0)
        fprintf(f, " %8.3f\n", measured / planned);
    else
        fputs("        -\n", f);
}

static void print_table(const struct overlay *o, FILE *f)
{
    static const char *const names[] = {"forward", "backward", "input gradient",
                                        "weight gradient"};
    const struct pp_sim *m = &o->measured.sim, *s = &o->planned.sim;
    fprintf(f, "%-16s %7s %12s %12s %8s\n", "", "actions", "measured s",
            "simulated s", "ratio");
    for (int op = PP_F; op <= PP_W; op++) {
        struct total a = total(m, (enum pp_op)op);
        struct total b = total(s, (enum pp_op)op);
        if (a.n == 0)
            continue;
        fprintf(f, "%-16s %7zu %12.6g %12.6g", names[op], a.n, a.seconds,
                b.seconds);
        print_ratio(f, a.seconds, b.seconds);
    }
    fprintf(f, "%-16s %7s %12.6g %12.6g", "makespan", "", m->makespan,
            s->makespan);
    print_ratio(f, m->makespan, s->makespan);
    fprintf(f, "%-16s %7s %11.1f%% %11.1f%%\n", "bubble", "", 100 * m->bubble,
            100 * s->bubble);
    if (o->inner.time)
        fprintf(f,
                "simulated at %.6g seconds per %s, so that all actions "
                "together take the measured time\n",
                o->second, o->p->costs.literal ? "unit" : "flop");
}

static int draw_text(const struct overlay *o, FILE *f)
{
    struct pp_draw d = ppsched_way_to_draw(o->p, f);
    d.unit = "s";
    d.plan = &o->planned.sim;
    return pp_draw(f, o->p->schedule, &o->measured.sim, &d, &o->p->tool->err);
}

static int draw_svg(const struct overlay *o)
{
    struct pp_svg_panel panels[] = {ppsched_panel(o->p, &o->measured),
                                    ppsched_panel(o->p, &o->planned)};
    panels[0].title = "measured";
    panels[1].title = "simulated";
    return ppsched_write_svg(o->p, panels, 2, "s");
}

static int show(struct overlay *o, FILE *f)
{
    const struct ppsched_options *options = &o->p->options;
    if (options->svg && draw_svg(o))
        return -1;
    if (options->timeline && draw_text(o, f))
        return -1;
    print_table(o, f);
    return 0;
}

/* Refuses a plan for the microbatches of another step than the trace's. */
static int check_step(const struct ppsched *p, int64_t step)
{
    int planned = p->options.step ? p->options.step : 1;
    if (!p->data || step == 0 || step == planned)
        return 0;
    return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                   "%s: the trace is of step %" PRId64
                   ", but the plan is for step %d; give --step %" PRId64,
                   p->options.overlay, step, planned, step);
}

int ppsched_overlay(struct ppsched *p, FILE *f)
{
    struct overlay o = {.p = p};
    const struct pp_costs costs = p->costs.costs;
    struct pp_sim sim;
    int64_t step;
    if (pp_trace_read(p->options.overlay, p->schedule,
                      pp_manifest_plan_name(&p->manifest).text, &sim, &step,
                      &p->tool->err))
        return -1;
    if (check_step(p, step)) {
        pp_sim_finish(&sim);
        return -1;
    }
    int rc = ppsched_view_measured(p, &sim, &o.measured) || scale_plan(&o) ||
                     ppsched_view_init(p, &o.planned) || show(&o, f)
                 ? -1
                 : 0;
    p->costs.costs = costs;
    ppsched_view_finish(p, &o.measured);
    ppsched_view_finish(p, &o.planned);
    return rc;
}
