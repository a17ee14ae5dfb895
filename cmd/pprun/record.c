/* SPDX-License-Identifier: MIT */
/* record - writes the files of --trace and --profile. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "manifest/profile_json.h"
#include "model/vision.h"
#include "pprun.h"
#include "run/train/record.h"
#include "schedule/memory/memory.h"
#include "schedule/draw/trace.h"

/* Most steps of a profile, and most numbers that it keeps in memory. */
enum { MOST_STEPS = 16, MOST_KEPT = 1 << 24 };

/* Returns the number of steps to profile, for the memory of the largest rank.
 */
static int profile_steps(const struct pp_job *j)
{
    size_t step = (size_t)j->schedule->n_microbatches *
                  (size_t)j->schedule->graph->slices.n * (size_t)j->accumulate *
                  pp_model_n_units(j->model) * PP_N_LAYER_TIMES;
    size_t n = MOST_KEPT / step;
    return n < 1 ? 1 : n > MOST_STEPS ? MOST_STEPS : (int)n;
}

/* Refuses recomputation. A profile has plain times; ppsplit adds the cost of
 * recomputation to them. */
static int check_plain(const struct runner *p)
{
    const struct pp_job *j = &p->job;
    for (int s = 0; s < j->schedule->graph->n_stages; s++)
        if (j->recompute && j->recompute[s] != PP_RECOMPUTE_NONE)
            return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                           "--profile: stage %d recomputes: make the plan with "
                           "ppsplit --recompute none",
                           s);
    return 0;
}

int pprun_record_init(struct runner *p)
{
    struct pprun *own = pprun_of(p);
    const struct pprun_options *o = &own->options;
    struct pp_job *j = &p->job;
    int64_t n = 0;
    if (o->profile && check_plain(p))
        return -1;
    if (o->trace)
        n = o->trace_steps ? o->trace_steps : 1;
    if (o->profile && n < profile_steps(j))
        n = profile_steps(j);
    j->record.n_steps = (int)(n < j->optim.steps ? n : j->optim.steps);
    if (p->rank != 0)
        return 0;
    /* These are opened while the run has something to lose. */
    if (j->dump_grads && pp_output_check(j->dump_grads, &p->tool->err))
        return -1;
    if (o->svg && pp_output_check(o->svg, &p->tool->err))
        return -1;
    if (o->trace && !(own->trace = tool_open(p->tool, o->trace)))
        return -1;
    if (o->profile && !(own->profile = tool_open(p->tool, o->profile)))
        return -1;
    return pprun_curves_draw(p, &p->tool->err);
}

int pprun_record_close(struct runner *p)
{
    int rc = pprun_of(p)->trace ? tool_close(p->tool, pprun_of(p)->trace) : 0;
    if (pprun_of(p)->profile && tool_close(p->tool, pprun_of(p)->profile))
        rc = -1;
    return rc;
}

/* --- the trace --- */

/* Data of one pass of the trace. */
struct pass {
    struct pp_sim sim;
    struct pp_messages messages;
    struct pp_memory_timeline *slots, *bytes;
    struct pp_trace_part *parts;
};

static void finish_pass(struct pass *s, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        if (s->slots)
            pp_memory_timeline_finish(&s->slots[r]);
        if (s->bytes)
            pp_memory_timeline_finish(&s->bytes[r]);
    }
    free(s->slots);
    free(s->bytes);
    free(s->parts);
    pp_messages_finish(&s->messages);
    pp_sim_finish(&s->sim);
}

static double earliest(const struct pp_record *r, int step)
{
    double first = pp_record_marks(r, 0, step)[PP_MARK_START];
    for (int k = 1; k < r->schedule->graph->n_rows; k++)
        first = fmin(first, pp_record_marks(r, k, step)[PP_MARK_START]);
    return first;
}

/* Finds the parts of a step around its passes, for each rank. */
static size_t find_parts(const struct pp_record *r, int step, double origin,
                         struct pp_trace_part *parts)
{
    static const struct {
        const char *name;
        enum pp_mark from;
    } kinds[] = {{"zero gradients", PP_MARK_START},
                 {"schedule", PP_MARK_ZEROED},
                 {"norm", PP_MARK_PLAYED},
                 {"update", PP_MARK_EXCHANGED}};
    size_t n = 0;
    for (int k = 0; k < r->schedule->graph->n_rows; k++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            const double *at = pp_record_marks(r, k, step) + kinds[i].from;
            parts[n++] = (struct pp_trace_part){kinds[i].name, k,
                                                at[0] - origin, at[1] - origin};
        }
    return n;
}

