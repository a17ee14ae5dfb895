/* SPDX-License-Identifier: MIT */
/* Makes a plan from a request, adds up its stages and ranks, and finds changes
 * that make it fit. */
#include "split/plan.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/vision.h"
#include "schedule/ir/at_once.h"
#include "schedule/ir/deps.h"
#include "schedule/simulate/sim.h"

/* Limits of the search for changes: each try is a plan of its own. */
enum { MAX_TRIES = 16, MAX_STAGES = 64, MAX_REPLICAS = 1 << 12 };

/* --- sums --- */

const struct pp_schedule *pp_split_order(const struct pp_split_run *run)
{
    return run->order.rows ? &run->order : &run->lowered;
}

/* Sets the most microbatches that each stage keeps at once. A slice counts as
 * its part of a microbatch. */
static void count_live(struct pp_split_plan *plan)
{
    const struct pp_split_run *run = &plan->run;
    const struct pp_schedule *order = pp_split_order(run);
    int *live = pp_calloc((size_t)run->graph.n_stages, sizeof *live);
    int *most = pp_calloc((size_t)run->graph.n_stages, sizeof *most);
    for (int r = 0; r < run->graph.n_rows; r++) {
        const struct pp_row *row = &order->rows[r];
        for (size_t i = 0; i < row->n; i++) {
            struct pp_action a = row->actions[i];
            int s = a.stage;
            if (!pp_is_compute(a.op))
                continue;
            live[s] += a.op == PP_F;
            most[s] = live[s] > most[s] ? live[s] : most[s];
            live[s] -= run->graph.stages[s].has_backward
                           ? pp_ends_backward(&run->graph, a)
                           : 1;
        }
    }
    for (int s = 0; s < run->graph.n_stages; s++)
        plan->stages[s].live = (double)most[s] / run->graph.slices.n;
    free(live);
    free(most);
}

/* The actions of a plan: the cells that its order has at once. */
struct actions {
    const struct pp_split_plan *plan;
    bool *at_once;
};

/* Returns how long a compute action takes on a rank of speed 1. */
static double compute_time(const struct actions *x, struct pp_action a)
{
    const struct pp_split_run *run = &x->plan->run;
    const struct pp_model *m = run->request->shard.model;
    int slices = run->graph.slices.n;
    int time =
        pp_time_of((enum pp_op)a.op, run->graph.stages[a.stage].input_grad);
    int cell =
        (a.stage * (int)run->n_microbatches + a.microbatch) * slices + a.slice;
    double sum = 0;
    for (size_t i = pp_split_first(x->plan, a.stage);
         time >= 0 && i < pp_split_end(x->plan, a.stage); i++) {
        double t[PP_N_TIMES];
        memcpy(t, run->times[i * (size_t)slices + (size_t)a.slice], sizeof t);
        if (run->logits_vary && x->at_once[cell] &&
            pp_unit_recomputes(m, pp_model_unit(m, i)))
            pp_split_unit_times(run, i, a.slice, PP_LOGITS_ONCE, t);
        sum += t[time];
    }
    return sum;
}

static double speed_of(const struct pp_split_run *run, int row)
{
    return run->step.speed ? run->step.speed[row] : 1;
}

/* Adds up how long each rank computes in a step. */
static void add_busy(struct pp_split_plan *plan, const struct actions *x)
{
    const struct pp_split_run *run = &plan->run;
    const struct pp_schedule *order = pp_split_order(run);
    for (int r = 0; r < run->graph.n_rows; r++)
        for (size_t i = 0; i < order->rows[r].n; i++) {
            struct pp_action a = order->rows[r].actions[i];
            if (pp_is_compute(a.op))
                plan->ranks[r].busy += compute_time(x, a) / speed_of(run, r);
        }
}

static double action_time(const void *ctx, struct pp_action a)
{
    const struct actions *x = ctx;
    const struct pp_split_run *run = &x->plan->run;
    size_t end;
    if (pp_is_compute(a.op))
        return compute_time(x, a) /
               speed_of(run, run->graph.stages[a.stage].row);
    if (!pp_is_send(a.op))
        return 0;
    end = pp_split_end(x->plan, a.op == PP_SEND_F ? a.stage : a.peer);
    return end > 0 && run->step.messages ? run->step.messages[end - 1] : 0;
}

