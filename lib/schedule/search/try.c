/* SPDX-License-Identifier: MIT */
/* try - the objectives that a search aims at, and the methods that it tries for
 * them, their order and their time. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "schedule/search/methods.h"
#include "schedule/search/state.h"

/* Visits of an op in a second on a machine of 2020. */
static const double visits_per_second = 1.2e8;

/* Policies are far behind if their best is worse by more than this share. */
#define BEHIND 0.02

/* Share of the time for moves near the best order, if they are alone. */
#define NEAR 0.2

/* Reports if order is better than the best so far. */
static bool is_better(const struct pp_search_state *s, const struct pp_paths *e,
                      const int32_t *order, double span)
{
    if (s->tied)
        return span < s->second - s->eps &&
               pp_row_order_makespan(e, order) <= s->worst + s->eps;
    return e->worst < s->worst - s->eps ||
           (e->worst <= s->worst + s->eps && span < s->second - s->eps);
}

static void found(void *ctx, const struct pp_paths *e, const int32_t *order)
{
    struct pp_search_state *s = ctx;
    double span = pp_row_order_span(e, order);
    if (!is_better(s, e, order, span))
        return;
    if (!s->tied)
        s->worst = e->worst;
    s->second = span;
    memcpy(s->best, order, (size_t)s->problem.ops.n * sizeof *s->best);
    if (s->options->progress && !s->tied)
        s->options->progress(s->options->ctx, s->worst, s->goal);
}

bool pp_search_at_goal(const struct pp_search_state *s)
{
    return (s->tied ? s->second : s->worst) <= s->goal + s->eps;
}

/* Takes order if it fits, runs and is better. */
static void consider(struct pp_search_state *s, const int32_t *order)
{
    if (pp_row_order_fits(&s->problem, order) &&
        pp_paths_heads(&s->eval, order))
        found(s, &s->eval, order);
}

/* Makes the objective the span: a rank's end counts from the first time that
 * anything can reach it. */
static void count_from_arrival(struct pp_search_state *s)
{
    const struct pp_search_problem *j = &s->problem;
    const struct pp_graph *g = j->graph;
    for (int r = 0; r < g->n_rows; r++)
        j->ops.late[r] = -INFINITY;
    pp_row_order_serial(j, s->order);
    /* In the serial order nothing delays microbatch 0 on its way down. */
    if (!pp_paths_heads(&s->eval, s->order))
        return;
    for (int st = 0; st < g->n_stages; st++) {
        double start = s->eval.start[pp_problem_op(j, PP_PROBLEM_F, st, 0)];
        if (-start > j->ops.late[g->stages[st].row])
            j->ops.late[g->stages[st].row] = -start;
    }
}

static double most_work(const struct pp_search_problem *j)
{
    double most = 0;
    for (int r = 0; r < j->graph->n_rows; r++) {
        double work = 0;
        for (int32_t op = 0; op < j->ops.n; op++)
            if (j->ops.row[op] == r)
                work += j->ops.time[op];
        most = fmax(most, work);
    }
    return most;
}

void pp_search_aim_at_span(struct pp_search_state *s)
{
    count_from_arrival(s);
    s->goal = most_work(&s->problem);
}

static int try_named(struct pp_search_state *s, struct pp_err *err)
{
    const struct pp_search_problem *j = &s->problem;
    pp_row_order_serial(j, s->order);
    consider(s, s->order);
    for (const struct pp_kind *const *k = pp_kinds; *k && !pp_search_at_goal(s);
         k++) {
        int rc = pp_row_order_of_kind(j, *k, s->order, err);
        if (rc == -1)
            return -1;
        if (rc == 0)
            consider(s, s->order);
    }
    return 0;
}

/* Anneals from the best so far, from one heat to another. */
static int better(struct pp_search_state *s, uint64_t key, double steps,
                  double first, double last, struct pp_err *err)
{
    struct pp_local_options o = {
        .key = key, .steps = steps, .goal = s->goal, .heat = {first, last}};
    double worst, done;
    memcpy(s->order, s->best, (size_t)s->problem.ops.n * sizeof *s->order);
    if (pp_local_search(&s->problem, &o, s->order, &worst, &done, err))
        return -1;
    consider(s, s->order);
    return 0;
}

/* Tries moves alone: first near the best order, then long enough to get away
 * from it. */
static int move_only(struct pp_search_state *s, double steps,
                     struct pp_err *err)
{
    uint64_t key = pp_rng_key(s->options->seed, "moves");
    if (better(s, pp_rng_bits(key, 0), NEAR * steps, 0.3, 0.02, err))
        return -1;
    return pp_search_at_goal(s) ? 0
                                : better(s, pp_rng_bits(key, 1),
                                         (1 - NEAR) * steps, 1.5, 0.1, err);
}

/* Tries policies and moves in turn, for the work that is left. If policies are
 * far behind, as in a V in short memory, moves get all of it. */
static int rounds(struct pp_search_state *s, struct pp_policy_search *p,
                  double steps, struct pp_err *err)
{
    static const double heats[] = {0.3, 1, 0.15, 0.5, 0.08};
    const int n = sizeof heats / sizeof *heats;
    uint64_t key = pp_rng_key(s->options->seed, "auto");
    double part = steps / (2 * n);
    for (int i = 0; i < n && !pp_search_at_goal(s); i++) {
        if (p->worst > s->worst * (1 + BEHIND))
            return move_only(s, steps - 2 * i * part, err);
        p->key = pp_rng_bits(key, (uint64_t)(2 * i));
        pp_policy_climb(p, part);
        if (!pp_search_at_goal(s) &&
            better(s, pp_rng_bits(key, (uint64_t)(2 * i + 1)), part, heats[i],
                   heats[i] / 15, err))
            return -1;
    }
    return 0;
}

static int try_policies(struct pp_search_state *s, double seconds,
                        struct pp_err *err)
{
    struct pp_policy_search p = {.problem = &s->problem,
                                 .eval = &s->eval,
                                 .goal = s->goal,
                                 .worst = INFINITY,
                                 .found = found,
                                 .ctx = s,
                                 .order = s->order};
    double steps = seconds * visits_per_second;
    p.goal += s->eps;
    p.list = pp_list_create(&s->problem);
    pp_policy_init(&p.best, &s->problem);
    pp_policy_grid(&p, steps / 2);
    int rc = rounds(s, &p, steps - p.steps, err);
    pp_policy_finish(&p.best);
    pp_list_destroy(p.list);
    return rc;
}

int pp_search_try_all(struct pp_search_state *s, double seconds,
                      struct pp_err *err)
{
    if (try_named(s, err))
        return -1;
    return pp_search_at_goal(s) || seconds <= 0 ? 0
                                                : try_policies(s, seconds, err);
}
