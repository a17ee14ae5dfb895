/* SPDX-License-Identifier: MIT */
/* table - -t: the plan as a table for people. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_writer.h"
#include "base/num.h"
#include "model/cost.h"
#include "model/model.h"
#include "model/vision.h"
#include "ppsplit.h"
#include "split/describe.h"

enum { UNITS_TEXT = 96, BAR = 20, LEAST_BAR = 4 };

/* The columns of a table of costs beside its first column and the bar: columns
 * of numbers, and the mark. */
enum { NUMBER_COLUMNS = 21, MARK_COLUMNS = 12 };
static const char largest_mark[] = "  <- largest";

/* Writes units of a table of units by name: "first", "first ... last". */
static void format_names(const struct pp_unit_row *rows, size_t first,
                         size_t end, char buf[UNITS_TEXT])
{
    if (first == end)
        snprintf(buf, UNITS_TEXT, "(none)");
    else if (first + 1 == end)
        snprintf(buf, UNITS_TEXT, "%.90s", rows[first].fqn);
    else
        snprintf(buf, UNITS_TEXT, "%.40s ... %.40s", rows[first].fqn,
                 rows[end - 1].fqn);
}

/* Adds an item to a list. */
static void append(char buf[UNITS_TEXT], const char *text)
{
    size_t n = strlen(buf);
    if (*text)
        snprintf(buf + n, UNITS_TEXT - n, "%s%s", n ? ", " : "", text);
}

/* Writes units of an encoder: "patches, blocks 0-7", "blocks 8-31, projector".
 * Names norms only if there is nothing else. If there are two encoders, a whole
 * one is "vision encoder", and units of audio are "audio blocks 0-7". */
static void format_encoder(const struct pp_model *m, size_t first, size_t end,
                           char buf[UNITS_TEXT])
{
    size_t from = SIZE_MAX, to = 0;
    bool patches = false, projector = false, norm = false;
    bool both = pp_model_n_encoders(m) > 1;
    char text[64] = "";
    if (first >= end)
        return;
    const struct pp_vision *v = pp_unit_encoder(m, pp_model_unit(m, first));
    const char *of = both && pp_vision_hears(v) ? "audio " : "";
    for (size_t i = first; i < end; i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        patches |= u.kind == PP_UNIT_PATCHES;
        projector |= u.kind == PP_UNIT_PROJECTOR;
        norm |= u.kind == PP_UNIT_NORM;
        if (u.kind == PP_UNIT_LAYER) {
            from = u.layer < from ? u.layer : from;
            to = u.layer + 1;
        }
    }
    if (both && patches && projector) {
        snprintf(text, sizeof text, "%s encoder", pp_vision_part(v));
        append(buf, text);
        return;
    }
    if (patches) {
        snprintf(text, sizeof text, "%spatches", of);
        append(buf, text);
    }
    if (to == from + 1)
        snprintf(text, sizeof text, "%sblock %zu", of, from);
    else if (to > 0)
        snprintf(text, sizeof text, "%sblocks %zu-%zu", of, from, to - 1);
    append(buf, to > 0 ? text : "");
    if (projector) {
        snprintf(text, sizeof text, "%sprojector", of);
        append(buf, text);
    }
    if (norm && !buf[0])
        append(buf, "encoder's norm");
}

/* Writes the units of a stage: "embedding, layers 0-7", "norm, head",
 * "(none)". */
