/* SPDX-License-Identifier: MIT */
/* auto - the split for an order that is itself searched.
 *
 * It starts from the named kind whose split has the shortest step. Then it
 * alternates, while the step gets shorter: pp_search finds an order for the
 * split, and a search finds the best split for that order. The result is no
 * worse than any named kind on its own split. */
#include <math.h>
#include <string.h>

#include "schedule/search/search.h"
#include "split/plan.h"

enum { MAX_ROUNDS = 4, MAX_SMALL = 3 };

/* --- the named kinds --- */

/* Plans the request for a named kind. Returns false if there is no split that
 * fits. Finish the plan in both cases. */
static bool plan_kind(const struct pp_split_request *q, const char *kind,
                      int64_t n_microbatches, struct pp_split_request *other,
                      struct pp_split_plan *plan)
{
    struct pp_err refusal = {0};
    *other = *q;
    other->kind = kind;
    other->n_microbatches = n_microbatches;
    other->search_order = false;
    other->shortest = true;
    return !pp_split_plan(other, plan, &refusal) &&
           (q->memory_bytes == 0 || pp_split_plan_fits(plan));
}

/* Returns the step of the split for a kind; infinite if no split fits. */
static double step_of(const struct pp_split_request *q,
                      const struct pp_kind *kind)
{
    struct pp_split_request other;
    struct pp_split_plan plan;
    double makespan = INFINITY;
    if (plan_kind(q, kind->name, q->n_microbatches, &other, &plan))
        makespan = pp_split_step_time(&plan.run.step, plan.bounds);
    pp_split_plan_finish(&plan);
    return makespan;
}

/* Sets bounds to a split with room for so many microbatches at a time. If no
 * kind fits, some order may fit on it. */
static void start_small(const struct pp_split_run *run, int n_microbatches,
                        size_t *bounds)
{
    struct pp_split_request other;
    struct pp_split_plan plan;
    if (plan_kind(run->request, "gpipe", n_microbatches, &other, &plan))
        memcpy(bounds, plan.bounds, (run->n_stages + 1) * sizeof *bounds);
    pp_split_plan_finish(&plan);
}

const char *pp_split_best_kind(const struct pp_split_request *q)
{
    const char *best = NULL;
    double shortest = INFINITY;
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        if ((*k)->slices || (*k)->copies)
            continue;
        double step = step_of(q, *k);
        if (step < shortest) {
            shortest = step;
            best = (*k)->name;
        }
    }
    return best;
}

/* --- orders --- */

struct pp_least_found pp_split_run_least(struct pp_split_run *run)
{
    pp_split_units_order(run, NULL);
    const struct pp_split_least p = {.n_units = run->n_units,
                                     .n_ranks = (size_t)run->graph.n_rows,
                                     .n_microbatches = run->n_microbatches,
                                     .times = run->step.times,
                                     .messages = run->step.messages,
                                     .speeds = run->request->speeds};
    const struct pp_least_found found = pp_split_least(&p);
    pp_split_units_order(run, pp_split_order(run));
    return found;
}

/* A split as the search of orders takes it. */
struct order_search {
    struct pp_split_run *run;
    double (*times)[PP_N_TIMES]; /* per stage */
    double *messages;            /* per stage: the message after it */
    double *room;                /* per rank: bytes of buffers */
    struct pp_stage_bytes *sizes;
};

static double action_time(const void *ctx, struct pp_action a)
{
    const struct order_search *x = ctx;
    const double *t = x->times[a.stage];
    bool input = x->run->graph.stages[a.stage].input_grad;
    if (pp_is_send(a.op))
        return x->messages[a.op == PP_SEND_F ? a.stage : a.peer];
    if (!pp_is_compute(a.op))
        return 0;
    int time = pp_time_of((enum pp_op)a.op, input);
    return time < 0 ? 0 : t[time];
}

static void set_split(struct order_search *x, const size_t *bounds)
{
    const struct pp_split_run *run = x->run;
    const struct pp_graph *g = &run->graph;
    const double *speeds = run->request->speeds;
    for (int r = 0; r < g->n_rows; r++)
        x->room[r] = (double)run->memory_bytes - run->tables[r];
    for (int s = 0; s < g->n_stages; s++) {
        int rank = g->stages[s].row;
        double speed = speeds ? speeds[rank] : 1;
        size_t first = bounds[pp_original(g, s)];
        size_t end = bounds[pp_original(g, s) + 1];
        x->messages[s] =
            end > 0 && end < run->n_units ? run->step.messages[end - 1] : 0;
        for (int k = 0; k < PP_N_TIMES; k++)
            x->times[s][k] = 0;
        for (size_t i = first; i < end; i++) {
            x->room[rank] -= run->bytes[i][PP_UNIT_TRAINED];
            for (int k = 0; k < PP_N_TIMES; k++)
                x->times[s][k] += run->times[i][k] / speed;
        }
    }
    pp_split_run_sizes(run, bounds, x->sizes);
}