/* Finds memory over time, from the begin of the pass. */
static int find_curves(const struct runner *p, const struct pp_record *r,
                       double begin, struct pass *s, struct pp_err *err)
{
    int n = r->schedule->graph->n_rows, rc = 0;
    struct pp_stage_bytes *sizes = pp_job_sizes(&p->job, PP_PASS_TRAIN, err);
    if (!sizes)
        return -1;
    for (int k = 0; k < n && !rc; k++) {
        const struct pp_row *row = &r->schedule->rows[k];
        const struct pp_span *spans = s->sim.rows[k].spans;
        struct pp_memory m = {0};
        rc = pp_memory_plan(r->schedule, k, sizes, &m, err);
        if (!rc)
            pp_memory_timeline_slots(r->schedule->graph, row, spans,
                                     &s->slots[k]);
        if (!rc)
            pp_memory_timeline_bytes(row, spans, &m, &s->bytes[k]);
        pp_memory_finish(&m);
        if (rc)
            break;
        s->slots[k].at[0].time = s->bytes[k].at[0].time = begin;
    }
    free(sizes);
    return rc;
}

static int view_pass(const struct runner *p, const struct pp_record *r,
                     int step, int pass, double origin, struct pass *s,
                     struct pp_trace *t, struct pp_err *err)
{
    size_t n = (size_t)r->schedule->graph->n_rows;
    s->slots = calloc(n, sizeof *s->slots);
    s->bytes = calloc(n, sizeof *s->bytes);
    s->parts = calloc(n * PP_N_MARKS, sizeof *s->parts);
    if (!s->slots || !s->bytes || !s->parts)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (pp_record_view(r, step, pass, origin, &s->sim, err))
        return -1;
    pp_messages_find(r->schedule, s->sim.rows, NULL, 0, &s->messages);
    if (find_curves(p, r, earliest(r, step) - origin, s, err))
        return -1;
    *t = (struct pp_trace){.schedule = r->schedule,
                           .rows = s->sim.rows,
                           .messages = &s->messages,
                           .slots = s->slots,
                           .bytes = s->bytes,
                           .ns = 1e9,
                           .error = 2 * r->error,
                           .unit = "s",
                           .step = r->first_step + step,
                           .pass = pass,
                           .parts = s->parts};
    if (pass == 0)
        t->n_parts = find_parts(r, step, origin, s->parts);
    return 0;
}

static int write_trace(const struct runner *p, const struct pp_record *r,
                       struct pp_err *err)
{
    const struct pp_plan_name plan = pp_manifest_plan_name(&p->manifest);
    struct pp_trace_writer *w = NULL;
    int given = pprun_of(p)->options.trace_steps, wish = given ? given : 1;
    int rc = 0;
    int first = wish < r->n_steps ? r->n_steps - wish : 0;
    double origin = earliest(r, first);
    for (int k = first; k < r->n_steps && !rc; k++)
        for (int pass = 0; pass < r->n_passes && !rc; pass++) {
            struct pass s = {0};
            struct pp_trace t;
            rc = view_pass(p, r, k, pass, origin, &s, &t, err);
            t.plan = plan.text;
            t.names = p->manifest.row_names;
            if (!rc && !w)
                pp_trace_open(&w, pprun_of(p)->trace, &t);
            if (!rc)
                pp_trace_add(w, &t);
            finish_pass(&s, r->schedule->graph->n_rows);
        }
    pp_trace_close(w);
    return rc;
}

/* Returns true for a pipe or a device, whose reader may stop. */
static bool may_stall(FILE *f)
{
    struct stat st;
    return f && (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode));
}

int pprun_recorded(void *ctx, const struct pp_record *r, struct pp_err *err)
{
    struct runner *p = ctx;
    if (p->job.save &&
        (may_stall(pprun_of(p)->trace) || may_stall(pprun_of(p)->profile)))
        pprun_release_signals();
    if (pprun_of(p)->trace && write_trace(p, r, err))
        return -1;
    if (!pprun_of(p)->profile)
        return 0;
    if (r->n_profiled == 0)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "--profile: the run stopped before its first measured step");
    if (r->alike)
        tool_say(p->tool, TOOL_NOTE,
                 "--profile: the microbatches are too similar to separate the "
                 "cost of a token from that of a pair of tokens; the time is "
                 "divided by operation counts");
    pp_profile_write(pprun_of(p)->profile, &r->profile);
    return 0;
}