static void format_units(const struct pp_split_plan *plan, int stage,
                         char buf[UNITS_TEXT])
{
    size_t first = pp_split_first(plan, stage), end = pp_split_end(plan, stage);
    const struct pp_model *m = plan->run.request->shard.model;
    size_t layers = m->n_layers;
    size_t vision = pp_component_first(m, PP_LANGUAGE);
    buf[0] = '\0';
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++) {
        size_t from = pp_component_first(m, i);
        size_t to = pp_component_first(m, i + 1);
        format_encoder(m, first > from ? first : from, end < to ? end : to,
                       buf);
    }
    if (first < vision && end <= vision)
        return;
    first = first > vision ? first - vision : 0;
    end = end > vision ? end - vision : 0;
    size_t from = first > 0 ? first - 1 : 0;
    size_t to = end > layers + 1 ? layers : end > 0 ? end - 1 : 0;
    size_t head = plan->run.n_units - vision - 1 - m->head_stages;
    char run[64] = "";
    if (m->table && !planner_estimates(m)) {
        format_names(m->table->rows, first, end, buf);
        return;
    }
    if (m->head_stages && first >= head) { /* one unit has the stage */
        char fqn[PP_FQN_TEXT];
        pp_model_fqn(m, pp_model_unit(m, pp_split_first(plan, stage)), fqn);
        append(buf, fqn);
        return;
    }
    if (to == from + 1)
        snprintf(run, sizeof run, "layer %zu", from);
    else if (to > from)
        snprintf(run, sizeof run, "layers %zu-%zu", from, to - 1);
    const char *const parts[] = {
        first == 0 && end > 0 ? "embedding" : "",
        run,
        first <= layers + 1 && end > layers + 1 ? "norm" : "",
        end > layers + 2 && first < head && head > layers + 2 ? "mtp" : "",
        first <= head && end > head ? "head" : "",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        append(buf, parts[i]);
    if (!buf[0])
        snprintf(buf, UNITS_TEXT, "(none)");
}

/* Writes a count: "812", "12.3 K", "1.24 B". */
static void format_count(uint64_t n, char buf[32])
{
    static const char *const units[] = {"", " K", " M", " B", " T"};
    double v = (double)n;
    size_t u = 0;
    while (v >= 999.5 && u + 1 < sizeof units / sizeof *units) {
        v /= 1000;
        u++;
    }
    snprintf(buf, 32, u ? "%.3g%s" : "%.0f%s", v, units[u]);
}

static double total_cost(const struct pp_split_plan *plan)
{
    double total = 0;
    for (int s = 0; s < plan->graph.n_stages; s++)
        total += plan->stages[s].cost;
    return total;
}

static double largest_cost(const struct pp_split_sum *sums, int n)
{
    double largest = 0;
    for (int i = 0; i < n; i++)
        largest = sums[i].cost > largest ? sums[i].cost : largest;
    return largest;
}

static void print_head(const struct split_job *j, FILE *f)
{
    const struct pp_split_plan *plan = &j->p.plan;
    const struct pp_model *m = &j->p.model;
    const struct pp_split_request *q = plan->run.request;
    char params[32];
    format_count(pp_model_n_params(m), params);
    tool_paragraph(f, "%s: %s, %zu layers, %s parameters%s", j->p.source,
                   pp_model_architecture(m), m->n_layers, params,
                   m->tied ? ", tied head" : "");
    tool_paragraph(
        f, "%d stage%s on %d rank%s%s, %s; sequences of %" PRId64 " tokens",
        plan->graph.n_stages, plan->graph.n_stages == 1 ? "" : "s",
        plan->graph.n_rows, plan->graph.n_rows == 1 ? "" : "s",
        plan->graph.n_copies > 1            ? " both ways"
        : q->n_chunks == 1                  ? ""
        : q->placement == PP_PLACEMENT_LOOP ? " in a loop"
                                            : " in a V",
        j->given ? "given" : split_method_names[j->rule.method], j->p.seq_len);
    if (planner_estimates(m))
        tool_paragraph(f, "Estimated: %s.", planner_estimates(m));
    fputc('\n', f);
}

/* Returns the width of the bars beside a first column. */
static int bar_beside(int left)
{
    int room = TOOL_COLUMNS - left - NUMBER_COLUMNS - MARK_COLUMNS;
    return room > BAR ? BAR : room;
}