/* Searches as ppsched -s auto does by default. */
static int search_order(struct order_search *x, const size_t *bounds,
                        struct pp_schedule *s, struct pp_err *err)
{
    const struct pp_split_request *q = x->run->request;
    const struct pp_graph *g = &x->run->graph;
    const struct pp_costs costs = {action_time, x, 0};
    const struct pp_search_bytes bytes = {x->sizes, x->room};
    const struct pp_search_options o = {
        .costs = &costs,
        .split = true,
        .seed = 1,
        .seconds = q->seconds > 0 ? q->seconds : PP_SEARCH_SECONDS,
        .progress = q->progress,
        .ctx = q->ctx};
    int m = (int)x->run->n_microbatches;
    set_split(x, bounds);
    return x->run->memory_bytes ? pp_search_bytes(s, g, m, -1, &o, &bytes, err)
                                : pp_search_lowered(s, g, m, -1, &o, err);
}

/* Returns true if an order fits on the split that was set. */
static bool order_fits(const struct order_search *x,
                       const struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows && x->run->memory_bytes; r++) {
        struct pp_err too_large = {0};
        struct pp_memory m;
        if (pp_memory_plan(s, r, x->sizes, &m, &too_large))
            return false;
        bool fits = (double)m.arena_bytes <= x->room[r];
        pp_memory_finish(&m);
        if (!fits)
            return false;
    }
    return true;
}

/* Searches an order for bounds and, if it fits, its makespan, which it returns;
 * else infinity. */
static double find_order(struct order_search *x, const size_t *bounds,
                         struct pp_schedule *s, struct pp_makespan *m)
{
    struct pp_split_step p = x->run->step;
    struct pp_err refusal = {0};
    pp_split_units_order(x->run, NULL);
    int rc = search_order(x, bounds, s, &refusal) || !order_fits(x, s) ||
             pp_makespan_init(m, s, &refusal);
    pp_split_units_order(x->run, rc ? pp_split_order(x->run) : s);
    if (rc)
        return INFINITY;
    p.makespan = m;
    return pp_split_step_time(&p, bounds);
}

/* Gives the run an order for bounds and returns true if it is shorter than
 * *step. */
static bool take_order(struct order_search *x, const size_t *bounds,
                       double *step)
{
    struct pp_schedule s = {0};
    struct pp_makespan m = {0};
    double makespan = find_order(x, bounds, &s, &m);
    bool better = makespan < *step;
    if (better) {
        *step = makespan;
        pp_split_run_take(x->run, &s, &m);
    }
    pp_split_units_order(x->run, pp_split_order(x->run));
    pp_makespan_finish(&m);
    pp_schedule_finish(&s);
    return better;
}

/* Reports if the split stays: it was given, or modes were chosen for it. */
static bool is_kept(const struct pp_split_request *q)
{
    return q->bounds || q->stage_modes || q->recompute_auto;
}

/* Returns true if an order fits. */
static bool take_rounds(struct order_search *x, size_t *bounds)
{
    struct pp_split_run *run = x->run;
    size_t bytes = (run->n_stages + 1) * sizeof *bounds;
    size_t *best = pp_arena_alloc(&run->arena, bytes, 1);
    double step = INFINITY;
    memcpy(best, bounds, bytes);
    for (int i = 0; i < MAX_ROUNDS; i++) {
        if (!take_order(x, bounds, &step)) {
            memcpy(bounds, best, bytes);
            break;
        }
        memcpy(best, bounds, bytes);
        if (is_kept(run->request) || i == MAX_ROUNDS - 1)
            break;
        pp_split_run_improve(run, bounds);
        if (!memcmp(best, bounds, bytes))
            break;
    }
    if (isinf(step))
        return false;
    run->name = "auto";
    run->found.makespan = step;
    run->found.bound = fmin(pp_split_run_least(run).step, step);
    run->found.proved = false;
    return true;
}

void pp_split_run_search(struct pp_split_run *run, size_t *bounds)
{
    struct pp_arena *a = &run->arena;
    size_t n = (size_t)run->graph.n_stages;
    struct order_search x = {
        .run = run,
        .times = pp_arena_alloc(a, n, sizeof *x.times),
        .messages = pp_arena_alloc(a, n, sizeof *x.messages),
        .room = pp_arena_alloc(a, (size_t)run->graph.n_rows, sizeof *x.room),
        .sizes = pp_arena_alloc(a, n, sizeof *x.sizes)};
    bool found = take_rounds(&x, bounds);
    for (int i = 1;
         i <= MAX_SMALL && !found && !run->kind_fits && !run->request->bounds;
         i++) {
        start_small(run, i, bounds);
        found = take_rounds(&x, bounds);
    }
}
