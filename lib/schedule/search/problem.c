/* SPDX-License-Identifier: MIT */
/* Builds the flat arrays of a search problem from a schedule and its costs. */
#include "schedule/search/problem.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/deps.h"

struct waits {
    struct pp_search_problem *problem;
    const struct pp_costs *costs;
    struct pp_action action;
    int32_t k; /* its microbatch is the k-th of the stage */
    struct pp_err *err;
};

static int visit(void *ctx, struct pp_dep dep)
{
    const struct waits *w = ctx;
    bool forward = dep.ops & 1u << PP_F;
    double lag = 0;
    if (dep.stage == w->action.stage)
        return 0; /* on the same rank, in this order in every row */
    if (dep.message != PP_N_OPS) {
        struct pp_action message = w->action;
        message.op = (uint8_t)dep.message;
        message.peer = dep.stage;
        lag = w->costs->time(w->costs->ctx, pp_other_end(message));
    }
    return pp_ops_wait(&w->problem->ops,
                       pp_problem_op(w->problem,
                                     forward ? PP_PROBLEM_F : PP_PROBLEM_I,
                                     dep.stage, w->k),
                       lag, w->err);
}

/* The loads of a whole backward, and of the W that it does not need. */
enum { LOAD_WHOLE = PP_PROBLEM_W + 1, LOAD_NONE, N_LOADS };

static int32_t load_of(const struct pp_search_problem *j, int32_t op)
{
    int kind = pp_problem_kind(j, op);
    bool whole = kind != PP_PROBLEM_F && pp_problem_is_whole(j, op);
    kind = !whole ? kind : kind == PP_PROBLEM_I ? LOAD_WHOLE : LOAD_NONE;
    return kind * j->graph->n_stages + pp_problem_stage(j, op);
}

/* Numbers the ops: fills first, microbatch and group. */
static void number_ops(struct pp_search_problem *j)
{
    const struct pp_graph *g = j->graph;
    int groups = j->n_kinds * g->n_stages;
    int32_t op = 0;
    for (int group = 0; group < groups; group++) {
        int copy = pp_copy_number(g, group % g->n_stages);
        j->first[group] = op;
        for (int m = 0; m < j->n_microbatches; m++) {
            if (j->copy && j->copy[m] != copy)
                continue;
            j->microbatch[op] = m;
            j->group[op++] = group;
        }
    }
    j->first[groups] = op;
}

static int init_ops(struct pp_search_problem *j, const struct pp_costs *costs,
                    size_t n, struct pp_err *err)
{
    struct waits w = {.problem = j, .costs = costs, .err = err};
    for (int32_t op = 0; op < (int32_t)n; op++) {
        double time = 0;
        w.action = pp_problem_action(j, op);
        w.k = op - j->first[j->group[op]];
        if (w.action.op != PP_W || !pp_problem_is_whole(j, op))
            time = costs->time(costs->ctx, w.action);
        j->load[op] = load_of(j, op);
        pp_ops_add(&j->ops, j->graph->stages[w.action.stage].row, time);
        if (pp_deps(j->graph, w.action, visit, &w))
            return -1;
    }
    pp_ops_link(&j->ops, true);
    return 0;
}

static void init_loads(struct pp_search_problem *j,
                       const struct pp_memory_limit *room)
{
    int n = j->graph->n_stages;
    for (int s = 0; s < n; s++) {
        struct pp_load l = room ? room->load[s] : (struct pp_load){0, 1, 0, 0};
        double *taken = j->taken + s, *freed = j->freed + s;
        double both = l.f_to_i + l.f_to_w;
        taken[PP_PROBLEM_F * n] = both;
        taken[LOAD_WHOLE * n] = l.in_b;
        freed[LOAD_WHOLE * n] = both + l.in_b;
        if (!j->graph->stages[s].input_grad) {
            taken[PP_PROBLEM_W * n] = l.in_b;
            freed[PP_PROBLEM_W * n] = both + l.in_b;
            continue;
        }
        taken[PP_PROBLEM_I * n] = l.i_to_w;
        freed[PP_PROBLEM_I * n] = l.f_to_i;
        freed[PP_PROBLEM_W * n] = l.f_to_w + l.i_to_w;
    }
    j->limit = room ? room->limit : NULL;
    for (int r = 0; j->limit && r < j->graph->n_rows; r++)
        j->slack = fmax(j->slack, 1e-9 * j->limit[r]);
}

