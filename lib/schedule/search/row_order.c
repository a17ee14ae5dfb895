/* SPDX-License-Identifier: MIT */
/* Orders of a search problem: the serial one, the orders of the named kinds,
 * and their memory. */
#include "schedule/search/problem.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/play.h"

/* An order that is being written. */
struct pens {
    const struct pp_search_problem *problem;
    int32_t *order;
    int32_t *at;    /* per rank: next place in order */
    int32_t *count; /* per group: ops written */
};

static void put_op(struct pens *p, int kind, int stage)
{
    const struct pp_search_problem *j = p->problem;
    int group = kind * j->graph->n_stages + stage;
    int32_t op = pp_problem_op(j, kind, stage, p->count[group]++);
    p->order[p->at[j->ops.row[op]]++] = op;
}

void pp_row_order_serial(const struct pp_search_problem *j, int32_t *order)
{
    const struct pp_graph *g = j->graph;
    int n = g->n_stages / g->n_copies;
    struct pens p = {.problem = j, .order = order};
    p.at = pp_calloc((size_t)g->n_rows, sizeof *p.at);
    p.count = pp_calloc((size_t)(j->n_kinds * g->n_stages), sizeof *p.count);
    for (int r = 0; r < g->n_rows; r++)
        p.at[r] = j->ops.first_order[r];
    for (int m = 0; m < j->n_microbatches; m++) {
        int first = j->copy ? j->copy[m] * n : 0;
        for (int s = first; s < first + n; s++)
            put_op(&p, PP_PROBLEM_F, s);
        for (int s = first + n - 1; s >= first; s--)
            for (int kind = PP_PROBLEM_I; kind < j->n_kinds; kind++)
                put_op(&p, kind, s);
    }
    free(p.at);
    free(p.count);
}

/* Returns the memory that the k-th microbatch of a copy needs on a rank. */
static double least_of(const struct pp_search_problem *j, int row, int copy,
                       int k)
{
    const struct pp_graph *g = j->graph;
    int n = g->n_stages / g->n_copies, first = copy * n;
    double held = 0, least = 0;
    for (int s = first; s < first + n; s++)
        if (g->stages[s].row == row)
            held += j->taken[s];
    least = held;
    for (int s = first + n - 1; s >= first; s--)
        for (int kind = PP_PROBLEM_I;
             g->stages[s].row == row && kind < j->n_kinds; kind++) {
            int32_t load = j->load[pp_problem_op(j, kind, s, k)];
            held += j->taken[load];
            least = held > least ? held : least;
            held -= j->freed[load];
        }
    return least;
}

/* The last microbatches may have I and W, where the first have B. */
double pp_row_order_least(const struct pp_search_problem *j, int row)
{
    const struct pp_graph *g = j->graph;
    double least = 0;
    for (int c = 0; c < g->n_copies; c++) {
        int n = pp_problem_passing(j, c * (g->n_stages / g->n_copies));
        least = fmax(least, least_of(j, row, c, 0));
        least = fmax(least, least_of(j, row, c, n - 1));
    }
    return least;
}

static double row_peak(const struct pp_search_problem *j, const int32_t *order,
                       int row)
{
    double held = 0, peak = 0;
    for (int32_t k = j->ops.first_order[row]; k < j->ops.first_order[row + 1];
         k++) {
        int32_t load = j->load[order[k]];
        held += j->taken[load];
        peak = held > peak ? held : peak;
        held -= j->freed[load];
    }
    return peak;
}

double pp_row_order_peak(const struct pp_search_problem *j,
                         const int32_t *order)
{
    double peak = 0;
    for (int r = 0; r < j->graph->n_rows; r++) {
        double held = row_peak(j, order, r);
        peak = held > peak ? held : peak;
    }
    return peak;
}

bool pp_row_order_fits(const struct pp_search_problem *j, const int32_t *order)
{
    for (int r = 0; j->limit && r < j->graph->n_rows; r++)
        if (row_peak(j, order, r) > j->limit[r] + j->slack)
            return false;
    return true;
}

/* Copies a row. The k-th op of a kind on a stage becomes its k-th microbatch.
 * Returns false if the problem has no such ops. */
