/* SPDX-License-Identifier: MIT */
/* Finds the split and the modes of its stages in turns. */
#include <math.h>
#include <string.h>

#include "split/plan.h"

/* Turns from one start. */
enum { MAX_TURNS = 4 };

/* The present split, and the best one so far with its modes. */
struct turns {
    struct pp_split_run *run;
    size_t *bounds, *before, *best;
    enum pp_recompute *trial, *best_modes; /* per stage */
    int *levels;                           /* scratch, per stage */
    enum pp_recompute *unit_modes;         /* scratch, per unit */
    double measure; /* the best's step time, or its cost */
    bool fits, any;
};

/* --- one split --- */

static void set_stage_modes(struct turns *x, const enum pp_recompute *modes)
{
    for (size_t s = 0; s < x->run->n_stages; s++)
        for (size_t i = x->bounds[s]; i < x->bounds[s + 1]; i++)
            x->unit_modes[i] = modes[s];
    pp_split_run_set_modes(x->run, x->unit_modes);
}

static void set_one_mode(struct turns *x, enum pp_recompute mode)
{
    for (size_t i = 0; i < x->run->n_units; i++)
        x->unit_modes[i] = mode;
    pp_split_run_set_modes(x->run, x->unit_modes);
}

/* Sets trial to the sets of these levels. */
static void set_levels(struct turns *x, const int *levels)
{
    for (size_t s = 0; s < x->run->n_stages; s++)
        x->trial[s] = pp_split_level(x->run->request, (size_t)levels[s]);
    set_stage_modes(x, x->trial);
}

static bool levels_fit(void *ctx, const int *levels, int rank)
{
    struct turns *x = ctx;
    set_levels(x, levels);
    return pp_split_run_fits(x->run, x->bounds, rank);
}

static double step_time(void *ctx, const int *levels)
{
    struct turns *x = ctx;
    set_levels(x, levels);
    return pp_split_step_time(&x->run->step, x->bounds);
}

/* Returns how many levels there are: slices need keys and values. */
static size_t n_levels(const struct pp_split_run *run)
{
    size_t n = 0;
    while (n < PP_N_RECOMPUTES && (run->graph.slices.n < 2 ||
                                   !(pp_recompute_levels[n] & PP_AGAIN_QKV)))
        n++;
    return n;
}

/* Sets trial to as little recomputation as fits on bounds. */
static struct pp_recompute_found choose_modes(struct turns *x)
{
    const struct pp_split_recompute p = {&x->run->graph, n_levels(x->run), x,
                                         levels_fit, step_time};
    const struct pp_recompute_found found = pp_split_recompute(&p, x->levels);
    set_levels(x, x->levels);
    return found;
}

static double costliest_rank(const struct turns *x)
{
    const struct pp_graph *g = &x->run->graph;
    double most = 0;
    for (int r = 0; r < g->n_rows; r++) {
        double sum = 0;
        for (size_t s = 0; s < x->run->n_stages; s++)
            for (size_t i = x->bounds[s]; i < x->bounds[s + 1]; i++)
                if (g->stages[s].row == r)
                    sum += x->run->costs[i];
        most = fmax(most, sum);
    }
    return most;
}

/* Measures bounds with the modes of trial. */
static double measure_split(struct turns *x, bool *fits)
{
    struct pp_split_run *run = x->run;
    *fits = true;
    set_stage_modes(x, x->trial);
    for (int r = 0;
         *fits && run->memory_bytes && run->simulated && r < run->graph.n_rows;
         r++)
        *fits = pp_split_run_fits(run, x->bounds, r);
    return run->shortest ? pp_split_step_time(&run->step, x->bounds)
                         : costliest_rank(x);
}

/* --- turns --- */

/* Keeps bounds if they are better than the best. */
static void keep_better(struct turns *x)
{
    size_t n = x->run->n_stages;
    double value;
    bool fits;
    if (x->run->request->recompute_auto) {
        const struct pp_recompute_found found = choose_modes(x);
        value = found.makespan;
        fits = found.fits;
    } else {
        value = measure_split(x, &fits);
    }
    /* If nothing fits, keep the last one: it is the nearest to fitting. */
    if (x->any && (fits < x->fits || (fits && x->fits && value >= x->measure)))
        return;
    x->any = true;
    x->fits = fits;
    x->measure = value;
    memcpy(x->best, x->bounds, (n + 1) * sizeof *x->best);
    memcpy(x->best_modes, x->trial, n * sizeof *x->best_modes);
}