/* Prints the columns that stages and ranks share, to the end of the line. */
static void print_sum(const struct pp_split_sum *sum, double total,
                      double largest, int width, const char *mark, FILE *f)
{
    char params[32];
    double share = total > 0 ? 100 * sum->cost / total : 0;
    int n = largest > 0 ? (int)(width * sum->cost / largest + 0.5) : 0;
    format_count(sum->params, params);
    fprintf(f, "  %8s  %5.1f %%%s", params, share, n > 0 ? "  " : "");
    while (n-- > 0)
        fputc('#', f);
    fprintf(f, "%s\n", mark);
}

static void print_titles(const char *left, int width, FILE *f)
{
    fprintf(f, "%-*s  %8s  %7s\n", width, left, "params", "cost");
}

/* Cuts text to at most n bytes, with dots at its end. */
static void cut(char *text, int n)
{
    if ((int)strlen(text) > n)
        strcpy(text + n - 3, "...");
}

static void print_stages(const struct pp_split_plan *plan, const char *mark,
                         FILE *f)
{
    enum { LEFT = 13 }; /* columns before the units */
    const struct pp_graph *g = &plan->graph;
    const int most =
        TOOL_COLUMNS - LEFT - NUMBER_COLUMNS - MARK_COLUMNS - LEAST_BAR;
    char units[UNITS_TEXT];
    double total = total_cost(plan),
           largest = largest_cost(plan->stages, g->n_stages);
    int width = (int)strlen("units");
    for (int s = 0; s < g->n_stages; s++) {
        format_units(plan, s, units);
        int n = (int)strlen(units);
        width = n > width ? n : width;
    }
    width = width > most ? most : width;
    print_titles("stage  rank  units", LEFT + width, f);
    for (int s = 0; s < g->n_stages; s++) {
        format_units(plan, s, units);
        cut(units, width);
        fprintf(f, "%5d  %4d  %-*s", s, g->stages[s].row, width, units);
        print_sum(&plan->stages[s], total, largest, bar_beside(LEFT + width),
                  plan->stages[s].cost == largest ? mark : "", f);
    }
}

/* Writes the stages of a rank, "0, 7", and "..." if there are many. */
static void format_stages(const struct pp_split_plan *plan, int rank, char *buf,
                          size_t bytes)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int s = 0; s < plan->graph.n_stages; s++) {
        if (plan->graph.stages[s].row != rank)
            continue;
        if (n + 16 > bytes) {
            snprintf(buf + n, bytes - n, ", ...");
            return;
        }
        n += (size_t)snprintf(buf + n, bytes - n, "%s%d", n ? ", " : "", s);
    }
}

static void print_ranks(const struct pp_split_plan *plan, FILE *f)
{
    enum { STAGES_TEXT = 34, LEFT = 7 };
    const struct pp_graph *g = &plan->graph;
    char stages[STAGES_TEXT];
    double largest = largest_cost(plan->ranks, g->n_rows);
    int width = (int)strlen("stages");
    for (int r = 0; r < g->n_rows; r++) {
        format_stages(plan, r, stages, sizeof stages);
        int n = (int)strlen(stages);
        width = n > width ? n : width;
    }
    fputc('\n', f);
    print_titles(" rank  stages", LEFT + width, f);
    for (int r = 0; r < g->n_rows; r++) {
        bool marked = g->n_rows > 1 && plan->ranks[r].cost == largest;
        format_stages(plan, r, stages, sizeof stages);
        fprintf(f, "%5d  %-*s", r, width, stages);
        print_sum(&plan->ranks[r], total_cost(plan), largest,
                  bar_beside(LEFT + width), marked ? largest_mark : "", f);
    }
}

static void print_memory(const struct pp_split_plan *plan, FILE *f)
{
    char row[TOOL_MEMORY_ROW];
    fputc('\n', f);
    tool_memory_titles(plan->run.request->mapped, row);
    fprintf(f, "%s\n", row);
    for (int r = 0; r < plan->graph.n_rows; r++) {
        tool_memory_row(r, &plan->ranks[r].bytes, row);
        fprintf(f, "%s\n", row);
    }
    fputc('\n', f);
}

