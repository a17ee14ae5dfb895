/* SPDX-License-Identifier: MIT */
/* The goal of the search, the ways to run backward that it tries, and their
 * time. */
#include "schedule/search/search.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "schedule/bound/bound.h"
#include "schedule/search/state.h"

/* A search works for so many seconds at least: list schedules are much better
 * than the kinds if memory is short. */
#define LEAST_SECONDS 0.02

/* Share of the time for a first search with each way to run backward. */
#define BRIEF 0.1

static int set_goal(struct pp_search_state *s, struct pp_err *err)
{
    const struct pp_search_options *o = s->options;
    struct pp_bound bound;
    if (pp_bound(s->problem.graph, s->problem.n_microbatches, o->split,
                 o->costs, o->room, &bound, err))
        return -1;
    s->eps = 1e-9 * bound.makespan;
    s->goal = bound.makespan;
    if (o->span)
        pp_search_aim_at_span(s);
    s->least = s->goal;
    return 0;
}

static int refuse(const struct pp_search_state *s, int row, struct pp_err *err)
{
    char least[32], limit[32];
    pp_format_real(pp_row_order_least(&s->problem, row), least);
    pp_format_real(s->problem.limit[row], limit);
    return pp_fail(err, PP_EXIT_NO,
                   "rank %d needs %s for a single microbatch, more than its "
                   "limit of '%s'",
                   row, least, limit);
}

static int check_room(const struct pp_search_state *s, struct pp_err *err)
{
    const struct pp_search_problem *j = &s->problem;
    for (int r = 0; j->limit && r < j->graph->n_rows; r++)
        if (pp_row_order_least(j, r) > j->limit[r] + j->slack)
            return refuse(s, r, err);
    return 0;
}

static int search(struct pp_search_state *s, struct pp_err *err)
{
    pp_paths_init(&s->eval, &s->problem.ops);
    s->best = pp_calloc((size_t)s->problem.ops.n, sizeof *s->best);
    s->order = pp_calloc((size_t)s->problem.ops.n, sizeof *s->order);
    s->tight = pp_calloc((size_t)s->problem.graph->n_rows, sizeof *s->tight);
    s->worst = s->second = INFINITY;
    return check_room(s, err) || set_goal(s, err) ||
                   pp_search_try_all(s, s->options->seconds, err)
               ? -1
               : 0;
}

static void destroy(struct pp_search_state *s)
{
    if (!s)
        return;
    free(s->best);
    free(s->order);
    free(s->tight);
    pp_paths_finish(&s->eval);
    pp_search_problem_finish(&s->problem);
    free(s);
}

/* Reports if a whole backward takes less time or memory than I and W on some
 * stage. */
static bool whole_saves(const struct pp_schedule *s,
                        const struct pp_search_options *o)
{
    for (int stage = 0; stage < s->graph->n_stages; stage++) {
        const struct pp_load *l = o->room ? &o->room->load[stage] : NULL;
        if (pp_problem_whole_saves(o->costs, stage) ||
            (l && l->in_b < l->i_to_w))
            return true;
    }
    return false;
}

/* Searches orders with this backward, and keeps the result if it is better. The
 * state stays where it is: its evaluation points to its problem. */
static int try_backward(struct pp_search_state **best,
                        const struct pp_schedule *schedule,
                        enum pp_backward backward,
                        const struct pp_search_options *o, struct pp_err *err)
{
    struct pp_search_state *s = pp_calloc(1, sizeof *s), *worse = s;
    s->options = o;
    int rc = pp_search_problem_init(&s->problem, schedule, backward, o->costs,
                                    o->room, o->copy, err) ||
                     search(s, err)
                 ? -1
                 : 0;
    if (!rc && (!*best || s->worst < (*best)->worst - (*best)->eps)) {
        worse = *best;
        *best = s;
    }
    destroy(worse);
    return rc;
}

/* Reports if there is an order that no other can beat. */
static bool is_optimal(const struct pp_search_state *s)
{
    return s && s->worst <= s->least + s->eps;
}

/* Searches briefly with each backward that fits in memory, then goes on with
 * the best of them. */
static int try_backwards(struct pp_search_state **best,
                         const struct pp_schedule *schedule,
                         struct pp_search_options *part, struct pp_err *err)
{
    static const enum pp_backward all[] = {PP_BACKWARD_LATE, PP_BACKWARD_MIXED,
                                           PP_BACKWARD_HALVES,
                                           PP_BACKWARD_WHOLE};
    const int n = sizeof all / sizeof *all;
    const double seconds = part->seconds;
    struct pp_err refusal = {0};
    part->seconds = seconds * BRIEF;
    for (int i = 0; i < n && !is_optimal(*best); i++) {
        refusal = (struct pp_err){0};
        if (try_backward(best, schedule, all[i], part, &refusal) &&
            refusal.code != PP_EXIT_NO)
            break;
    }
    if (!*best || (refusal.code && refusal.code != PP_EXIT_NO)) {
        *err = refusal;
        return -1;
    }
    if (is_optimal(*best))
        return 0;
    part->seconds = seconds * (1 - n * BRIEF);
    return pp_search_try_all(*best, part->seconds, err);
}

int pp_search(struct pp_schedule *schedule, const struct pp_search_options *o,
              struct pp_err *err)
{
    struct pp_search_options part = *o;
    struct pp_search_state *best = NULL;
    part.seconds = fmax(o->seconds, LEAST_SECONDS);
    int rc =
        o->split && whole_saves(schedule, o)
            ? try_backwards(&best, schedule, &part, err)
            : try_backward(&best, schedule,
                           o->split ? PP_BACKWARD_HALVES : PP_BACKWARD_WHOLE,
                           &part, err);
    if (!rc && !o->span)
        rc = pp_search_break_ties(
            best, pp_search_at_goal(best) ? part.seconds : 0, err);
    if (!rc)
        pp_row_order_emit(&best->problem, best->best, schedule);
    destroy(best);
    return rc;
}
