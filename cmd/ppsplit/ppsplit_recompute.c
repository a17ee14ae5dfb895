/* SPDX-License-Identifier: MIT */
/* --recompute: what each stage makes again, by a list or as little as fits.
 *
 * What a unit takes and keeps then depends on the stage it is in, so splitting
 * and choosing take turns: a split for what units make again at present, then
 * what stages make again on that split. The best of what is met is kept. */
#include "split/split_recompute.h"

#include <getopt.h>
#include <math.h>
#include <string.h>

#include "model/cost.h"
#include "ppsplit.h"

/* Turns from one start. */
enum { MAX_TURNS = 4 };

int split_take_recompute(struct split_job *j)
{
    char *text = pp_arena_strdup(&j->arena, optarg);
    if (!text)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    j->recompute = PP_RECOMPUTE_NONE;
    j->recompute_auto = !strcmp(optarg, "auto");
    j->recompute_list = strchr(optarg, ',') ? optarg : NULL;
    for (char *item; !j->recompute_auto && (item = strsep(&text, ","));) {
        int mode = tool_word(&j->t, "--recompute", item, pp_recompute_names);
        if (mode < 0)
            return -1;
        if (!j->recompute_list)
            j->recompute = (enum pp_recompute)mode;
    }
    return 0;
}

enum pp_recompute split_stage_mode(const struct split_job *j, int stage)
{
    for (size_t i = split_first(j, stage); i < split_end(j, stage); i++)
        if (pp_model_unit(&j->model, i).kind == PP_UNIT_LAYER)
            return split_recompute(j, i);
    return PP_RECOMPUTE_NONE;
}

/* The best split so far, and what its stages make again. */
struct best {
    struct split_job *j;
    size_t n;                /* stages of one copy */
    size_t *bounds, *before; /* before: of the turn under way */
    enum pp_recompute *modes, *trial;
    double measure; /* a step, or the costliest rank */
    bool fits, any;
};

/* --- one split --- */

/* What units make again, from what their stages do. */
static int set(struct split_job *j, const enum pp_recompute *modes)
{
    for (int s = 0; s < j->graph.n_stages; s++)
        for (size_t i = j->bounds[s]; i < j->bounds[s + 1]; i++)
            j->modes[i] = modes[s];
    return split_set_modes(j);
}

static int rank_fits(void *ctx, const enum pp_recompute *modes, int rank,
                     bool *yes, struct pp_err *err)
{
    (void)err; /* the job's */
    return set(ctx, modes) ? -1 : split_rank_fits(ctx, rank, yes);
}

static int step_time(void *ctx, const enum pp_recompute *modes, double *time,
                     struct pp_err *err)
{
    struct split_job *j = ctx;
    return set(j, modes)
               ? -1
               : pp_split_step_time(&j->run.step, j->bounds, time, err);
}

/* A schedule of slices has no full recomputation. */
static size_t n_modes(const struct split_job *j)
{
    return j->run.graph.n_slices > 1 ? PP_RECOMPUTE_FULL : PP_N_RECOMPUTES;
}

/* As little as fits on the split that there is. */
static int choose(struct split_job *j, enum pp_recompute *modes,
                  struct pp_recompute_found *found)
{
    const struct pp_split_recompute p = {&j->run.graph, n_modes(j), j,
                                         rank_fits, step_time};
    if (pp_split_recompute(&p, modes, found, &j->t.err))
        return -1;
    return set(j, modes);
}

/* --- splits in turns --- */

static double costliest(const struct split_job *j)
{
    double most = 0;
    for (int r = 0; r < j->graph.n_rows; r++) {
        double sum = 0;
        for (int s = 0; s < j->graph.n_stages; s++)
            for (size_t i = j->bounds[s]; i < j->bounds[s + 1]; i++)
                if (j->graph.stages[s].row == r)
                    sum += j->costs[i];
        most = fmax(most, sum);
    }
    return most;
}

/* How good a split is whose stages make again what the list says. */
static int measure(struct best *z, double *value, bool *fits)
{
    struct split_job *j = z->j;
    *fits = true;
    if (set(j, z->trial))
        return -1;
    for (int r = 0;
         *fits && j->memory_bytes && j->run.known && r < j->run.graph.n_rows;
         r++)
        if (split_rank_fits(j, r, fits))
            return -1;
    *value = costliest(j);
    return j->shorten
               ? pp_split_step_time(&j->run.step, j->bounds, value, &j->t.err)
               : 0;
}

