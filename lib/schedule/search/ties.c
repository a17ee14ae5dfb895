/* SPDX-License-Identifier: MIT */
/* The choice among orders with the same makespan: little memory, then a small
 * span. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/search/state.h"

/* Shares of the time, after the bound is reached. */
#define LIGHTER 0.05
#define SHORTER 0.02

/* The most limits that are tried for less memory. */
enum { MAX_LIMITS = 4 };

/* Limits every rank to `most`, or to its own limit if that is less. */
static void limit_ranks(struct pp_search_state *s, double most)
{
    const struct pp_memory_limit *room = s->options->room;
    for (int r = 0; r < s->problem.graph->n_rows; r++)
        s->tight[r] = room ? fmin(room->limit[r], most) : most;
    s->problem.limit = s->tight;
    s->problem.slack = fmax(s->problem.slack, 1e-9 * most);
}

/* Searches below a limit for an order that takes no longer than the best. The
 * best stays if there is none. */
static int try_limit(struct pp_search_state *s, double most, double seconds,
                     struct pp_err *err)
{
    const double worst = s->worst, second = s->second, goal = s->goal;
    size_t bytes = (size_t)s->problem.ops.n * sizeof *s->best;
    int32_t *best = pp_realloc(NULL, bytes, 1);
    memcpy(best, s->best, bytes);
    limit_ranks(s, most);
    s->worst = s->second = INFINITY;
    s->goal = worst;
    int rc = pp_search_try_all(s, seconds, err);
    if (s->worst > worst + s->eps) {
        memcpy(s->best, best, bytes);
        s->worst = worst;
        s->second = second;
    }
    s->goal = goal;
    free(best);
    return rc;
}

/* Takes a named kind that takes no longer than the best and needs the least
 * memory. Sets *peak to the memory of the best. */
static int take_lightest(struct pp_search_state *s, double *peak,
                         struct pp_err *err)
{
    const struct pp_search_problem *j = &s->problem;
    *peak = pp_row_order_peak(j, s->best);
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        int rc = pp_row_order_of_kind(j, *k, s->order, err);
        if (rc < 0)
            return -1;
        if (rc || !pp_row_order_fits(j, s->order) ||
            pp_row_order_peak(j, s->order) >= *peak ||
            !pp_paths_heads(&s->eval, s->order) ||
            s->eval.worst > s->worst + s->eps)
            continue;
        *peak = pp_row_order_peak(j, s->order);
        s->second = pp_row_order_span(&s->eval, s->order);
        memcpy(s->best, s->order, (size_t)j->ops.n * sizeof *s->best);
    }
    return 0;
}

/* Lowers the most memory of any rank while the makespan stays, by bisection. */
static int lighten(struct pp_search_state *s, double seconds,
                   struct pp_err *err)
{
    const struct pp_search_problem *j = &s->problem;
    double unit = INFINITY, low = 0, high;
    if (take_lightest(s, &high, err))
        return -1;
    for (int st = 0; st < j->graph->n_stages; st++)
        if (j->taken[st] > 0)
            unit = fmin(unit, j->taken[st]);
    for (int r = 0; r < j->graph->n_rows; r++)
        low = fmax(low, pp_row_order_least(j, r) - unit / 2);
    for (int i = 0; i < MAX_LIMITS && high - low >= unit; i++) {
        double most = low + (high - low) / 2;
        if (try_limit(s, most, seconds / MAX_LIMITS, err))
            return -1;
        double peak = pp_row_order_peak(j, s->best);
        if (peak < high)
            high = peak;
        else
            low = most;
    }
    limit_ranks(s, high);
    return 0;
}

/* Repeats the search for a smaller span, among orders with no larger makespan.
 */
static int shorten(struct pp_search_state *s, double seconds,
                   struct pp_err *err)
{
    s->tied = true;
    pp_search_aim_at_span(s);
    return pp_search_at_goal(s) ? 0 : pp_search_try_all(s, seconds, err);
}

int pp_search_break_ties(struct pp_search_state *s, double seconds,
                         struct pp_err *err)
{
    return lighten(s, seconds * LIGHTER, err) ||
                   shorten(s, seconds * SHORTER, err)
               ? -1
               : 0;
}
