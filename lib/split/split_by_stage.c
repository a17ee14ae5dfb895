/* SPDX-License-Identifier: MIT */
/* Finds the split and the modes of its stages in turns. */
#include <math.h>
#include <string.h>

#include "split/split_plan.h"

/* Turns from one start. */
enum { MAX_TURNS = 4 };

/* The present split, and the best one so far with its modes. */
struct turns {
    struct pp_split_run *run;
    size_t *bounds, *before, *best;
    enum pp_recompute *trial, *best_modes; /* per stage */
    enum pp_recompute *unit_modes;         /* scratch, per unit */
    double measure; /* the best's step time, or its cost */
    bool fits, any;
};

/* --- one split --- */

static int set_stage_modes(struct turns *x, const enum pp_recompute *modes,
                           struct pp_err *err)
{
    for (size_t s = 0; s < x->run->n_stages; s++)
        for (size_t i = x->bounds[s]; i < x->bounds[s + 1]; i++)
            x->unit_modes[i] = modes[s];
    return pp_split_run_set_modes(x->run, x->unit_modes, err);
}

static int set_one_mode(struct turns *x, enum pp_recompute mode,
                        struct pp_err *err)
{
    for (size_t i = 0; i < x->run->n_units; i++)
        x->unit_modes[i] = mode;
    return pp_split_run_set_modes(x->run, x->unit_modes, err);
}

static int modes_fit(void *ctx, const enum pp_recompute *modes, int rank,
                     bool *yes, struct pp_err *err)
{
    struct turns *x = ctx;
    return set_stage_modes(x, modes, err)
               ? -1
               : pp_split_run_fits(x->run, x->bounds, rank, yes, err);
}

static int step_time(void *ctx, const enum pp_recompute *modes, double *time,
                     struct pp_err *err)
{
    struct turns *x = ctx;
    return set_stage_modes(x, modes, err)
               ? -1
               : pp_split_step_time(&x->run->step, x->bounds, time, err);
}

/* Returns how many modes there are: slices exclude full recomputation. */
static size_t n_modes(const struct pp_split_run *run)
{
    return run->graph.n_slices > 1 ? PP_RECOMPUTE_FULL : PP_N_RECOMPUTES;
}