/* Says that each rank is one of a group, if the mesh has more dimensions. */
static void print_mesh(const struct pp_split_plan *plan, FILE *f)
{
    const struct pp_split_request *q = plan->run.request;
    const struct pp_mesh *x = &q->shard.mesh;
    bool both = pp_model_n_encoders(q->shard.model) > 1;
    char encoder[192] = "";
    bool divided = pp_mesh_replicas(x) > 1;
    if (x->dp == 1 && x->tp == 1 && x->cp == 1 && x->ep == 1 &&
        planner_encoder_group(q, 0) < 2 && planner_encoder_group(q, 1) < 2)
        return;
    for (size_t i = 0; q->encoders && i < PP_MAX_ENCODERS; i++) {
        const struct pp_mesh *e = &q->encoders[i];
        size_t n = strlen(encoder);
        divided |= e->dp * e->cp > 1;
        if (e->dp)
            snprintf(encoder + n, sizeof encoder - n,
                     ", one of the encoder%s%s of dp %d x tp %d x cp %d",
                     both ? " of " : "",
                     !both ? ""
                     : i   ? "audio"
                           : "images",
                     e->dp, e->tp, e->cp);
    }
    if (x->encoder_tp) {
        const struct pp_mesh own = pp_mesh_of(x, true);
        size_t n = strlen(encoder);
        snprintf(encoder + n, sizeof encoder - n,
                 ", for the encoder%s dp %d x tp %d",
                 q->encoders ? " of audio" : "", own.dp, own.tp);
    }
    tool_paragraph(
        f,
        "Each pipeline rank is a group of dp %d x tp %d x cp %d ranks%s%s; "
        "%lld in all. Costs, sizes and parameters are of one rank%s.",
        x->dp, x->tp, x->cp, x->ep > 1 ? " with ep" : "", encoder,
        (long long)planner_n_ranks(q),
        divided && !x->whole_state
            ? x->divided_weights
                  ? ", with its part of weights and optimizer's state"
                  : ", with its part of the optimizer's state"
            : "");
}

/* assumed: no option gave the microbatches. */
static void print_foot(const struct pp_split_plan *plan, bool assumed, FILE *f)
{
    char size[32];
    int n = plan->graph.n_rows, fullest = pp_split_plan_fullest(plan);
    double mean = total_cost(plan) / n, largest = largest_cost(plan->ranks, n);
    pp_format_size(pp_size_of(pp_split_plan_need(plan, fullest)), size);
    tool_paragraph(f,
                   "The largest rank has %.1f %% of the cost, %.1f %% above "
                   "the mean.",
                   100 * largest / (mean * n), 100 * (largest / mean - 1));
    tool_paragraph(f,
                   "The fullest rank, %d, holds %s in %s, with %" PRId64
                   " microbatches of %" PRId64 " tokens in a step.",
                   fullest, size, plan->run.request->precision->name,
                   plan->run.n_microbatches,
                   plan->run.request->microbatch.tokens);
    if (assumed)
        tool_paragraph(
            f, "Without -m a step is assumed to have %" PRId64 " microbatches.",
            plan->run.n_microbatches);
    print_mesh(plan, f);
}

/* Writes a step: "1.25 s", "3.2e+12 flop". */
static void format_step(const struct pp_split_plan *plan, double step,
                        char buf[48])
{
    snprintf(buf, 48, plan->run.request->profile ? "%.4g s" : "%.4g flop",
             step);
}

