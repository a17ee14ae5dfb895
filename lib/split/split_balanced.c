/* SPDX-License-Identifier: MIT */
/* The balanced split has the shortest step within the limit of memory. If no
 * step is asked for, its costliest rank is as cheap as possible. Units that
 * must stay on one stage are an atom: no boundary lies within one. */
#include <math.h>
#include <string.h>

#include "model/vision.h"
#include "split/split.h"
#include "split/split_colossalai.h"
#include "split/split_deepspeed.h"
#include "split/split_plan.h"

/* Atom k is units first[k] .. first[k + 1] - 1. */
struct atoms {
    size_t n, *first;
};

/* --- atoms --- */

/* Returns true if a layout of Megatron-LM cannot put units i - 1 and i on
 * different stages.
 *
 * The units that a layout's E stands for come before the layers, and those that
 * its L stands for come after them. With multi-token prediction the norm goes
 * with the last layer, and all m are on one stage before L: the last chunk of a
 * rank other than the first. With one or two ranks only the last stage is left
 * for them. */
static bool inseparable(const struct pp_split_request *q, size_t i)
{
    const struct pp_model *m = q->shard.model;
    size_t first = pp_model_n_first(m), norm = first + m->n_layers;
    bool shares = !q->encoder_ranks || (q->encoders && !q->encoders[1].dp);
    if (m->encoders[1].kind != PP_VISION_NONE && shares &&
        i > pp_vision_first(m, 1) && i < first)
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

static int make_atoms(struct pp_split_run *run, struct atoms *a,
                      struct pp_err *err)
{
    const struct pp_model *m = run->request->shard.model;
    a->first = pp_arena_alloc(&run->arena, run->n_units + 1, sizeof *a->first);
    a->n = 0;
    if (!a->first)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
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
static bool keeps_atoms(const struct pp_split_run *run, const struct atoms *a,
                        const size_t *bounds)
{
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
    const struct atoms *atoms;
};

/* Merges the units i .. end - 1 into atom k. */
static void merge_atom(const struct pp_split_run *run, struct merged *x,
                       size_t k, size_t i, size_t end)
{
    size_t slices = (size_t)run->graph.n_slices;
    x->messages[k] = run->step.messages[end - 1];
    x->message_bytes[k] = run->message_bytes[end - 1];
    for (; i < end; i++) {
        for (size_t q = 0; q < slices; q++)
            for (int t = 0; t < PP_N_TIMES; t++)
                x->times[k * slices + q][t] += run->times[i * slices + q][t];
        for (int b = 0; b < PP_N_UNIT_BYTES; b++)
            x->bytes[k][b] = b == PP_UNIT_WORKSPACE
                                 ? fmax(x->bytes[k][b], run->bytes[i][b])
                                 : x->bytes[k][b] + run->bytes[i][b];
    }
}

static int merge_atoms(struct pp_split_run *run, const struct atoms *a,
                       struct merged *x, struct pp_split_step *step,
                       struct pp_err *err)
{
    struct pp_arena *arena = &run->arena;
    size_t slices = (size_t)run->graph.n_slices;
    x->times = pp_arena_alloc(arena, a->n * slices, sizeof *x->times);
    x->messages = pp_arena_alloc(arena, a->n, sizeof *x->messages);
    x->message_bytes = pp_arena_alloc(arena, a->n, sizeof *x->message_bytes);
    x->unit_bounds =
        pp_arena_alloc(arena, run->n_stages + 1, sizeof *x->unit_bounds);
    x->bytes = pp_arena_alloc(arena, a->n, sizeof *x->bytes);
    x->bounds = pp_arena_alloc(arena, run->n_stages + 1, sizeof *x->bounds);
    if (!x->unit_bounds || !x->message_bytes || !x->times || !x->messages ||
        !x->bytes || !x->bounds)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t k = 0; k < a->n; k++)
        merge_atom(run, x, k, a->first[k], a->first[k + 1]);
    step->times = (const double(*)[PP_N_TIMES])x->times;
    step->messages = x->messages;
    step->n_units = a->n;
    if (run->memory_bytes == 0)
        return 0;
    if (a->n == run->n_units) { /* every atom is a unit */
        step->memory = &run->memory;
        return 0;
    }
    step->memory = &x->memory;
    return pp_split_memory_init(&x->memory, &run->lowered,
                                (const double(*)[PP_N_UNIT_BYTES])x->bytes,
                                a->n, x->message_bytes, err);
}

/* Splits atoms, and turns the answer into bounds of units. */
static int split_atoms(struct pp_split_run *run, const struct atoms *a,
                       const struct pp_split_step *step, struct merged *x,
                       size_t *bounds, struct pp_err *err)
{
    size_t n = run->n_stages, k = 0;
    for (size_t s = 0; s <= n; s++) {
        while (a->first[k] < bounds[s])
            k++;
        x->bounds[s] = k;
    }
    if (pp_split_step(step, x->bounds, &run->found, err))
        return -1;
    for (size_t s = 0; s <= n; s++)
        bounds[s] = a->first[x->bounds[s]];
    return 0;
}

/* Sets *bytes to what a rank needs for bounds of atoms. */
static int exact_need(void *ctx, const size_t *bounds, int rank, double *bytes,
                      struct pp_err *err)
{
    struct merged *x = ctx;
    for (size_t s = 0; s <= x->run->n_stages; s++)
        x->unit_bounds[s] = x->atoms->first[bounds[s]];
    if (pp_split_run_need(x->run, x->unit_bounds, rank, bytes, err))
        return -1;
    *bytes += pp_split_run_tables(x->run, x->unit_bounds, rank) -
              x->run->tables[rank];
    return 0;
}

/* Sets *done if bounds may stay: no step is asked for, and they fit. */
static int may_stay(struct pp_split_run *run, const size_t *bounds, bool *done,
                    struct pp_err *err)
{
    *done = !run->shortest;
    for (int r = 0; *done && run->memory_bytes && r < run->graph.n_rows; r++)
        if (pp_split_run_fits(run, bounds, r, done, err))
            return -1;
    return 0;
}

/* Improves bounds until the step is as short as was found, within the limit if
 * that is possible. */
static int shorten(struct pp_split_run *run, const struct atoms *a,
                   size_t *bounds, struct pp_err *err)
{
    struct pp_split_step step = run->step;
    struct merged x = {.run = run, .atoms = a};
    bool done = !run->simulated;
    step.fit_only = run->request->fit_only;
    step.need = exact_need;
    step.ctx = &x;
    for (int r = 0; !done && r < run->graph.n_rows; r++)
        run->limit[r] = (double)run->memory_bytes - run->tables[r];
    if (!done && may_stay(run, bounds, &done, err))
        return -1;
    if (done)
        return 0;
    int rc = merge_atoms(run, a, &x, &step, err) ||
                     split_atoms(run, a, &step, &x, bounds, err)
                 ? -1
                 : 0;
    pp_split_memory_finish(&x.memory);
    return rc;
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
    if (!weights)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
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
    if (!counts)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
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
static int start_at_rule(struct pp_split_run *run, const struct atoms *a,
                         size_t *bounds, struct pp_err *err)
{
    /* The time of DeepSpeed's rule grows with the square of the units. */
    enum { MAX_UNITS = 256 };
    size_t n = run->n_stages;
    size_t *trial = pp_arena_alloc(&run->arena, n + 1, sizeof *trial);
    double shortest, makespan;
    if (!trial)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (pp_split_step_time(&run->step, bounds, &shortest, err))
        return -1;
    for (int rule = 0; rule < N_RULES; rule++) {
        struct pp_err refusal = {0}; /* no failure: other rules remain */
        if ((rule == RULE_PARAMETERS && run->n_units > MAX_UNITS) ||
            rule_bounds(run, (enum rule)rule, trial, &refusal) ||
            !keeps_atoms(run, a, trial))
            continue;
        if (pp_split_step_time(&run->step, trial, &makespan, err))
            return -1;
        if (makespan < shortest) {
            shortest = makespan;
            memcpy(bounds, trial, (n + 1) * sizeof *bounds);
        }
    }
    return 0;
}

/* Makes the costliest rank of each part as cheap as possible. Every later split
 * keeps the boundaries between them. */
static int split_parts(struct pp_split_run *run, size_t *bounds,
                       struct pp_err *err)
{
    size_t stage = 0, unit = 0;
    for (size_t k = 0; k < run->n_parts; k++) {
        const struct pp_split_part *x = &run->parts[k];
        if (pp_split_balanced(run->costs + unit, x->n_units, x->n_stages,
                              bounds + stage, err))
            return -1;
        for (size_t s = 0; s <= x->n_stages; s++)
            bounds[stage + s] += unit;
        stage += x->n_stages;
        unit += x->n_units;
        if (k + 1 < run->n_parts) {
            run->step.fixed[k].stage = stage;
            run->step.fixed[k].unit = unit;
            run->step.n_fixed = k + 1;
        }
    }
    return 0;
}

/* Makes the costliest rank as cheap as possible. */
static int balance_ranks(struct pp_split_run *run, const struct atoms *a,
                         size_t *bounds, struct pp_err *err)
{
    const struct pp_graph *g = &run->graph;
    size_t n = run->n_stages;
    int *rank = pp_arena_alloc(&run->arena, n, sizeof *rank);
    double *costs = pp_arena_alloc(&run->arena, a->n, sizeof *costs);
    if (!rank || !costs)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    /* With two copies, ranks r and n - 1 - r have the same load: they swap
     * their stages between the copies. */
    bool both = run->request->placement == PP_PLACEMENT_BOTH_WAYS;
    for (size_t s = 0; s < n; s++)
        rank[s] = both && s >= n / 2 ? (int)(n - 1 - s) : g->stages[s].row;
    for (size_t k = 0; k < a->n; k++)
        for (size_t i = a->first[k]; i < a->first[k + 1]; i++)
            costs[k] += run->costs[i];
    size_t n_ranks = (size_t)g->n_rows / (both ? 2 : 1);
    if (run->request->fit_only) /* then a good start is not worth a search */
        n_ranks = n;
    if (pp_split_balanced_ranks(costs, a->n, n, rank, n_ranks, bounds, err))
        return -1;
    for (size_t s = 0; s <= n; s++)
        bounds[s] = a->first[bounds[s]];
    return 0;
}

int pp_split_run_balance(struct pp_split_run *run, size_t *bounds,
                         struct pp_err *err)
{
    struct atoms a;
    if (pp_split_check_stages(run->request->shard.model, run->n_stages, err) ||
        make_atoms(run, &a, err))
        return -1;
    if (run->n_parts > 1) {
        if (split_parts(run, bounds, err))
            return -1;
    } else if (balance_ranks(run, &a, bounds, err) ||
               (run->shortest && start_at_rule(run, &a, bounds, err))) {
        return -1;
    }
    return shorten(run, &a, bounds, err);
}

int pp_split_run_improve(struct pp_split_run *run, size_t *bounds,
                         struct pp_err *err)
{
    struct atoms a;
    return make_atoms(run, &a, err) ? -1 : shorten(run, &a, bounds, err);
}