/* Sets trial to as little recomputation as fits on bounds. */
static int choose_modes(struct turns *x, struct pp_recompute_found *found,
                        struct pp_err *err)
{
    const struct pp_split_recompute p = {&x->run->graph, n_modes(x->run), x,
                                         modes_fit, step_time};
    if (pp_split_recompute(&p, x->trial, found, err))
        return -1;
    return set_stage_modes(x, x->trial, err);
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
static int measure_split(struct turns *x, double *value, bool *fits,
                         struct pp_err *err)
{
    struct pp_split_run *run = x->run;
    *fits = true;
    if (set_stage_modes(x, x->trial, err))
        return -1;
    for (int r = 0;
         *fits && run->memory_bytes && run->simulated && r < run->graph.n_rows;
         r++)
        if (pp_split_run_fits(run, x->bounds, r, fits, err))
            return -1;
    *value = costliest_rank(x);
    return run->shortest ? pp_split_step_time(&run->step, x->bounds, value, err)
                         : 0;
}

/* --- turns --- */

/* Keeps bounds if they are better than the best. */
static int keep_better(struct turns *x, struct pp_err *err)
{
    size_t n = x->run->n_stages;
    struct pp_recompute_found found;
    double value;
    bool fits;
    if (x->run->request->recompute_auto) {
        if (choose_modes(x, &found, err))
            return -1;
        value = found.makespan;
        fits = found.fits;
    } else if (measure_split(x, &value, &fits, err)) {
        return -1;
    }
    /* If nothing fits, keep the last one: it is the nearest to fitting. */
    if (x->any && (fits < x->fits || (fits && x->fits && value >= x->measure)))
        return 0;
    x->any = true;
    x->fits = fits;
    x->measure = value;
    memcpy(x->best, x->bounds, (n + 1) * sizeof *x->best);
    memcpy(x->best_modes, x->trial, n * sizeof *x->best_modes);
    return 0;
}

/* Returns true if the caller needs no better split. */
static bool is_enough(const struct turns *x)
{
    return x->run->request->fit_only && x->any && x->fits;
}

/* Takes turns, from the modes that units have. */
static int take_turns(struct turns *x, struct pp_err *err)
{
    size_t bytes = (x->run->n_stages + 1) * sizeof *x->bounds;
    int most = x->run->request->brief ? 1 : MAX_TURNS;
    for (int i = 0; i < most && !is_enough(x); i++) {
        memcpy(x->before, x->bounds, bytes);
        if (pp_split_run_balance(x->run, x->bounds, err))
            return -1;
        if (!memcmp(x->before, x->bounds, bytes))
            return 0;
        if (keep_better(x, err))
            return -1;
    }
    return 0;
}

/* Takes turns, from a split for units that all have the same mode. */
static int turn_from(struct turns *x, enum pp_recompute mode,
                     struct pp_err *err)
{
    return set_one_mode(x, mode, err) ||
                   pp_split_run_balance(x->run, x->bounds, err) ||
                   keep_better(x, err) || take_turns(x, err)
               ? -1
               : 0;
}

/* Sets a bound for all splits: the step without a limit and without
 * recomputation. */
static int bound_step(struct turns *x, double *bound, struct pp_err *err)
{
    struct pp_split_run *run = x->run;
    size_t memory = run->memory_bytes;
    run->memory_bytes = 0;
    int rc = set_one_mode(x, PP_RECOMPUTE_NONE, err) ||
                     pp_split_run_balance(run, x->bounds, err)
                 ? -1
                 : 0;
    run->memory_bytes = memory;
    *bound = run->found.bound;
    return rc ? -1 : keep_better(x, err);
}

static int search_turns(struct turns *x, struct pp_err *err)
{
    struct pp_split_run *run = x->run;
    const struct pp_split_request *q = run->request;
    double bound = 0;
    int last = q->recompute_auto ? (int)n_modes(run) - 1 : PP_RECOMPUTE_NONE;
    if (run->shortest && !q->fit_only && bound_step(x, &bound, err))
        return -1;
    /* In haste the split without a limit is the only start, unless no modes of
     * its stages fit. */
    bool started = run->shortest && q->brief && q->recompute_auto && x->fits;
    if (started && take_turns(x, err))
        return -1;
    for (int mode = PP_RECOMPUTE_NONE;
         mode <= last && !started && !is_enough(x); mode++)
        if (turn_from(x, (enum pp_recompute)mode, err))
            return -1;
    memcpy(x->bounds, x->best, (run->n_stages + 1) * sizeof *x->bounds);
    if (set_stage_modes(x, x->best_modes, err))
        return -1;
    if (run->shortest) {
        run->found.makespan = x->measure;
        run->found.bound = bound;
        run->found.proved = x->measure <= bound;
    }
    return 0;
}

/* Sets the modes of a split to keep. */
static int set_kept(struct turns *x, struct pp_err *err)
{
    const struct pp_split_request *q = x->run->request;
    memcpy(x->bounds, q->bounds, (x->run->n_stages + 1) * sizeof *x->bounds);
    if (set_one_mode(x, PP_RECOMPUTE_NONE, err))
        return -1;
    return q->recompute_auto ? choose_modes(x, &x->run->chosen, err)
                             : set_stage_modes(x, x->trial, err);
}

int pp_split_run_recompute(struct pp_split_run *run, size_t *bounds,
                           struct pp_err *err)
{
    const struct pp_split_request *q = run->request;
    struct turns x = {.run = run, .bounds = bounds};
    size_t n = run->n_stages;
    x.before = pp_arena_alloc(&run->arena, n + 1, sizeof *x.before);
    x.best = pp_arena_alloc(&run->arena, n + 1, sizeof *x.best);
    x.trial = pp_arena_alloc(&run->arena, n, sizeof *x.trial);
    x.best_modes = pp_arena_alloc(&run->arena, n, sizeof *x.best_modes);
    x.unit_modes =
        pp_arena_alloc(&run->arena, run->n_units, sizeof *x.unit_modes);
    if (!x.before || !x.best || !x.trial || !x.best_modes || !x.unit_modes)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (q->stage_modes)
        memcpy(x.trial, q->stage_modes, n * sizeof *x.trial);
    return q->bounds ? set_kept(&x, err) : search_turns(&x, err);
}
