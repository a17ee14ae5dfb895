/* SPDX-License-Identifier: MIT */
/* ppsplit_table - -t: the plan as a table for people. */
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "model/cost.h"
#include "model/model.h"
#include "model/vision.h"
#include "ppsplit.h"

enum { UNITS_TEXT = 96, BAR = 20 };

/* Writes units of a table of units by name: "first", "first ... last". */
static void format_names(const struct split_job *j, size_t first, size_t end,
                         char buf[UNITS_TEXT])
{
    const struct pp_unit_row *rows = j->model.table->rows;
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
 * Names norms only if there is nothing else. */
static void format_encoder(const struct split_job *j, size_t first, size_t end,
                           char buf[UNITS_TEXT])
{
    size_t from = SIZE_MAX, to = 0;
    bool patches = false, projector = false, norm = false;
    char run[64] = "";
    for (size_t i = first; i < end; i++) {
        struct pp_unit_id u = pp_model_unit(&j->model, i);
        patches |= u.kind == PP_UNIT_PATCHES;
        projector |= u.kind == PP_UNIT_PROJECTOR;
        norm |= u.kind == PP_UNIT_PRE_NORM || u.kind == PP_UNIT_POST_NORM;
        if (u.kind == PP_UNIT_VISION_LAYER) {
            from = u.layer < from ? u.layer : from;
            to = u.layer + 1;
        }
    }
    if (to == from + 1)
        snprintf(run, sizeof run, "block %zu", from);
    else if (to > 0)
        snprintf(run, sizeof run, "blocks %zu-%zu", from, to - 1);
    append(buf, patches ? "patches" : "");
    append(buf, run);
    append(buf, projector ? "projector" : "");
    if (norm && !buf[0])
        append(buf, "encoder's norm");
}

/* Writes the units of a stage: "embedding, layers 0-7", "norm, head",
 * "(none)". */
static void format_units(const struct split_job *j, int stage,
                         char buf[UNITS_TEXT])
{
    size_t first = pp_split_first(&j->plan, stage),
           end = pp_split_end(&j->plan, stage);
    size_t layers = j->model.n_layers;
    size_t vision = pp_vision_n_units(&j->model);
    buf[0] = '\0';
    if (first < vision)
        format_encoder(j, first, end < vision ? end : vision, buf);
    if (first < vision && end <= vision)
        return;
    first = first > vision ? first - vision : 0;
    end = end > vision ? end - vision : 0;
    size_t from = first > 0 ? first - 1 : 0;
    size_t to = end > layers + 1 ? layers : end > 0 ? end - 1 : 0;
    size_t head = j->n_units - vision - 1;
    char run[64] = "";
    if (j->model.table) {
        format_names(j, first, end, buf);
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

static double total_cost(const struct split_job *j)
{
    double total = 0;
    for (int s = 0; s < j->plan.graph.n_stages; s++)
        total += j->plan.stages[s].cost;
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
    char params[32];
    format_count(pp_model_n_params(&j->model), params);
    fprintf(f, "%s: %s, %zu layers, %s parameters%s\n", j->source,
            pp_model_architecture(&j->model), j->model.n_layers, params,
            j->model.tied ? ", tied head" : "");
    fprintf(
        f, "%d stage%s on %d rank%s%s, %s; sequences of %" PRId64 " tokens\n\n",
        j->plan.graph.n_stages, j->plan.graph.n_stages == 1 ? "" : "s",
        j->plan.graph.n_rows, j->plan.graph.n_rows == 1 ? "" : "s",
        j->plan.graph.n_copies > 1          ? " both ways"
        : j->n_chunks == 1                  ? ""
        : j->placement == PP_PLACEMENT_LOOP ? " in a loop"
                                            : " in a V",
        split_method_names[j->method], j->seq_len);
}

/* Prints the columns that stages and ranks share, to the end of the line. */
static void print_sum(const struct pp_split_sum *sum, double total,
                      double largest, const char *mark, FILE *f)
{
    char params[32], state[32], activations[32];
    char bar[BAR + 1] = "";
    double share = total > 0 ? 100 * sum->cost / total : 0;
    int n = largest > 0 ? (int)(BAR * sum->cost / largest + 0.5) : 0;
    memset(bar, '#', (size_t)n);
    format_count(sum->params, params);
    pp_format_size(pp_size_of(sum->state_bytes), state);
    pp_format_size(pp_size_of(sum->activations_bytes), activations);
    fprintf(f, "  %8s  %5.1f %%  %-*s  %12s  %12s%s\n", params, share, BAR, bar,
            state, activations, mark);
}

static void print_titles(const char *left, int width, FILE *f)
{
    fprintf(f, "%-*s  %8s  %7s  %-*s  %12s  %12s\n", width, left, "params",
            "cost", BAR, "", "state", "activations");
}

static void print_stages(const struct split_job *j, const char *mark, FILE *f)
{
    const struct pp_graph *g = &j->plan.graph;
    char units[UNITS_TEXT], left[UNITS_TEXT + 32];
    double total = total_cost(j),
           largest = largest_cost(j->plan.stages, g->n_stages);
    int width = (int)strlen("units");
    for (int s = 0; s < g->n_stages; s++) {
        format_units(j, s, units);
        int n = (int)strlen(units);
        width = n > width ? n : width;
    }
    print_titles("stage  rank  units", 13 + width, f);
    for (int s = 0; s < g->n_stages; s++) {
        format_units(j, s, units);
        snprintf(left, sizeof left, "%5d  %4d  %-*s", s, g->stages[s].row,
                 width, units);
        fputs(left, f);
        print_sum(&j->plan.stages[s], total, largest,
                  j->plan.stages[s].cost == largest ? mark : "", f);
    }
}

/* Writes the stages of a rank, "0, 7", and "..." if there are many. */
static void format_stages(const struct split_job *j, int rank, char *buf,
                          size_t bytes)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int s = 0; s < j->plan.graph.n_stages; s++) {
        if (j->plan.graph.stages[s].row != rank)
            continue;
        if (n + 16 > bytes) {
            snprintf(buf + n, bytes - n, ", ...");
            return;
        }
        n += (size_t)snprintf(buf + n, bytes - n, "%s%d", n ? ", " : "", s);
    }
}

static void print_ranks(const struct split_job *j, const char *mark, FILE *f)
{
    enum { STAGES_TEXT = 40 };
    const struct pp_graph *g = &j->plan.graph;
    char stages[STAGES_TEXT];
    double largest = largest_cost(j->plan.ranks, g->n_rows);
    int width = (int)strlen("stages");
    for (int r = 0; r < g->n_rows; r++) {
        format_stages(j, r, stages, sizeof stages);
        int n = (int)strlen(stages);
        width = n > width ? n : width;
    }
    fputc('\n', f);
    print_titles(" rank  stages", 7 + width, f);
    for (int r = 0; r < g->n_rows; r++) {
        format_stages(j, r, stages, sizeof stages);
        fprintf(f, "%5d  %-*s", r, width, stages);
        print_sum(&j->plan.ranks[r], total_cost(j), largest,
                  j->plan.ranks[r].cost == largest ? mark : "", f);
    }
}

/* Says that each rank is one of a group, if the mesh has more dimensions. */
static void print_mesh(const struct split_job *j, FILE *f)
{
    const struct pp_mesh *x = &j->mesh;
    if (x->dp == 1 && x->tp == 1 && x->cp == 1 && x->ep == 1)
        return;
    fprintf(
        f,
        "Each pipeline rank is a group of dp %d x tp %d x cp %d ranks%s; %lld "
        "in all.\nCosts, sizes and parameters are those of one rank%s.\n",
        x->dp, x->tp, x->cp, x->ep > 1 ? " with ep" : "",
        (long long)j->plan.graph.n_rows * x->dp * x->tp * x->cp,
        x->dp * x->cp > 1 && !x->whole_state
            ? ", with its part of the optimizer's state"
            : "");
}

static void print_foot(const struct split_job *j, FILE *f)
{
    size_t most = 0;
    double tables = 0;
    char size[32], rest[48] = "";
    int n = j->plan.graph.n_rows;
    double mean = total_cost(j) / n, largest = largest_cost(j->plan.ranks, n);
    for (int r = 0; r < n; r++) {
        const struct pp_split_sum *x = &j->plan.ranks[r];
        size_t bytes = pp_size_of(pp_split_plan_need(&j->plan, r));
        tables = x->tables_bytes > tables ? x->tables_bytes : tables;
        most = bytes > most ? bytes : most;
    }
    pp_format_size(most, size);
    if (tables > 0) {
        char text[32];
        pp_format_size(pp_size_of(tables), text);
        snprintf(rest, sizeof rest, ", and %s of tables", text);
    }
    fprintf(f,
            "\nThe largest rank has %.1f %% of the cost, %.1f %% above the "
            "mean.\n",
            100 * largest / (mean * n), 100 * (largest / mean - 1));
    fprintf(f,
            "The fullest rank holds %s: %s weights, gradients%s, "
            "and the\nactivations of microbatches of %" PRId64
            " tokens, %" PRId64 " in a step%s.\n",
            size, j->precision->name,
            j->precision->element_bytes < j->precision->accumulator_bytes
                ? ", master weights and two moments"
                : " and two moments",
            j->tokens, j->plan.run.n_microbatches, rest);
    if (j->n_microbatches == 0)
        fprintf(f,
                "Without -m a step is assumed to have %" PRId64
                " microbatches.\n",
                j->plan.run.n_microbatches);
    print_mesh(j, f);
}

/* Writes a step: "1.25 s", "3.2e+12 flop". */
static void format_step(const struct split_job *j, double step, char buf[48])
{
    snprintf(buf, 48, j->costs_file ? "%.4g s" : "%.4g flop", step);
}

/* Prints how long a step takes, and how much a better split could gain. */
static void print_step(const struct split_job *j, FILE *f)
{
    const struct pp_split_found *x = &j->plan.run.found;
    int n = j->plan.graph.n_rows, busiest = 0;
    double busy = 0;
    char step[48];
    if (!j->plan.run.simulated || x->makespan <= 0)
        return;
    for (int r = 0; r < n; r++) {
        busy += j->plan.ranks[r].busy;
        busiest =
            j->plan.ranks[r].busy > j->plan.ranks[busiest].busy ? r : busiest;
    }
    format_step(j, x->makespan, step);
    fprintf(f,
            "A step of %" PRId64 " microbatches under %s takes %s; ranks are "
            "idle %.1f %% of it,\nrank %d least, %.1f %%.",
            j->plan.run.n_microbatches, j->plan.run.name, step,
            100 * (1 - busy / (n * x->makespan)), busiest,
            100 * (1 - j->plan.ranks[busiest].busy / x->makespan));
    if (j->plan.run.shortest && x->proved)
        fprintf(f, j->encoder_ranks ? " No such split takes less."
                                    : " No split takes less.");
    else if (j->plan.run.shortest)
        fprintf(f, " No split takes %.2f %% less.",
                100 * (1 - x->bound / x->makespan));
    fputc('\n', f);
}

/* Prints how much of --memory each rank uses. */
static void print_room(const struct split_job *j, FILE *f)
{
    if (j->memory_bytes == 0)
        return;
    fprintf(f, "Ranks 0, 1, ... use this share of the memory limit:");
    for (int r = 0; r < j->plan.graph.n_rows; r++)
        fprintf(f, "%s %.0f %%", r ? "," : "",
                100 * pp_split_plan_need(&j->plan, r) /
                    (double)j->memory_bytes);
    fprintf(f, ".\n");
}

/* Prints the mode of each stage, if stages may differ. */
static void print_modes(const struct split_job *j, FILE *f)
{
    if (!j->recompute_list && !j->recompute_auto)
        return;
    fprintf(f, "Stages 0, 1, ... recompute:");
    for (int s = 0; s < j->plan.graph.n_stages; s++)
        fprintf(f, "%s %s", s ? "," : "",
                pp_recompute_names[pp_split_stage_mode(&j->plan, s)]);
    fprintf(f, ".\n");
}

int split_print_table(const struct split_job *j, FILE *f, struct pp_err *err)
{
    static const char mark[] = "  <- largest";
    bool one = j->plan.graph.n_stages == j->plan.graph.n_rows;
    print_head(j, f);
    print_stages(j, one && j->plan.graph.n_rows > 1 ? mark : "", f);
    if (!one)
        print_ranks(j, j->plan.graph.n_rows > 1 ? mark : "", f);
    print_foot(j, f);
    print_step(j, f);
    print_modes(j, f);
    print_room(j, f);
    if (j->method == SPLIT_JOINT)
        split_print_tried(j, f);
    if (ferror(f))
        return pp_fail_errno(err, "cannot write the table");
    return 0;
}
