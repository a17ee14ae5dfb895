/* SPDX-License-Identifier: MIT */
/* The balanced split has the shortest step within the limit of memory. If no
 * step is asked for, its costliest rank is as cheap as possible. Units that
 * must stay on one stage are an atom: no boundary lies within one. */
#include <math.h>
#include <string.h>

#include "model/vision.h"
#include "split/split.h"
#include "split/colossalai.h"
#include "split/deepspeed.h"
#include "split/plan.h"

/* --- atoms --- */

/* Returns true if a layout of Megatron-LM cannot put units i - 1 and i on
 * different stages.
 *
 * The units that a layout's E stands for come before the layers, and the units
 * that its L stands for come after them. With multi-token prediction the norm
 * goes with the last layer, and all m are on one stage before L: the last chunk
 * of a rank other than the first. With one or two ranks only the last stage is
 * left for them. */
static bool inseparable(const struct pp_split_request *q, size_t i)
{
    const struct pp_model *m = q->shard.model;
    size_t first = pp_model_n_first(m), norm = first + m->n_layers;
    bool shares = !q->encoder_ranks || (q->encoders && !q->encoders[1].dp);
    if (pp_model_n_encoders(m) > 1 && shares && i > pp_component_first(m, 1) &&
        i < first)
        return true; /* a second encoder stays with the embedding */
    if (!q->layout)
        return false;
    if (i < first)
        return true;
    if (m->n_mtp == 0)
        return i > norm;
    bool head = i == pp_model_n_units(m) - 1;
    return i == norm || (i > norm + 1 && (!head || q->n_ranks <= 2));
}

int pp_split_run_atoms(struct pp_split_run *run, struct pp_err *err)
{
    const struct pp_model *m = run->request->shard.model;
    struct pp_split_atoms *a = &run->atoms;
    if (pp_split_check_stages(m, run->n_stages, err))
        return -1;
    a->first = pp_arena_alloc(&run->arena, run->n_units + 1, sizeof *a->first);
    for (size_t i = 0; i < run->n_units; i++)
        if (i == 0 || !inseparable(run->request, i))
            a->first[a->n++] = i;
    a->first[a->n] = run->n_units;
    if (a->n < run->n_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu stages are too many for %zu layers: a layout keeps "
                       "%s together",
                       run->n_stages, m->n_layers,
                       m->n_mtp   ? "norm and last layer"
                       : m->table ? "the units after the layers"
                                  : "norm and head");
    return 0;
}

/* Returns true if no stage is empty and no boundary is within an atom. */
static bool keeps_atoms(const struct pp_split_run *run, const size_t *bounds)
{
    const struct pp_split_atoms *a = &run->atoms;
    size_t k = 0;
    for (size_t s = 0; s < run->n_stages; s++) {
        while (a->first[k] < bounds[s])
            k++;
        if (a->first[k] != bounds[s] || bounds[s] >= bounds[s + 1])
            return false;
    }
    return true;
}

/* --- the shortest step --- */

/* The problem with one unit for each atom. */
struct merged {
    double (*times)[PP_N_TIMES], *messages, *message_bytes;
    double (*bytes)[PP_N_UNIT_BYTES];
    size_t *bounds, *unit_bounds;
    struct pp_split_memory memory;
    const struct pp_split_run *run;
};

/* Merges the units i .. end - 1 into atom k. */
static void merge_atom(const struct pp_split_run *run, struct merged *x,
                       size_t k, size_t i, size_t end)
{
    size_t slices = (size_t)run->graph.slices.n;
    x->messages[k] = run->step.messages[end - 1];
    x->message_bytes[k] = run->message_bytes[end - 1];
    for (; i < end; i++) {
        for (size_t q = 0; q < slices; q++)
            for (int t = 0; t < PP_N_TIMES; t++)
                x->times[k * slices + q][t] += run->times[i * slices + q][t];
        for (int b = 0; b < PP_N_UNIT_BYTES; b++)
            x->bytes[k][b] = pp_unit_shares(b)
                                 ? fmax(x->bytes[k][b], run->bytes[i][b])
                                 : x->bytes[k][b] + run->bytes[i][b];
    }
}