static bool take_row(struct pens *p, const struct pp_row *list)
{
    bool split = p->problem->n_kinds == 3;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        bool whole = a.op == PP_B;
        if (!pp_is_compute(a.op) || a.slice)
            return false;
        if (!split && a.op != PP_F && !whole)
            return false;
        if (a.op == PP_F &&
            p->count[a.stage] == pp_problem_passing(p->problem, a.stage))
            return false;
        if (a.op == PP_F)
            put_op(p, PP_PROBLEM_F, a.stage);
        if (a.op == PP_I || whole)
            put_op(p, PP_PROBLEM_I, a.stage);
        if (a.op == PP_W || (whole && split))
            put_op(p, PP_PROBLEM_W, a.stage);
    }
    return true;
}

static bool take_rows(struct pens *p, const struct pp_schedule *s)
{
    const struct pp_search_problem *j = p->problem;
    for (int r = 0; r < j->graph->n_rows; r++) {
        size_t n = 0, most = (size_t)(j->ops.first_order[r + 1] -
                                      j->ops.first_order[r]);
        for (size_t i = 0; i < s->rows[r].n; i++)
            n += 1 + (j->n_kinds == 3 && s->rows[r].actions[i].op == PP_B);
        p->at[r] = j->ops.first_order[r];
        if (n != most || !take_row(p, &s->rows[r]))
            return false;
    }
    return true;
}

/* The search has the backward of every stage, so the rows are not trimmed. */
int pp_row_order_of_kind(const struct pp_search_problem *j,
                         const struct pp_kind *kind, int32_t *order,
                         struct pp_err *err)
{
    struct pp_schedule s = {0};
    struct pp_err refusal = {0};
    struct pp_kind_options o = {.n_microbatches = j->n_microbatches};
    struct pens p = {.problem = j, .order = order};
    int rc = -1;
    p.at = pp_calloc((size_t)j->graph->n_rows, sizeof *p.at);
    p.count =
        pp_calloc((size_t)(j->n_kinds * j->graph->n_stages), sizeof *p.count);
    pp_schedule_init(&s, j->graph, kind->name, j->n_microbatches);
    if (pp_kind_admits(kind->name, j->graph, kind->copies, &refusal) ||
        kind->emit(&s, &o, &refusal))
        rc = refusal.code == PP_EXIT_SYSTEM
                 ? pp_fail(err, refusal.code, "%s", refusal.text)
                 : PP_AGAIN;
    else
        rc = take_rows(&p, &s) ? 0 : PP_AGAIN;
    pp_schedule_finish(&s);
    free(p.at);
    free(p.count);
    return rc;
}

void pp_row_order_emit(const struct pp_search_problem *j, const int32_t *order,
                       struct pp_schedule *s)
{
    for (int r = 0; r < j->graph->n_rows; r++)
        for (int32_t k = j->ops.first_order[r]; k < j->ops.first_order[r + 1];
             k++) {
            struct pp_action a = pp_problem_action(j, order[k]);
            if (a.op == PP_W && pp_problem_is_whole(j, order[k]))
                continue;
            pp_schedule_add(s, r, a);
        }
    pp_schedule_trim(s);
}

double pp_row_order_makespan(const struct pp_paths *p, const int32_t *order)
{
    const struct pp_ops *o = p->ops;
    double makespan = 0;
    for (int r = 0; r < o->n_rows; r++) {
        int32_t last = o->first_order[r + 1] - 1;
        if (last >= o->first_order[r])
            makespan =
                fmax(makespan, p->start[order[last]] + o->time[order[last]]);
    }
    return makespan;
}

double pp_row_order_span(const struct pp_paths *p, const int32_t *order)
{
    const struct pp_ops *o = p->ops;
    double span = 0;
    for (int r = 0; r < o->n_rows; r++) {
        int32_t first = o->first_order[r], last = o->first_order[r + 1] - 1;
        if (first > last)
            continue;
        double t = p->start[order[last]] + o->time[order[last]] -
                   p->start[order[first]];
        span = t > span ? t : span;
    }
    return span;
}