/* Writes how much less a better split could take. */
static void format_bound(const struct pp_split_plan *plan, char buf[48])
{
    const struct pp_split_found *x = &plan->run.found;
    buf[0] = '\0';
    if (plan->run.shortest && x->proved)
        snprintf(buf, 48,
                 plan->run.request->encoder_ranks ? " No such split takes less."
                                                  : " No split takes less.");
    else if (plan->run.shortest && x->bound > 0) /* rounded up: it is true */
        snprintf(buf, 48, " No split takes %.2f %% less.",
                 ceil(1e4 * (1 - x->bound / x->makespan)) / 100);
}

/* Prints how long a step takes, and how long ranks wait. */
static void print_step(const struct pp_split_plan *plan, FILE *f)
{
    const struct pp_split_found *x = &plan->run.found;
    int n = plan->graph.n_rows, busiest = 0;
    double busy = 0;
    char step[48], bound[48];
    if (!plan->run.simulated || x->makespan <= 0)
        return;
    for (int r = 0; r < n; r++) {
        busy += plan->ranks[r].busy;
        busiest = plan->ranks[r].busy > plan->ranks[busiest].busy ? r : busiest;
    }
    format_step(plan, x->makespan, step);
    format_bound(plan, bound);
    tool_paragraph(f,
                   "A step of %" PRId64 " microbatches under %s takes %s; "
                   "ranks are idle %.1f %% of it, rank %d least, %.1f %%.%s",
                   plan->run.n_microbatches, plan->run.name, step,
                   100 * (1 - busy / (n * x->makespan)), busiest,
                   100 * (1 - plan->ranks[busiest].busy / x->makespan), bound);
}

/* Prints the rates of a step that has seconds. */
static int print_speed(const struct pp_split_plan *plan, FILE *f,
                       struct pp_err *err)
{
    char tokens[32], mfu[48] = "";
    double step;
    if (!plan->run.request->profile || !plan->run.simulated)
        return 0;
    if (pp_split_step_seconds(plan, &step, err))
        return -1;
    const struct planner_speed s =
        planner_speed_of(plan->run.request, step, plan->run.n_microbatches);
    format_count((uint64_t)(s.tokens + 0.5), tokens);
    if (s.mfu > 0)
        snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * s.mfu);
    tool_paragraph(f,
                   "With reductions and the update it takes %.4g s: %s "
                   "tokens/s%s.",
                   step, tokens, mfu);
    return 0;
}

enum { ITEM = PP_RECOMPUTE_TEXT, MOST_RUNS = 8 };

typedef void (*format_item)(const struct pp_split_plan *plan, int i,
                            char buf[ITEM]);

/* Returns the first item after i that has another text. */
static int end_of_run(const struct pp_split_plan *plan, int i, int n,
                      format_item format)
{
    char text[ITEM], next[ITEM];
    format(plan, i, text);
    while (++i < n) {
        format(plan, i, next);
        if (strcmp(next, text))
            break;
    }
    return i;
}

static int count_runs(const struct pp_split_plan *plan, int n,
                      format_item format)
{
    int runs = 0;
    for (int i = 0; i < n; i = end_of_run(plan, i, n, format))
        runs++;
    return runs;
}

/* Prints a sentence that is a list of n items with a noun, equal neighbours as
 * one: "Recomputation: stages 0-2: full, stage 3: none." */
static void print_list(const struct pp_split_plan *plan, const char *begin,
                       const char *noun, int n, format_item format, FILE *f)
{
    char *list = NULL, text[ITEM];
    size_t size;
    FILE *m = open_memstream(&list, &size);
    if (!m)
        pp_out_of_memory();
    fputs(begin, m);
    for (int i = 0, end; i < n; i = end) {
        end = end_of_run(plan, i, n, format);
        format(plan, i, text);
        fprintf(m, "%s %s%s %d", i ? "," : "", noun, end > i + 1 ? "s" : "", i);
        if (end > i + 1)
            fprintf(m, "-%d", end - 1);
        fprintf(m, ": %s", text);
    }
    if (fclose(m))
        pp_out_of_memory();
    tool_paragraph(f, "%s.", list);
    free(list);
}