static void merge_atoms(struct pp_split_run *run, struct merged *x,
                        struct pp_split_step *step)
{
    const struct pp_split_atoms *a = &run->atoms;
    struct pp_arena *arena = &run->arena;
    size_t slices = (size_t)run->graph.slices.n;
    x->times = pp_arena_alloc(arena, a->n * slices, sizeof *x->times);
    x->messages = pp_arena_alloc(arena, a->n, sizeof *x->messages);
    x->message_bytes = pp_arena_alloc(arena, a->n, sizeof *x->message_bytes);
    x->unit_bounds =
        pp_arena_alloc(arena, run->n_stages + 1, sizeof *x->unit_bounds);
    x->bytes = pp_arena_alloc(arena, a->n, sizeof *x->bytes);
    x->bounds = pp_arena_alloc(arena, run->n_stages + 1, sizeof *x->bounds);
    for (size_t k = 0; k < a->n; k++)
        merge_atom(run, x, k, a->first[k], a->first[k + 1]);
    step->times = (const double(*)[PP_N_TIMES])x->times;
    step->messages = x->messages;
    step->n_units = a->n;
    if (run->memory_bytes == 0)
        return;
    bool merged = a->n < run->n_units;
    step->memory = merged ? &x->memory : &run->memory;
    if (merged)
        pp_split_memory_init(&x->memory, &run->lowered,
                             (const double(*)[PP_N_UNIT_BYTES])x->bytes, a->n,
                             x->message_bytes);
}

/* Splits atoms, and turns the answer into bounds of units. */
static void split_atoms(struct pp_split_run *run,
                        const struct pp_split_step *step, struct merged *x,
                        size_t *bounds)
{
    const size_t *first = run->atoms.first;
    size_t n = run->n_stages, k = 0;
    for (size_t s = 0; s <= n; s++) {
        while (first[k] < bounds[s])
            k++;
        x->bounds[s] = k;
    }
    run->found = pp_split_step(step, x->bounds);
    for (size_t s = 0; s <= n; s++)
        bounds[s] = first[x->bounds[s]];
}

/* Returns the bytes that a rank needs for bounds of atoms. */
static double exact_need(void *ctx, const size_t *bounds, int rank)
{
    struct merged *x = ctx;
    for (size_t s = 0; s <= x->run->n_stages; s++)
        x->unit_bounds[s] = x->run->atoms.first[bounds[s]];
    return pp_split_run_need(x->run, x->unit_bounds, rank) +
           pp_split_run_tables(x->run, x->unit_bounds, rank) -
           x->run->tables[rank];
}

/* Returns true if bounds may stay: no step is asked for, and they fit. */
static bool may_stay(const struct pp_split_run *run, const size_t *bounds)
{
    bool yes = !run->shortest;
    for (int r = 0; yes && run->memory_bytes && r < run->graph.n_rows; r++)
        yes = pp_split_run_fits(run, bounds, r);
    return yes;
}

void pp_split_run_improve(struct pp_split_run *run, size_t *bounds)
{
    struct pp_split_step step = run->step;
    struct merged x = {.run = run};
    if (!run->simulated)
        return;
    step.fit_only = run->request->fit_only;
    step.need = exact_need;
    step.ctx = &x;
    for (int r = 0; r < run->graph.n_rows; r++)
        run->limit[r] = (double)run->memory_bytes - run->tables[r];
    if (may_stay(run, bounds))
        return;
    merge_atoms(run, &x, &step);
    split_atoms(run, &step, &x, bounds);
    pp_split_memory_finish(&x.memory);
}

/* --- the start of the search --- */

/* The rules of other systems, with their defaults. */
enum rule {
    RULE_UNIFORM,
    RULE_WEIGHTS,
    RULE_COLOSSALAI,
    RULE_PARAMETERS,
    N_RULES
};

void pp_split_layer_bounds(const struct pp_model *m, const size_t *counts,
                           size_t n_stages, size_t *bounds)
{
    bounds[0] = 0;
    bounds[1] = pp_model_n_first(m) + counts[0];
    for (size_t s = 1; s < n_stages; s++)
        bounds[s + 1] = bounds[s] + counts[s];
    bounds[n_stages] = pp_model_n_units(m);
}

static int parameters_bounds(struct pp_split_run *run, size_t *bounds,
                             struct pp_err *err)
{
    const struct pp_model *m = run->request->shard.model;
    double *weights =
        pp_arena_alloc(&run->arena, run->n_units, sizeof *weights);
    for (size_t i = 0; i < run->n_units; i++)
        weights[i] = (double)pp_unit_n_params(m, pp_model_unit(m, i));
    return pp_split_deepspeed(weights, run->n_units, run->n_stages, bounds,
                              err);
}