/* Adds up the work of ranks. If the head's times vary, a search of splits has
 * taken the longest: replaces the makespan. */
static int time_actions(struct pp_split_plan *plan, struct pp_err *err)
{
    struct pp_split_run *run = &plan->run;
    size_t parts = (size_t)run->n_microbatches * (size_t)run->graph.slices.n;
    struct actions x = {plan, NULL};
    const struct pp_costs costs = {.time = action_time, .ctx = &x};
    double makespan;
    x.at_once =
        pp_calloc((size_t)run->graph.n_stages * parts, sizeof *x.at_once);
    pp_at_once_cells(pp_split_order(run), x.at_once);
    add_busy(plan, &x);
    int rc = run->logits_vary ? pp_run_time(&run->lowered, &costs, INT_MAX,
                                            false, &makespan, err)
                              : 0;
    if (!rc && run->logits_vary) {
        run->found.bound = fmin(run->found.bound, makespan);
        run->found.makespan = makespan;
        run->found.proved = false;
    }
    free(x.at_once);
    return rc;
}

/* Plans the buffers of ranks, and the step if no search did. */
static int measure_ranks(struct pp_split_plan *plan, struct pp_err *err)
{
    struct pp_split_run *run = &plan->run;
    const struct pp_graph *g = &plan->graph;
    if (!run->simulated || run->lowered.n_microbatches == 0)
        return 0;
    for (int r = 0; r < g->n_rows; r++) {
        struct pp_split_sum *rank = &plan->ranks[r];
        struct pp_memory m;
        if (pp_split_run_buffers(run, plan->bounds, r, &m, err))
            return -1;
        rank->activations_bytes = (double)m.arena_bytes;
        rank->tables_bytes = pp_split_run_tables(run, plan->bounds, r);
        pp_rank_set_arena(&rank->bytes, m.arena_bytes, m.message_bytes,
                          m.workspace_bytes);
        rank->bytes.part[PP_MEMORY_TABLES] = pp_size_of(rank->tables_bytes);
        pp_memory_finish(&m);
    }
    if (g->n_stages == g->n_rows)
        for (int s = 0; s < g->n_stages; s++)
            plan->stages[s].activations_bytes =
                plan->ranks[g->stages[s].row].activations_bytes;
    if (!run->shortest && !run->request->search_order)
        run->found.makespan = pp_split_step_time(&run->step, plan->bounds);
    return time_actions(plan, err);
}

static void add_unit(const struct pp_split_run *run, size_t i,
                     struct pp_split_sum *sum, double *largest)
{
    const struct pp_split_request *q = run->request;
    struct pp_unit_id u = pp_model_unit(q->shard.model, i);
    const struct pp_mesh own = pp_split_mesh(q, i);
    struct pp_held held = pp_mesh_held(&own, q->shard.model, u);
    const struct pp_unit_rates rates =
        pp_split_trainer(q)->rates(&q->shard, u, run->modes[i], &run->backend);
    size_t rows = pp_rank_rows(&q->shard.mesh, &run->backend,
                               (size_t)q->microbatch.tokens);
    const struct pp_unit_bytes bytes = pp_unit_bytes(&rates, rows, 0);
    /* 1F1B runs B, which keeps the gradients for W of one unit at a time. */
    size_t kept = bytes.act[PP_SAVED_ACT_I] + bytes.act[PP_SAVED_ACT_W];
    sum->params += held.all.dense + held.all.experts;
    struct pp_state_bytes state = pp_split_state(q, &own, i);
    sum->state_bytes += (double)pp_state_sum(state);
    pp_rank_add_state(&sum->bytes, state);
    sum->cost += run->costs[i];
    sum->activations_bytes += (double)kept * sum->live;
    *largest = fmax(*largest, (double)bytes.act[PP_SAVED_GRAD_W]);
}