/* Returns true if the caller needs no better split. */
static bool is_enough(const struct turns *x)
{
    return x->run->request->fit_only && x->any && x->fits;
}

/* Takes turns, from the modes that units have. */
static void take_turns(struct turns *x)
{
    size_t bytes = (x->run->n_stages + 1) * sizeof *x->bounds;
    int most = x->run->request->brief ? 1 : MAX_TURNS;
    for (int i = 0; i < most && !is_enough(x); i++) {
        memcpy(x->before, x->bounds, bytes);
        pp_split_run_balance(x->run, x->bounds);
        if (!memcmp(x->before, x->bounds, bytes))
            return;
        keep_better(x);
    }
}

/* Takes turns, from a split for units that all have the same mode. */
static void turn_from(struct turns *x, enum pp_recompute mode)
{
    set_one_mode(x, mode);
    pp_split_run_balance(x->run, x->bounds);
    keep_better(x);
    take_turns(x);
}

/* Returns a bound for all splits: the step without a limit and without
 * recomputation. */
static double bound_step(struct turns *x)
{
    struct pp_split_run *run = x->run;
    size_t memory = run->memory_bytes;
    run->memory_bytes = 0;
    set_one_mode(x, PP_RECOMPUTE_NONE);
    pp_split_run_balance(run, x->bounds);
    run->memory_bytes = memory;
    double bound = run->found.bound;
    keep_better(x);
    return bound;
}

static void search_turns(struct turns *x)
{
    struct pp_split_run *run = x->run;
    const struct pp_split_request *q = run->request;
    double bound = run->shortest && !q->fit_only ? bound_step(x) : 0;
    size_t last = q->recompute_auto ? n_levels(run) - 1 : 0;
    /* In haste the split without a limit is the only start, unless no modes of
     * its stages fit. */
    bool started = run->shortest && q->brief && q->recompute_auto && x->fits;
    if (started)
        take_turns(x);
    for (size_t k = 0; k <= last && !started && !is_enough(x); k++)
        turn_from(x, pp_split_level(q, k));
    memcpy(x->bounds, x->best, (run->n_stages + 1) * sizeof *x->bounds);
    set_stage_modes(x, x->best_modes);
    if (run->shortest) {
        run->found.makespan = x->measure;
        run->found.bound = bound;
        run->found.proved = x->measure <= bound;
    }
}

/* Sets the modes of a split to keep. */
static void set_kept(struct turns *x)
{
    const struct pp_split_request *q = x->run->request;
    memcpy(x->bounds, q->bounds, (x->run->n_stages + 1) * sizeof *x->bounds);
    set_one_mode(x, PP_RECOMPUTE_NONE);
    if (q->recompute_auto)
        x->run->chosen = choose_modes(x);
    else
        set_stage_modes(x, x->trial);
}

void pp_split_run_recompute(struct pp_split_run *run, size_t *bounds)
{
    const struct pp_split_request *q = run->request;
    struct turns x = {.run = run, .bounds = bounds};
    size_t n = run->n_stages;
    x.before = pp_arena_alloc(&run->arena, n + 1, sizeof *x.before);
    x.best = pp_arena_alloc(&run->arena, n + 1, sizeof *x.best);
    x.trial = pp_arena_alloc(&run->arena, n, sizeof *x.trial);
    x.levels = pp_arena_alloc(&run->arena, n, sizeof *x.levels);
    x.best_modes = pp_arena_alloc(&run->arena, n, sizeof *x.best_modes);
    x.unit_modes =
        pp_arena_alloc(&run->arena, run->n_units, sizeof *x.unit_modes);
    if (q->stage_modes)
        memcpy(x.trial, q->stage_modes, n * sizeof *x.trial);
    if (q->bounds)
        set_kept(&x);
    else
        search_turns(&x);
}