/* Keeps the split of j where it is better than the best. */
static int consider(struct best *z)
{
    struct split_job *j = z->j;
    struct pp_recompute_found found;
    double value;
    bool fits;
    if (j->recompute_auto) {
        if (choose(j, z->trial, &found))
            return -1;
        value = found.makespan;
        fits = found.fits;
    } else if (measure(z, &value, &fits)) {
        return -1;
    }
    /* Where nothing fits, the last one is the nearest to it. */
    if (z->any && (fits < z->fits || (fits && z->fits && value >= z->measure)))
        return 0;
    z->any = true;
    z->fits = fits;
    z->measure = value;
    memcpy(z->bounds, j->bounds, (z->n + 1) * sizeof *z->bounds);
    memcpy(z->modes, z->trial, z->n * sizeof *z->modes);
    return 0;
}

static int set_all(struct split_job *j, enum pp_recompute mode)
{
    for (size_t i = 0; i < j->n_units; i++)
        j->modes[i] = mode;
    return split_set_modes(j);
}

/* Whether there is nothing more to ask. */
static bool is_enough(const struct best *z)
{
    return z->j->fit_only && z->any && z->fits;
}

/* From a split for units that all make the same again. */
static int take_turns(struct best *z, enum pp_recompute mode)
{
    struct split_job *j = z->j;
    size_t bytes = (z->n + 1) * sizeof *j->bounds;
    if (set_all(j, mode) || split_units(j) || consider(z))
        return -1;
    for (int i = 0; i < MAX_TURNS && !is_enough(z); i++) {
        memcpy(z->before, j->bounds, bytes);
        if (split_units(j))
            return -1;
        if (!memcmp(z->before, j->bounds, bytes))
            return 0;
        if (consider(z))
            return -1;
    }
    return 0;
}

/* A split without limits, no stage making anything again: no other takes less.
 */
static int find_bound(struct best *z, double *bound)
{
    struct split_job *j = z->j;
    size_t memory = j->memory_bytes;
    j->memory_bytes = 0;
    int rc = set_all(j, PP_RECOMPUTE_NONE) || split_units(j) ? -1 : 0;
    j->memory_bytes = memory;
    *bound = j->run.found.bound;
    return rc ? -1 : consider(z);
}

static int search(struct best *z)
{
    struct split_job *j = z->j;
    struct pp_split_found *found = &j->run.found;
    double bound = 0;
    int last = j->recompute_auto ? (int)n_modes(j) - 1 : PP_RECOMPUTE_NONE;
    if (j->shorten && !j->fit_only && find_bound(z, &bound))
        return -1;
    for (int mode = PP_RECOMPUTE_NONE; mode <= last && !is_enough(z); mode++)
        if (take_turns(z, (enum pp_recompute)mode))
            return -1;
    memcpy(j->bounds, z->bounds, (z->n + 1) * sizeof *j->bounds);
    if (set(j, z->modes))
        return -1;
    if (!j->shorten)
        return 0;
    found->makespan = z->measure;
    found->bound = bound;
    found->proved = z->measure <= bound;
    return 0;
}

/* --- the list --- */

static int read_list(struct split_job *j, enum pp_recompute *modes)
{
    size_t n = 0, n_stages = (size_t)j->graph.n_stages;
    char *text = pp_arena_strdup(&j->arena, j->recompute_list);
    if (!text)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (char *item; (item = strsep(&text, ",")); n++)
        if (n < n_stages)
            (void)pp_recompute_find(item, &modes[n]); /* options were read */
    if (n != n_stages)
        return tool_usage(&j->t, "--recompute: '%s' is for %zu stages, not %zu",
                          j->recompute_list, n, n_stages);
    return 0;
}

/* On the split of a rule, which does not depend on it. */
static int on_rule(struct best *z)
{
    struct split_job *j = z->j;
    struct pp_recompute_found found;
    if (set_all(j, PP_RECOMPUTE_NONE) || split_units(j))
        return -1;
    if (!j->recompute_auto)
        return set(j, z->trial);
    if (choose(j, z->trial, &found))
        return -1;
    if (found.fits)
        tool_say(&j->t, PP_LOG_DETAIL,
                 "recomputation: a step of %g %s, at least %g for this split",
                 found.makespan, j->measured ? "s" : "flop", found.bound);
    return 0;
}

int split_recompute_stages(struct split_job *j)
{
    struct best z = {.j = j, .n = (size_t)j->graph.n_stages};
    if (!split_by_stage(j))
        return split_units(j);
    j->modes = pp_arena_alloc(&j->arena, j->n_units, sizeof *j->modes);
    z.bounds = pp_arena_alloc(&j->arena, z.n + 1, sizeof *z.bounds);
    z.before = pp_arena_alloc(&j->arena, z.n + 1, sizeof *z.before);
    z.modes = pp_arena_alloc(&j->arena, z.n, sizeof *z.modes);
    z.trial = pp_arena_alloc(&j->arena, z.n, sizeof *z.trial);
    if (!j->modes || !z.bounds || !z.before || !z.modes || !z.trial)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    if (j->recompute_list && read_list(j, z.trial))
        return -1;
    return j->method == SPLIT_BALANCED ? search(&z) : on_rule(&z);
}