static void format_share(const struct pp_split_plan *plan, int rank,
                         char buf[ITEM])
{
    snprintf(buf, ITEM, "%.0f %%",
             100 * pp_split_plan_need(plan, rank) /
                 (double)plan->run.request->memory_bytes);
}

static void format_mode(const struct pp_split_plan *plan, int stage,
                        char buf[ITEM])
{
    char text[PP_RECOMPUTE_TEXT];
    snprintf(buf, ITEM, "%s",
             pp_recompute_text(pp_split_stage_mode(plan, stage), text));
}

/* Prints the shares of the memory limit: of all ranks, or of the fullest and
 * the emptiest if a list would be long. */
static void print_shares(const struct pp_split_plan *plan, FILE *f)
{
    int n = plan->graph.n_rows, least = 0;
    int most = pp_split_plan_fullest(plan);
    char low[ITEM], high[ITEM];
    if (count_runs(plan, n, format_share) <= MOST_RUNS) {
        print_list(plan, "Share of the memory limit:", "rank", n, format_share,
                   f);
        return;
    }
    for (int r = 0; r < n; r++)
        if (pp_split_plan_need(plan, r) < pp_split_plan_need(plan, least))
            least = r;
    format_share(plan, least, low);
    format_share(plan, most, high);
    tool_paragraph(f,
                   "Ranks use from %s (rank %d) to %s (rank %d) of the memory "
                   "limit.",
                   low, least, high, most);
}

/* Prints the figures of the table. Memory has the keys of ppsched and pprun. */
static int print_json(const struct pp_split_plan *plan, FILE *f,
                      struct pp_err *err)
{
    struct pp_json_writer w = {.f = f, .indent = 2};
    const struct pp_split_run *run = &plan->run;
    const struct pp_graph *g = &plan->graph;
    double step = 0;
    if (plan->run.request->profile && run->simulated &&
        pp_split_step_seconds(plan, &step, err))
        return -1;
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    pp_json_string(&w, "schedule", run->name);
    pp_json_int(&w, "stages", g->n_stages);
    pp_json_int(&w, "microbatches", run->n_microbatches);
    if (step > 0) {
        const struct planner_speed s =
            planner_speed_of(plan->run.request, step, run->n_microbatches);
        pp_json_real(&w, "step_seconds", step);
        pp_json_real(&w, "tokens_per_second", s.tokens);
        if (s.mfu > 0)
            pp_json_real(&w, "mfu", s.mfu);
    }
    pp_json_array(&w, "memory", PP_JSON_HUGGED);
    for (int r = 0; r < g->n_rows; r++)
        tool_memory_json(&w, &plan->ranks[r].bytes);
    pp_json_end(&w);
    pp_json_end(&w);
    putc('\n', f);
    return 0;
}

int split_print_table(const struct split_job *j, FILE *f, struct pp_err *err)
{
    const struct pp_split_plan *plan = &j->p.plan;
    const struct pp_graph *g = &plan->graph;
    if (j->p.json)
        return print_json(plan, f, err);
    bool one = g->n_stages == g->n_rows;
    print_head(j, f);
    print_stages(plan, one && g->n_rows > 1 ? largest_mark : "", f);
    if (!one)
        print_ranks(plan, f);
    print_memory(plan, f);
    print_foot(plan, j->o.n_microbatches == 0, f);
    print_step(plan, f);
    if (print_speed(plan, f, err))
        return -1;
    if (j->stage_modes || j->o.recompute_auto)
        print_list(plan, "Recomputation:", "stage", g->n_stages, format_mode,
                   f);
    if (j->p.memory_bytes > 0)
        print_shares(plan, f);
    if (j->rule.method == SPLIT_JOINT) {
        putc('\n', f);
        split_print_kinds(j, f);
    }
    if (ferror(f))
        return pp_fail_errno(err, "cannot write the table");
    return 0;
}
