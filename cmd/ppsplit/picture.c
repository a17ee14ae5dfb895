/* SPDX-License-Identifier: MIT */
/* picture - --svg: the cost of each rank by stage, and its memory by
 * purpose, as stacked bars against the limit. */
#include "draw/chart.h"
#include "ppsplit.h"

/* A rank's chunks beyond these share the last colour. */
enum { COST_COLORS = PP_CHART_COLORS };

/* Fills one series for each chunk, percent of the cost of all ranks. Returns
 * their number. */
static int fill_costs(const struct pp_split_plan *plan, struct pp_arena *a,
                      const double *x, struct pp_series series[COST_COLORS])
{
    static const char *const names[COST_COLORS] = {
        "1st stage", "2nd stage", "3rd stage", "4th stage",
        "5th stage", "6th stage", "others"};
    const struct pp_graph *g = &plan->graph;
    double total = 0, *y[COST_COLORS];
    int *chunk = pp_arena_alloc(a, (size_t)g->n_rows, sizeof *chunk);
    int n = 0;
    for (int k = 0; k < COST_COLORS; k++) {
        y[k] = pp_arena_alloc(a, (size_t)g->n_rows, sizeof *y[k]);
        series[k] = (struct pp_series){.name = names[k],
                                       .mark = PP_CHART_BARS,
                                       .color = k,
                                       .x = x,
                                       .y = y[k],
                                       .n = (size_t)g->n_rows};
    }
    for (int r = 0; r < g->n_rows; r++)
        total += plan->ranks[r].cost;
    for (int s = 0; s < g->n_stages; s++) {
        int row = g->stages[s].row, k = chunk[row]++;
        k = k < COST_COLORS ? k : COST_COLORS - 1;
        y[k][row] += 100 * plan->stages[s].cost / total;
        n = k >= n ? k + 1 : n;
    }
    if (n == 1)
        series[0].name = NULL;
    return n;
}

static void fill_memory(const struct pp_split_plan *plan, struct pp_arena *a,
                        const double *x,
                        struct pp_series series[PP_N_MEMORY_PARTS])
{
    size_t n = (size_t)plan->graph.n_rows;
    for (int k = 0; k < PP_N_MEMORY_PARTS; k++) {
        double *y = pp_arena_alloc(a, n, sizeof *y);
        for (size_t r = 0; r < n; r++)
            y[r] = (double)plan->ranks[r].bytes.part[k];
        series[k] = (struct pp_series){.name = pp_memory_part_names[k],
                                       .mark = PP_CHART_BARS,
                                       .color = k,
                                       .x = x,
                                       .y = y,
                                       .n = n};
    }
}

int split_draw(struct split_job *j)
{
    struct pp_series costs[COST_COLORS], memory[PP_N_MEMORY_PARTS];
    const struct pp_split_plan *plan = &j->p.plan;
    size_t n = (size_t)plan->graph.n_rows;
    double *x = pp_arena_alloc(&j->p.arena, n, sizeof *x);
    char title[200];
    for (size_t r = 0; r < n; r++)
        x[r] = (double)r;
    int n_costs = fill_costs(plan, &j->p.arena, x, costs);
    fill_memory(plan, &j->p.arena, x, memory);
    const struct pp_chart charts[] = {{.title = "Cost",
                                       .x_label = "rank",
                                       .whole = true,
                                       .y_label = "percent of all ranks",
                                       .series = costs,
                                       .n_series = n_costs},
                                      {.title = "Memory",
                                       .x_label = "rank",
                                       .whole = true,
                                       .series = memory,
                                       .n_series = PP_N_MEMORY_PARTS,
                                       .bytes = true,
                                       .limit = (double)j->p.memory_bytes,
                                       .limit_label = "--memory"}};
    snprintf(title, sizeof title, "%.80s: %d stages on %d ranks, %s",
             pp_model_architecture(&j->p.model), plan->graph.n_stages,
             plan->graph.n_rows, plan->run.name);
    FILE *f = tool_open(&j->p.t, j->o.svg);
    if (!f)
        return -1;
    pp_charts(f, title, charts, 2, 1);
    return tool_close(&j->p.t, f);
}
