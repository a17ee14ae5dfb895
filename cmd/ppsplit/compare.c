/* SPDX-License-Identifier: MIT */
/* compare - the kinds of schedule, each on its best split: --compare, a
 * table and a picture of bubble against memory, and --method joint, the best of
 * them. */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "draw/chart.h"
#include "draw/page.h"
#include "ppsplit.h"

enum { KIND_COLUMNS = 15 };

static void tell(void *ctx, const struct pp_kind *kind, int n_chunks)
{
    struct split_job *j = ctx;
    tool_progress(&j->p.t, "planning %s, %d chunk%s on each rank",
                  kind ? kind->name : "an order", n_chunks,
                  n_chunks == 1 ? "" : "s");
}

/* --- the kinds --- */

struct kinds {
    const struct pp_kind *list[PP_MAX_KINDS]; /* ends with NULL */
    size_t n;
    bool orders; /* auto is among them */
};

/* Adds the kinds of one name of a list, each once. */
static int add_name(struct split_job *j, const char *option, const char *name,
                    struct kinds *x)
{
    const char *known[PP_MAX_KINDS];
    bool all = !strcmp(name, "all");
    pp_kind_names(known);
    int i = all ? 0 : tool_word(&j->p.t, option, name, known);
    if (i < 0)
        return -1;
    x->orders |= !all && !strcmp(known[i], "auto");
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        bool known_already = false;
        for (size_t n = 0; n < x->n; n++)
            known_already |= x->list[n] == *k;
        if (!known_already && (all || !strcmp((*k)->name, known[i])))
            x->list[x->n++] = *k;
    }
    x->list[x->n] = NULL;
    return 0;
}

static int read_kinds(struct split_job *j, const char *option, const char *list,
                      struct kinds *x)
{
    char *text = pp_arena_strdup(&j->p.arena, list), *name;
    *x = (struct kinds){.n = 0};
    while ((name = strsep(&text, ",")))
        if (add_name(j, option, name, x))
            return -1;
    return 0;
}

static const char *kind_name(const struct pp_split_row *r)
{
    return r->request.search_order ? "auto" : r->request.kind;
}

static const char *stages_name(const struct pp_split_row *r)
{
    const struct pp_split_request *q = &r->request;
    return q->placement == PP_PLACEMENT_BOTH_WAYS ? "both ways"
           : q->n_chunks == 1                     ? "chain"
           : q->placement == PP_PLACEMENT_LOOP    ? "loop"
                                                  : "v";
}

static void format_place(const struct pp_split_row *r, char buf[32])
{
    snprintf(buf, 32, r->request.n_chunks > 1 ? "%s %d" : "%s", stages_name(r),
             (int)r->request.n_chunks);
}

/* --- the table --- */

static void print_refusal(const struct pp_split_request *q,
                          const struct pp_split_row *r, FILE *f)
{
    char text[600], need[32], limit[32], place[32];
    if (r->why) {
        snprintf(text, sizeof text, "cannot run: %.500s", r->why);
    } else {
        format_place(r, place);
        pp_format_size(pp_size_of(r->need), need);
        pp_format_size(q->memory_bytes, limit);
        snprintf(text, sizeof text, "%s: does not fit: rank %d needs %s, of %s",
                 place, r->rank, need, limit);
    }
    tool_entry(f, KIND_COLUMNS, kind_name(r), text);
}

/* Writes what the last columns have: the time over the shortest, or rates if
 * times are seconds. */
static void format_end(const struct pp_split_request *q,
                       const struct pp_split_row *r,
                       const struct pp_split_row *best, char buf[64])
{
    char tokens[PP_AXIS_TEXT], mfu[32] = "-";
    if (!q->profile) {
        snprintf(buf, 64, "%7.1f%%", 100 * (r->step / best->step - 1));
        return;
    }
    const struct planner_speed s =
        planner_speed_of(q, r->step, q->n_microbatches);
    pp_axis_format(s.tokens, tokens);
    if (s.mfu > 0)
        snprintf(mfu, sizeof mfu, "%.1f%%", 100 * s.mfu);
    snprintf(buf, 64, "%8s %6s", tokens, mfu);
}

static void print_row(const struct pp_split_request *q,
                      const struct pp_split_row *r,
                      const struct pp_split_row *best, FILE *f)
{
    char place[32], memory[32], end[64];
    if (!r->fits) {
        print_refusal(q, r, f);
        return;
    }
    format_place(r, place);
    pp_format_short_size(pp_size_of(r->need), memory);
    format_end(q, r, best, end);
    fprintf(f, "%-14s %-9s %10.4g %6.1f%% %7s %s%s%s\n", kind_name(r), place,
            r->step, 100 * r->idle, memory, end,
            r->request.whole_head ? " B last" : "", r == best ? "  best" : "");
}