static int rule_bounds(struct pp_split_run *run, enum rule rule, size_t *bounds,
                       struct pp_err *err)
{
    const struct pp_model *m = run->request->shard.model;
    size_t n = run->n_stages, layers = m->n_layers;
    size_t *counts = pp_arena_alloc(&run->arena, n, sizeof *counts);
    if (rule == RULE_PARAMETERS)
        return parameters_bounds(run, bounds, err);
    if (rule == RULE_UNIFORM) {
        if (pp_split_uniform(layers, n, bounds, err))
            return -1;
        for (size_t s = 0; s < n; s++)
            counts[s] = bounds[s + 1] - bounds[s];
    } else if (rule == RULE_WEIGHTS
                   ? pp_split_weights(layers, n, 1, 1, counts, err)
                   : pp_split_colossalai(layers, n, counts, err)) {
        return -1;
    }
    pp_split_layer_bounds(m, counts, n, bounds);
    return 0;
}

/* Sets bounds to the split of a rule if it has a shorter step. */
static void start_at_rule(struct pp_split_run *run, size_t *bounds)
{
    /* The time of DeepSpeed's rule grows with the square of the units. */
    enum { MAX_UNITS = 256 };
    size_t n = run->n_stages;
    size_t *trial = pp_arena_alloc(&run->arena, n + 1, sizeof *trial);
    double shortest = pp_split_step_time(&run->step, bounds);
    for (int rule = 0; rule < N_RULES; rule++) {
        struct pp_err refusal = {0}; /* no failure: other rules remain */
        if ((rule == RULE_PARAMETERS && run->n_units > MAX_UNITS) ||
            rule_bounds(run, (enum rule)rule, trial, &refusal) ||
            !keeps_atoms(run, trial))
            continue;
        double makespan = pp_split_step_time(&run->step, trial);
        if (makespan < shortest) {
            shortest = makespan;
            memcpy(bounds, trial, (n + 1) * sizeof *bounds);
        }
    }
}

/* Makes the costliest rank of a part as cheap as possible: of n units from
 * `unit` on, for n_stages stages from `stage` on. */
static void balance_part(struct pp_split_run *run,
                         const struct pp_split_part *x, size_t stage,
                         size_t unit, size_t *bounds)
{
    const struct pp_graph *g = &run->graph;
    const struct pp_split_atoms *a = &run->atoms;
    size_t n = x->n_stages, first = 0, end;
    int *rank = pp_arena_alloc(&run->arena, n, sizeof *rank);
    double *costs = pp_arena_alloc(&run->arena, a->n, sizeof *costs);
    /* With two copies, ranks r and n - 1 - r have the same load: they swap
     * their stages between the copies. */
    bool both = run->request->placement == PP_PLACEMENT_BOTH_WAYS;
    int n_ranks = 0;
    for (size_t s = 0; s < n; s++) {
        rank[s] = both && s >= n / 2
                      ? (int)(n - 1 - s)
                      : g->stages[stage + s].row - g->stages[stage].row;
        n_ranks = rank[s] >= n_ranks ? rank[s] + 1 : n_ranks;
    }
    while (a->first[first] < unit)
        first++;
    for (end = first; a->first[end] < unit + x->n_units; end++)
        for (size_t i = a->first[end]; i < a->first[end + 1]; i++)
            costs[end - first] += run->costs[i];
    if (run->request->fit_only) /* then a good start is not worth a search */
        n_ranks = (int)n;
    pp_split_balanced_ranks(costs, end - first, n, rank, (size_t)n_ranks,
                            bounds + stage);
    for (size_t s = stage; s <= stage + n; s++)
        bounds[s] = a->first[first + bounds[s]];
}

void pp_split_run_balance(struct pp_split_run *run, size_t *bounds)
{
    size_t stage = 0, unit = 0;
    run->step.n_fixed = 0;
    for (size_t k = 0; k < run->n_parts; k++) {
        const struct pp_split_part *x = &run->parts[k];
        balance_part(run, x, stage, unit, bounds);
        stage += x->n_stages;
        unit += x->n_units;
        if (k + 1 == run->n_parts)
            break;
        /* Every later split keeps the boundaries between parts. */
        run->step.fixed[k].stage = stage;
        run->step.fixed[k].unit = unit;
        run->step.n_fixed = k + 1;
    }
    if (run->n_parts == 1 && run->shortest)
        start_at_rule(run, bounds);
    pp_split_run_improve(run, bounds);
}