/* Returns whether a rank has a unit. */
static bool has_unit(const struct pp_split_plan *plan, int rank, size_t unit)
{
    bool has = false;
    for (int s = 0; s < plan->graph.n_stages; s++)
        has |= plan->graph.stages[s].row == rank &&
               pp_split_first(plan, s) <= unit && unit < pp_split_end(plan, s);
    return has;
}

/* Adds the bytes of files that ranks read in place. A tied head, the last unit,
 * reads the file of the embedding, the first, if a rank has both. */
static void add_mapped(struct pp_split_plan *plan)
{
    const struct pp_split_request *q = plan->run.request;
    size_t n = plan->run.n_units;
    for (int r = 0; q->mapped && r < plan->graph.n_rows; r++)
        for (size_t i = 0; i < n; i++)
            if (has_unit(plan, r, i) &&
                (i + 1 < n || !q->shard.model->tied || !has_unit(plan, r, 0)))
                plan->ranks[r].bytes.mapped += q->mapped[i];
}

static int add_all(struct pp_split_plan *plan, struct pp_err *err)
{
    struct pp_split_run *run = &plan->run;
    const struct pp_split_request *q = run->request;
    const struct pp_graph *g = &plan->graph;
    plan->stages =
        pp_arena_alloc(&run->arena, (size_t)g->n_stages, sizeof *plan->stages);
    plan->ranks =
        pp_arena_alloc(&run->arena, (size_t)g->n_rows, sizeof *plan->ranks);
    for (int s = 0; s < g->n_stages; s++)
        /* Each of two copies keeps what 1F1B keeps for one. */
        plan->stages[s].live = pp_live_microbatches(
            g->n_rows, (int)q->n_chunks, q->placement == PP_PLACEMENT_V,
            pp_original(g, s),
            (int)((run->n_microbatches + g->n_copies - 1) / g->n_copies));
    if (run->simulated)
        count_live(plan);
    for (int s = 0; s < g->n_stages; s++) {
        struct pp_split_sum *sum = &plan->stages[s];
        struct pp_split_sum *rank = &plan->ranks[g->stages[s].row];
        double largest = 0;
        for (size_t i = pp_split_first(plan, s); i < pp_split_end(plan, s); i++)
            add_unit(run, i, sum, &largest);
        sum->activations_bytes += largest;
        rank->params += sum->params;
        rank->cost += sum->cost;
        rank->state_bytes += sum->state_bytes;
        rank->activations_bytes += sum->activations_bytes;
        for (int k = 0; k < PP_N_MEMORY_PARTS; k++)
            rank->bytes.part[k] += sum->bytes.part[k];
        rank->bytes.part[PP_MEMORY_ACTIVATIONS] =
            pp_size_of(rank->activations_bytes);
    }
    add_mapped(plan);
    return measure_ranks(plan, err);
}

/* --- the plan --- */

int pp_split_check_stages(const struct pp_model *m, size_t n_stages,
                          struct pp_err *err)
{
    size_t n_units = pp_model_n_units(m);
    if (n_stages <= n_units)
        return 0;
    if (m->table)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu stages are too many for %zu units", n_stages,
                       n_units);
    return pp_fail(err, PP_EXIT_INPUT,
                   "%zu stages are too many for %zu units (embedding, "
                   "%zu layers, norm, head)",
                   n_stages, n_units, m->n_layers);
}

static int fill_bounds(struct pp_split_plan *plan, struct pp_err *err)
{
    struct pp_split_run *run = &plan->run;
    const struct pp_split_request *q = run->request;
    if (!q->bounds && pp_split_run_atoms(run, err))
        return -1;
    if (q->stage_modes || q->recompute_auto)
        pp_split_run_recompute(run, plan->bounds);
    else if (!q->bounds && !q->start)
        pp_split_run_balance(run, plan->bounds);
    else
        memcpy(plan->bounds, q->bounds ? q->bounds : q->start,
               (run->n_stages + 1) * sizeof *plan->bounds);
    return 0;
}