void split_print_kinds(const struct split_job *j, FILE *f)
{
    const struct pp_split_request *q = &j->p.request;
    const struct pp_mesh_kinds *c = &j->kinds;
    bool any = c->n > 0 && c->rows[0].fits;
    tool_paragraph(f,
                   "%s: %lld microbatches of %lld tokens on %lld ranks, each "
                   "kind on its best split. Memory is all of the fullest "
                   "rank.",
                   j->p.source, (long long)q->n_microbatches,
                   (long long)q->microbatch.tokens, (long long)q->n_ranks);
    if (any)
        fprintf(f, "\n%-14s %-9s %10s %7s %7s %s\n", "kind", "stages",
                q->profile ? "step (s)" : "step", "bubble", "memory",
                q->profile ? "tokens/s    MFU" : "  longer");
    for (size_t i = 0; i < c->n; i++)
        print_row(q, &c->rows[i], c->rows, f);
    if (any && c->bound.step > 0)
        tool_paragraph(f,
                       "No kind and no order of one copy takes less than %.4g: "
                       "by %s, row 1 is within %.1f %% of that.",
                       c->bound.step,
                       c->bound.rule == PP_LEAST_UNIT    ? "one unit alone"
                       : c->bound.rule == PP_LEAST_UNITS ? "whole units"
                                                         : "the work of all "
                                                           "ranks",
                       100 * (c->rows->step / c->bound.step - 1));
}

/* --- the picture --- */

/* The series of the picture. */
enum { CHAIN, LOOP, V, BOTH_WAYS, UNFIT, BEST, N_SERIES };

static int series_of(const struct pp_mesh_kinds *c,
                     const struct pp_split_row *r)
{
    return !r->fits                                         ? UNFIT
           : r == c->rows                                   ? BEST
           : r->request.placement == PP_PLACEMENT_BOTH_WAYS ? BOTH_WAYS
           : r->request.n_chunks == 1                       ? CHAIN
           : r->request.placement == PP_PLACEMENT_LOOP      ? LOOP
                                                            : V;
}

/* Adds a row to its series. */
static void add_point(struct pp_arena *a, const struct pp_split_row *r,
                      struct pp_series *s, double *x, double *y,
                      const char **label, const char **note)
{
    char text[160], place[32], memory[32];
    format_place(r, place);
    snprintf(text, sizeof text, "%s%s%s", kind_name(r),
             r->request.n_chunks > 1 ? ", " : "",
             r->request.n_chunks > 1 ? place : "");
    label[s->n] = pp_arena_strdup(a, text);
    pp_format_size(pp_size_of(r->need), memory);
    snprintf(text, sizeof text, "%s, %s: step %.4g, bubble %.1f %%, %s",
             kind_name(r), place, r->step, 100 * r->idle, memory);
    note[s->n] = pp_arena_strdup(a, text);
    x[s->n] = 100 * r->idle;
    y[s->n++] = r->need;
}

/* Fills the series; series without a point have no name in the legend. */
static void fill_series(struct pp_arena *a, const struct pp_mesh_kinds *c,
                        struct pp_series series[N_SERIES])
{
    static const char *const names[N_SERIES] = {
        "chain", "loop", "V", "both ways", "does not fit", "shortest step"};
    static const int colors[N_SERIES] = {0, 2, 1, 3, 5, 4};
    for (int k = 0; k < N_SERIES; k++) {
        double *x = pp_arena_alloc(a, c->n + 1, sizeof *x);
        double *y = pp_arena_alloc(a, c->n + 1, sizeof *y);
        const char **label = pp_arena_alloc(a, c->n + 1, sizeof *label);
        const char **note = pp_arena_alloc(a, c->n + 1, sizeof *note);
        series[k] = (struct pp_series){.mark = PP_CHART_POINTS,
                                       .color = colors[k],
                                       .hollow = k == UNFIT,
                                       .x = x,
                                       .y = y,
                                       .labels = label,
                                       .notes = note};
        for (size_t i = 0; i < c->n; i++)
            if (c->rows[i].need > 0 && series_of(c, &c->rows[i]) == k)
                add_point(a, &c->rows[i], &series[k], x, y, label, note);
        series[k].name = series[k].n > 0 ? names[k] : NULL;
    }
}

static int draw(struct split_job *j, const struct pp_mesh_kinds *c)
{
    struct pp_series series[N_SERIES];
    const struct pp_chart chart = {.x_label = "bubble: percent of the step "
                                              "that ranks wait",
                                   .y_label = "memory of the fullest rank",
                                   .series = series,
                                   .n_series = N_SERIES,
                                   .bytes = true,
                                   .height = 360,
                                   .limit = (double)j->p.memory_bytes,
                                   .limit_label = "--memory"};
    char title[160];
    snprintf(title, sizeof title,
             "Kinds of schedule: %lld ranks, %lld microbatches",
             (long long)j->p.request.n_ranks,
             (long long)j->p.request.n_microbatches);
    fill_series(&j->p.arena, c, series);
    FILE *f = tool_open(&j->p.t, j->o.svg);
    if (!f)
        return -1;
    pp_charts(f, title, &chart, 1, 1);
    return tool_close(&j->p.t, f);
}

