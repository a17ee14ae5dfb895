/* SPDX-License-Identifier: MIT */
/* Builds the flat arrays of a search problem from a schedule and its costs. */
#include "schedule/search/search_problem.h"

#include <math.h>
#include <stdlib.h>

#include "base/num.h"
#include "schedule/ir/deps.h"

/* One pass over all dependencies, which counts them or fills them in. */
struct edges {
    struct pp_search_problem *problem;
    const struct pp_costs *costs;
    struct pp_action action;
    int32_t op;
    bool fill;
};

static int visit(void *ctx, struct pp_dep dep)
{
    struct edges *e = ctx;
    struct pp_search_problem *j = e->problem;
    bool forward = dep.ops & 1u << PP_F;
    if (dep.stage == e->action.stage)
        return 0; /* on the same rank, in this order in every row */
    int32_t from = pp_problem_op(j, forward ? PP_PROBLEM_F : PP_PROBLEM_I,
                                 dep.stage, e->action.microbatch);
    double lag = 0;
    if (!e->fill) {
        j->first_in[e->op + 1]++;
        j->first_out[from + 1]++;
        return 0;
    }
    if (dep.message != PP_N_OPS) {
        struct pp_action message = e->action;
        message.op = (uint8_t)dep.message;
        message.peer = dep.stage;
        lag = e->costs->time(e->costs->ctx, pp_other_end(message));
    }
    j->in[j->first_in[e->op]++] = (struct pp_search_edge){from, lag};
    j->out[j->first_out[from]++] = (struct pp_search_edge){e->op, lag};
    return 0;
}

static void visit_all(struct pp_search_problem *j, const struct pp_costs *costs,
                      bool fill)
{
    struct edges e = {.problem = j, .costs = costs, .fill = fill};
    for (e.op = 0; e.op < j->n_ops; e.op++) {
        e.action = pp_problem_action(j, e.op);
        pp_deps(j->graph, e.action, visit, &e); /* visit never stops it */
    }
}

/* Sums counts that are stored one place up. */
static void sum_up(int32_t *first, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        first[i + 1] += first[i];
}

/* Restores the starts that filling advanced. */
static void move_back(int32_t *first, int32_t n)
{
    for (int32_t i = n; i > 0; i--)
        first[i] = first[i - 1];
    first[0] = 0;
}

static int init_edges(struct pp_search_problem *j, const struct pp_costs *costs,
                      struct pp_err *err)
{
    visit_all(j, costs, false);
    sum_up(j->first_in, j->n_ops);
    sum_up(j->first_out, j->n_ops);
    size_t n = (size_t)j->first_in[j->n_ops];
    j->in = calloc(n + 1, sizeof *j->in);
    j->out = calloc(n + 1, sizeof *j->out);
    if (!j->in || !j->out)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    visit_all(j, costs, true);
    move_back(j->first_in, j->n_ops);
    move_back(j->first_out, j->n_ops);
    return 0;
}

static void init_loads(struct pp_search_problem *j,
                       const struct pp_memory_limit *room)
{
    int n = j->graph->n_stages;
    for (int s = 0; s < n; s++) {
        struct pp_load l = room ? room->load[s] : (struct pp_load){0, 1, 0};
        double *taken = j->taken + s, *freed = j->freed + s;
        if (!j->graph->stages[s].input_grad && j->n_kinds == 3)
            l = (struct pp_load){0, l.f_to_i + l.f_to_w, 0};
        taken[PP_PROBLEM_F * n] = l.f_to_i + l.f_to_w;
        taken[PP_PROBLEM_I * n] = l.i_to_w;
        freed[PP_PROBLEM_I * n] = l.f_to_i;
        freed[(j->n_kinds - 1) * n] += l.f_to_w + l.i_to_w;
    }
    j->limit = room ? room->limit : NULL;
    for (int r = 0; j->limit && r < j->graph->n_rows; r++)
        j->slack = fmax(j->slack, 1e-9 * j->limit[r]);
}

static int allocate(struct pp_search_problem *j, struct pp_err *err)
{
    size_t n = (size_t)j->n_ops, groups = (size_t)j->n_kinds;
    groups *= (size_t)j->graph->n_stages;
    j->time = calloc(n, sizeof *j->time);
    j->group = calloc(n, sizeof *j->group);
    j->first_in = calloc(n + 1, sizeof *j->first_in);
    j->first_out = calloc(n + 1, sizeof *j->first_out);
    j->first_order =
        calloc((size_t)j->graph->n_rows + 1, sizeof *j->first_order);
    j->n_whole = calloc((size_t)j->graph->n_stages, sizeof *j->n_whole);
    j->row = calloc(groups, sizeof *j->row);
    j->taken = calloc(groups, sizeof *j->taken);
    j->freed = calloc(groups, sizeof *j->freed);
    j->late = calloc((size_t)j->graph->n_rows, sizeof *j->late);
    if (!j->time || !j->group || !j->first_in || !j->first_out ||
        !j->first_order || !j->n_whole || !j->row || !j->taken || !j->freed ||
        !j->late)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
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
            j->n_whole[s] = apart < j->n_microbatches
                                ? j->n_microbatches - (int32_t)apart
                                : 0;
        }
        before += time_on_stage(costs, s, PP_I);
    }
}

int pp_search_problem_init(struct pp_search_problem *j,
                           const struct pp_schedule *s,
                           enum pp_backward backward,
                           const struct pp_costs *costs,
                           const struct pp_memory_limit *room,
                           struct pp_err *err)
{
    *j = (struct pp_search_problem){.graph = s->graph,
                                    .n_microbatches = s->n_microbatches,
                                    .n_kinds = backward ? 3 : 2};
    if (s->graph->n_copies > 1 || s->graph->n_slices > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s orders whole sequences on one copy of the weights, "
                       "not slices or copies",
                       s->kind);
    int64_t n = (int64_t)j->n_kinds * s->graph->n_stages * s->n_microbatches;
    if (n > INT32_MAX / 4)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%d stages of %d microbatches are too many to search",
                       s->graph->n_stages, s->n_microbatches);
    j->n_ops = (int32_t)n;
    if (allocate(j, err))
        return -1;
    if (backward == PP_BACKWARD_MIXED || backward == PP_BACKWARD_LATE)
        mix_backward(j, costs, backward == PP_BACKWARD_LATE);
    for (int32_t op = 0; op < j->n_ops; op++) {
        struct pp_action a = pp_problem_action(j, op);
        j->group[op] = op / j->n_microbatches;
        j->row[j->group[op]] = s->graph->stages[a.stage].row;
        if (a.op != PP_W || !pp_problem_is_whole(j, a.stage, a.microbatch))
            j->time[op] = costs->time(costs->ctx, a);
        j->first_order[s->graph->stages[a.stage].row + 1]++;
    }
    sum_up(j->first_order, s->graph->n_rows);
    init_loads(j, room);
    return init_edges(j, costs, err);
}

void pp_search_problem_finish(struct pp_search_problem *j)
{
    free(j->time);
    free(j->group);
    free(j->first_in);
    free(j->first_out);
    free(j->in);
    free(j->out);
    free(j->first_order);
    free(j->n_whole);
    free(j->row);
    free(j->taken);
    free(j->freed);
    free(j->late);
    *j = (struct pp_search_problem){0};
}