static int check_encoders(const struct pp_split_request *q, struct pp_err *err)
{
    for (size_t i = 0; i < pp_model_n_encoders(q->shard.model); i++) {
        bool apart = q->encoders && q->encoders[i].dp;
        if (pp_mesh_check_encoder(apart ? &q->encoders[i] : NULL,
                                  &q->shard.mesh, q->shard.model, i, err))
            return -1;
    }
    return 0;
}

int pp_split_check_meshes(const struct pp_split_request *q, struct pp_err *err)
{
    return pp_mesh_check(&q->shard.mesh, q->shard.model,
                         (size_t)q->microbatch.seq_len, err) ||
                   check_encoders(q, err)
               ? -1
               : 0;
}

int pp_split_plan(const struct pp_split_request *q, struct pp_split_plan *plan,
                  struct pp_err *err)
{
    struct pp_split_run *run = &plan->run;
    *plan = (struct pp_split_plan){.bounds = NULL};
    if (pp_split_check_meshes(q, err) || pp_split_run_init(run, q, err))
        return -1;
    plan->graph = run->graph;
    plan->graph.slices.n = 1;
    plan->bounds =
        pp_arena_alloc(&run->arena, run->n_stages + 1, sizeof *plan->bounds);
    /* The split was found with a backward of every stage, whose times are 0
     * where there is none. The plan has the true order. */
    if (fill_bounds(plan, err))
        return -1;
    if (q->search_order)
        pp_split_run_search(run, plan->bounds);
    return pp_split_run_freeze(run, plan->bounds, err) || add_all(plan, err)
               ? -1
               : 0;
}

void pp_split_plan_move(struct pp_split_plan *from, struct pp_split_plan *to)
{
    *to = *from;
    struct pp_split_run *run = &to->run;
    run->order.graph = run->lowered.graph = &run->graph;
    run->makespan.graph = run->memory.graph = &run->graph;
    run->step.makespan = &run->makespan;
    *from = (struct pp_split_plan){.bounds = NULL};
}

void pp_split_plan_finish(struct pp_split_plan *plan)
{
    pp_split_run_finish(&plan->run);
}

enum pp_recompute pp_split_stage_mode(const struct pp_split_plan *plan,
                                      int stage)
{
    const struct pp_model *m = plan->run.request->shard.model;
    for (size_t i = pp_split_first(plan, stage); i < pp_split_end(plan, stage);
         i++)
        if (pp_unit_is_decoder(pp_model_unit(m, i)))
            return plan->run.modes[i];
    return PP_RECOMPUTE_NONE;
}

int pp_split_plan_fullest(const struct pp_split_plan *plan)
{
    int rank = 0;
    for (int r = 1; r < plan->graph.n_rows; r++)
        if (pp_split_plan_need(plan, r) > pp_split_plan_need(plan, rank))
            rank = r;
    return rank;
}

bool pp_split_plan_fits(const struct pp_split_plan *plan)
{
    return pp_split_plan_need(plan, pp_split_plan_fullest(plan)) <=
           (double)plan->run.request->memory_bytes;
}

/* --- changes --- */

/* Returns the plan's request, to be changed and tried. */
static struct pp_split_request changeable(const struct pp_split_plan *plan)
{
    struct pp_split_request q = *plan->run.request;
    q.n_microbatches = plan->run.n_microbatches;
    q.shortest = true;
    q.fit_only = true;
    if (q.search_order) { /* if a named kind fits, auto fits */
        q.search_order = false;
        q.kind = plan->run.kind->name;
    }
    return q;
}

static bool would_fit(const struct pp_split_request *q)
{
    struct pp_split_plan trial;
    struct pp_err refusal = {0};
    bool yes =
        !pp_split_plan(q, &trial, &refusal) && pp_split_plan_fits(&trial);
    pp_split_plan_finish(&trial);
    return yes;
}