static int refuse_all(struct split_job *j)
{
    return tool_usage(&j->p.t,
                      "--compare: none of these kinds has the chunks and the "
                      "placement of the other options; leave out -c, "
                      "--placement and a list of --recompute");
}

/* Says why no kind is left: rows, which begin with the least memory, end with
 * kinds that cannot run whatever the memory is. */
static void tell_none(struct split_job *j, const struct pp_split_row *r)
{
    char need[32], limit[32];
    j->p.t.status = r->why ? PP_EXIT_INPUT : PP_EXIT_NO;
    if (r->why) {
        tool_say(&j->p.t, TOOL_WARNING, "--compare: no kind can run: %s: %s",
                 kind_name(r), r->why);
        return;
    }
    pp_format_size(pp_size_of(r->need), need);
    pp_format_size(j->p.memory_bytes, limit);
    tool_say(&j->p.t, TOOL_WARNING,
             "--compare: no kind fits in %s: %s needs least, %s on rank %d",
             limit, kind_name(r), need, r->rank);
}

/* Plans the kinds, and orders if auto is among them. */
static int find_kinds(struct split_job *j, const struct kinds *kinds,
                      struct pp_mesh_kinds *found)
{
    const struct pp_mesh_contest contest = {
        .request = &j->p.request,
        .kinds = kinds->list,
        /* A list of modes is for one number of stages. */
        .has_chunks = tool_given(&j->p.t, "chunks") || j->stage_modes,
        /* Megatron-LM's layouts have a loop only. */
        .has_placement = tool_given(&j->p.t, "placement") ||
                         (j->p.request.layout && !j->o.compare),
        .orders = kinds->orders,
        .tell = tell,
        .ctx = j};
    int rc = pp_mesh_compare(&contest, found, &j->p.t.err);
    tool_erase(&j->p.t);
    return rc;
}

int split_compare(struct split_job *j)
{
    struct kinds kinds;
    struct pp_mesh_kinds *c = &j->kinds;
    FILE *f = NULL;
    if (read_kinds(j, "--compare", j->o.compare, &kinds) ||
        find_kinds(j, &kinds, c) || (c->n == 0 && refuse_all(j)) ||
        (j->o.svg && draw(j, c)) || !(f = tool_output(&j->p.t)))
        return -1;
    split_print_kinds(j, f);
    if (!c->rows[0].fits)
        tell_none(j, &c->rows[0]);
    return 0;
}

/* --- the method joint --- */

int split_plan_joint(struct split_job *j)
{
    struct kinds kinds, whole = {.n = 0};
    struct pp_mesh_kinds *c = &j->kinds;
    if (read_kinds(j, "--method joint",
                   j->rule.kinds ? j->rule.kinds : "all,auto", &kinds))
        return -1;
    for (size_t i = 0; i < kinds.n; i++)
        if (kinds.list[i]->slices <= 1 && !kinds.list[i]->copies)
            whole.list[whole.n++] = kinds.list[i];
        else if (j->rule.kinds)
            return tool_usage(&j->p.t,
                              "--method joint: %s has slices or copies, which "
                              "only --compare and -s have",
                              kinds.list[i]->name);
    whole.orders = kinds.orders;
    if (find_kinds(j, &whole, c))
        return -1;
    if (c->n == 0 || c->rows[0].why)
        return c->n == 0
                   ? refuse_all(j)
                   : pp_fail(&j->p.t.err, PP_EXIT_INPUT, "%s", c->rows[0].why);
    pp_split_plan_move(&c->plan, &j->p.plan);
    return 0;
}

/* Describes the search under x-search. */
static void set_search(const struct pp_mesh_kinds *x, struct pp_arena *a,
                       struct pp_manifest *m)
{
    struct pp_manifest_try *tries = pp_arena_alloc(a, x->n, sizeof *tries);
    for (size_t i = 0; i < x->n; i++) {
        const struct pp_split_row *r = &x->rows[i];
        tries[i] =
            (struct pp_manifest_try){.placement = stages_name(r),
                                     .schedule = kind_name(r),
                                     .n_chunks = (int)r->request.n_chunks,
                                     .whole_head = r->request.whole_head,
                                     .step = r->fits ? r->step : INFINITY};
    }
    const struct pp_manifest_search s = {
        .step = x->rows[0].step,
        .bound = fmin(x->bound.step, x->rows[0].step),
        .bound_rule = pp_least_rule_names[x->bound.rule],
        .tries = tries,
        .n_tries = x->n};
    pp_manifest_set_search(m, &s);
}

int split_set_order(struct split_job *j, struct pp_arena *a,
                    struct pp_manifest *m)
{
    struct pp_schedule s = j->p.plan.run.lowered;
    if (j->kinds.request.whole_head)
        s.kind = "auto";
    if (pp_manifest_set_schedule(m, &s, &j->p.t.err))
        return -1;
    set_search(&j->kinds, a, m);
    return 0;
}