static int allocate(struct pp_search_problem *j, size_t n, struct pp_err *err)
{
    size_t rows = (size_t)j->graph->n_rows, loads = N_LOADS;
    size_t groups = (size_t)(j->n_kinds * j->graph->n_stages);
    loads *= (size_t)j->graph->n_stages;
    if (pp_ops_init(&j->ops, n, rows, true, err))
        return -1;
    j->ops.late = pp_calloc(rows, sizeof *j->ops.late);
    j->first = pp_calloc(groups + 1, sizeof *j->first);
    j->microbatch = pp_calloc(n, sizeof *j->microbatch);
    j->group = pp_calloc(n, sizeof *j->group);
    j->n_whole = pp_calloc((size_t)j->graph->n_stages, sizeof *j->n_whole);
    j->load = pp_calloc(n, sizeof *j->load);
    j->taken = pp_calloc(loads, sizeof *j->taken);
    j->freed = pp_calloc(loads, sizeof *j->freed);
    return 0;
}

static double time_on_stage(const struct pp_costs *costs, int stage,
                            enum pp_op op)
{
    return costs->time(
        costs->ctx,
        (struct pp_action){.stage = stage, .peer = -1, .op = (uint8_t)op});
}

bool pp_problem_whole_saves(const struct pp_costs *costs, int stage)
{
    return time_on_stage(costs, stage, PP_B) <
           (time_on_stage(costs, stage, PP_I) +
            time_on_stage(costs, stage, PP_W)) *
               (1 - 1e-9);
}

/* Sets n_whole. If late, the W of as many microbatches are kept apart as run
 * while the last gradient passes the stages before. It ends with a W of the
 * first stage. */
static void mix_backward(struct pp_search_problem *j,
                         const struct pp_costs *costs, bool late)
{
    double before = time_on_stage(costs, 0, PP_W);
    for (int s = 0; s < j->graph->n_stages; s++) {
        double weight = time_on_stage(costs, s, PP_W);
        if (pp_problem_whole_saves(costs, s)) {
            double apart = late && weight > 0 ? floor(before / weight) : 0;
            double n = pp_problem_passing(j, s);
            j->n_whole[s] = (int32_t)fmax(0, n - apart);
        }
        before += time_on_stage(costs, s, PP_I);
    }
}

int pp_search_problem_init(struct pp_search_problem *j,
                           const struct pp_schedule *s,
                           enum pp_backward backward,
                           const struct pp_costs *costs,
                           const struct pp_memory_limit *room, const int *copy,
                           struct pp_err *err)
{
    int copies = s->graph->n_copies;
    *j = (struct pp_search_problem){.graph = s->graph,
                                    .n_microbatches = s->n_microbatches,
                                    .n_kinds = backward ? 3 : 2,
                                    .copy = copy};
    if ((copies > 1 && !copy) || s->graph->slices.n > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s orders whole sequences on one copy of the weights, "
                       "not slices or copies",
                       s->kind);
    int64_t n =
        (int64_t)j->n_kinds * (s->graph->n_stages / copies) * s->n_microbatches;
    if (n > INT32_MAX / 4)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%d stages of %d microbatches are too many to search",
                       s->graph->n_stages, s->n_microbatches);
    if (allocate(j, (size_t)n, err))
        return -1;
    number_ops(j);
    if (backward == PP_BACKWARD_MIXED || backward == PP_BACKWARD_LATE)
        mix_backward(j, costs, backward == PP_BACKWARD_LATE);
    init_loads(j, room);
    return init_ops(j, costs, (size_t)n, err);
}

void pp_search_problem_finish(struct pp_search_problem *j)
{
    pp_ops_finish(&j->ops);
    free(j->n_whole);
    free(j->first);
    free(j->microbatch);
    free(j->group);
    free(j->load);
    free(j->taken);
    free(j->freed);
    *j = (struct pp_search_problem){0};
}