/* Finds the least recomputation with which the request fits. */
static enum pp_recompute find_recompute(const struct pp_split_plan *plan)
{
    struct pp_split_request q = changeable(plan);
    const enum pp_recompute given = q.recompute;
    bool any = plan->run.simulated && !q.recompute_auto; /* it tried all */
    q.stage_modes = NULL;
    for (size_t k = 1; any && k < PP_N_RECOMPUTES; k++) {
        q.recompute = pp_split_level(&q, k);
        if (pp_trainer_recomputes(pp_split_trainer(&q), q.recompute) &&
            (q.recompute & ~given) && would_fit(&q))
            return q.recompute;
    }
    return PP_RECOMPUTE_NONE;
}

/* Returns true if this split fits if so many data-parallel ranks share the
 * optimizer state. */
static bool split_fits(const struct pp_split_plan *plan, int dp)
{
    const struct pp_split_request *q = plan->run.request;
    const struct pp_graph *g = &plan->graph;
    struct pp_mesh of[2] = {q->shard.mesh};
    of[0].dp = dp;
    of[1] = pp_mesh_of(&of[0], true);
    for (int r = 0; r < g->n_rows; r++) {
        double bytes =
            plan->ranks[r].activations_bytes + plan->ranks[r].tables_bytes;
        for (int s = 0; s < g->n_stages; s++)
            for (size_t i = pp_split_first(plan, s); i < pp_split_end(plan, s);
                 i++)
                if (g->stages[s].row == r)
                    bytes += (double)pp_state_sum(pp_split_state(
                        q,
                        &of[i <
                            pp_component_first(q->shard.model, PP_LANGUAGE)],
                        i));
        if (bytes > (double)q->memory_bytes)
            return false;
    }
    return true;
}

/* Finds the least number of data-parallel ranks with which the request fits:
 * first on this split, then on any, which may need fewer. */
static int64_t find_replicas(const struct pp_split_plan *plan)
{
    const struct pp_split_request *q = plan->run.request;
    int dp = q->shard.mesh.dp;
    int low = 1, high = MAX_REPLICAS / dp;
    if (q->encoders || high < 2 || !split_fits(plan, high * dp))
        return 0; /* an encoder that is apart has a dp of its own */
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (split_fits(plan, middle * dp))
            high = middle;
        else
            low = middle;
    }
    if (!q->bounds && plan->graph.n_stages <= MAX_STAGES)
        for (low = 1; high - low > 1;) {
            int middle = low + (high - low) / 2;
            struct pp_split_request other = changeable(plan);
            other.shard.mesh.dp = middle * dp;
            if (would_fit(&other))
                high = middle;
            else
                low = middle;
        }
    return high * dp;
}

/* Finds the least number of ranks with which the request fits. Does not try if
 * the request says something about each rank or stage. */
static int64_t find_ranks(const struct pp_split_plan *plan)
{
    struct pp_split_request q = changeable(plan);
    int64_t most = q.n_ranks + MAX_TRIES;
    if (q.bounds || q.speeds || q.stage_modes || !plan->run.simulated)
        return 0;
    while (++q.n_ranks <= most && q.n_ranks * q.n_chunks <= MAX_STAGES &&
           q.n_ranks * q.n_chunks <= (int64_t)plan->run.n_units) {
        q.shard.mesh.pp = (int)q.n_ranks;
        if (would_fit(&q))
            return q.n_ranks;
    }
    return 0;
}

/* Reports whether the request fits with room for an even share of the rows of
 * experts, and has more. */
static bool fits_evenly(const struct pp_split_plan *plan)
{
    struct pp_split_request q = changeable(plan);
    if (q.shard.mesh.ep == 1 || pp_split_trainer(&q) != pp_trainers ||
        pp_mesh_expert_rows(&q.shard.mesh, q.shard.model) <=
            (double)q.shard.model->moe.top_k ||
        !plan->run.simulated)
        return false;
    q.shard.mesh.expert_limit = 1;
    return would_fit(&q);
}

struct pp_split_changes pp_split_plan_changes(const struct pp_split_plan *plan)
{
    return (struct pp_split_changes){.even_experts = fits_evenly(plan),
                                     .recompute = find_recompute(plan),
                                     .n_replicas = find_replicas(plan),
                                     .n_ranks = find_ranks(plan)};
}
