/* SPDX-License-Identifier: MIT */
/* step - the order of the search: climbs from the start, a search of all
 * partitions, then a bound and climbs from a partition that is near to it. */
#include "split/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "split/climb.h"

/* For the bound: the means of paths that become cuts, and limits of the size of
 * the cuts that are generated, and of the steps that are simulated for them. */
enum {
    MEANS = 64,
    MAX_GENERATED_CELLS = 1 << 22,
    MAX_STEPS = 2000,
    MAX_STEP_PIECES = 36000000
};

/* A brief search climbs with this part of the work. */
enum { BRIEF_SHARE = 4 };

/* Limit of the searches for a partition that fits. */
enum { MAX_LOWERED = 8 };

/* Returns the number of cuts to generate. */
static size_t n_generated(const struct pp_makespan *m)
{
    const struct pp_graph *g = m->graph;
    size_t width = PP_N_TIMES * (size_t)g->slices.n;
    size_t cells = (size_t)g->n_stages * (width + 1);
    return pp_least(3 * (size_t)g->n_rows + MEANS, MAX_GENERATED_CELLS / cells);
}

/* The local search, and what it needs to find a partition that fits. */
struct step_search {
    struct pp_climb climb;
    size_t *bounds; /* the result */
    size_t *trial;  /* scratch */
    size_t *start;  /* where to climb from once more */
    double *limit;  /* per rank: lowered to find a partition that fits */
};

/* --- memory --- */

static double excess(const struct step_search *z, const size_t *bounds,
                     int *rank, double *total)
{
    const struct pp_split_step *p = z->climb.cuts.problem;
    return pp_split_memory_excess(p->memory, bounds, z->limit, rank, total);
}

/* Moves units away from the rank with the largest excess of memory, while that
 * reduces the total excess. */
static void reduce_excess(struct step_search *z)
{
    const struct pp_cuts *x = &z->climb.cuts;
    size_t n = x->n_stages;
    double least, most;
    int rank = 0;
    while ((most = excess(z, z->bounds, &rank, &least)) > 0) {
        struct pp_boundary_move best = {0};
        for (struct pp_boundary_move m = {0}; pp_move_next(x, z->bounds, &m);) {
            double total, largest;
            if (!pp_move_relieves(x, m, rank))
                continue;
            pp_move_apply(n, z->bounds, m, z->trial);
            largest = excess(z, z->trial, NULL, &total);
            if (total < least || (total == least && largest < most)) {
                least = total;
                most = largest;
                best = m;
            }
        }
        if (best.first == 0)
            return;
        pp_move_apply(n, z->bounds, best, z->trial);
        memcpy(z->bounds, z->trial, (n + 1) * sizeof *z->bounds);
    }
}

/* Lowers the limit of each rank that only seems to fit in trial: its sum by the
 * function does, but its buffers as they are planned do not. Returns true if
 * there is such a rank. */
static bool lower_limits(struct step_search *z,
                         double (*sum)(const struct step_search *, int))
{
    const struct pp_split_step *p = z->climb.cuts.problem;
    bool changed = false;
    for (int r = 0; p->need && r < p->memory->graph->n_rows; r++) {
        double over = pp_cuts_need(&z->climb.cuts, z->trial, r) - p->limit[r];
        if (over > 0) {
            z->limit[r] = sum(z, r) - over;
            changed = true;
        }
    }
    return changed;
}

static void reset_limits(struct step_search *z)
{
    const struct pp_split_step *p = z->climb.cuts.problem;
    memcpy(z->limit, p->limit,
           (size_t)p->memory->graph->n_rows * sizeof *z->limit);
}

static double trial_need(const struct step_search *z, int rank)
{
    return pp_split_memory_need(z->climb.cuts.problem->memory, z->trial, rank);
}

static double trial_small(const struct step_search *z, int rank)
{
    return pp_split_memory_small(z->climb.cuts.problem->memory, z->trial, rank);
}

/* Moves units from rank to rank until the partition fits. Returns true if it
 * does. */
static bool move_to_fit(struct step_search *z)
{
    size_t bytes = (z->climb.cuts.n_stages + 1) * sizeof *z->trial;
    reset_limits(z);
    for (int i = 0; i < MAX_LOWERED; i++) {
        reduce_excess(z);
        memcpy(z->trial, z->bounds, bytes);
        if (!pp_cuts_may_fit(&z->climb.cuts, z->trial))
            return false;
        if (pp_cuts_fits(&z->climb.cuts, z->trial))
            return true;
        if (!lower_limits(z, trial_need))
            return false;
    }
    return false;
}

/* Looks for a partition that fits in tables of what may fit. Returns true if it
 * finds one. Sets *none if nothing may fit. */
static bool find_fit(struct step_search *z, bool *none)
{
    struct pp_split_step p = *z->climb.cuts.problem;
    p.limit = z->limit;
    reset_limits(z);
    for (int i = 0; i < MAX_LOWERED; i++) {
        enum pp_feasibility answer = pp_split_feasible(&p, z->trial);
        *none = i == 0 && answer == PP_FEASIBLE_NONE;
        if (answer != PP_FEASIBLE_FOUND)
            return false;
        if (pp_cuts_fits(&z->climb.cuts, z->trial)) {
            memcpy(z->bounds, z->trial,
                   (z->climb.cuts.n_stages + 1) * sizeof *z->bounds);
            return true;
        }
        if (!lower_limits(z, trial_small))
            return false;
    }
    return false;
}

/* Changes the partition to one that fits. Sets *none if there is none. Without
 * an answer it returns false and leaves *none. */
static bool make_fit(struct step_search *z, bool *none)
{
    if (pp_cuts_fits(&z->climb.cuts, z->bounds))
        return true;
    return z->climb.cuts.problem->memory &&
           (move_to_fit(z) || find_fit(z, none));
}

/* --- the search --- */

/* Returns a bound, and climbs from the partition that the bound is near to. */
static double find_makespan_bound(struct step_search *z)
{
    struct pp_climb *climb = &z->climb;
    struct pp_cuts *x = &climb->cuts;
    if (isinf(climb->makespan) || x->problem->brief)
        return 0;
    x->most += n_generated(x->problem->makespan);
    size_t steps = pp_least(
        MAX_STEPS, MAX_STEP_PIECES / (x->problem->makespan->n_pieces + 1));
    pp_cuts_generate(x, climb->best, steps, z->start);
    double bound = pp_cuts_bound(x, climb->makespan);
    pp_climb_frontier(climb, z->start, PP_CLIMB_WORK / 4);
    return bound;
}

/* Returns the work of climbs from the first partition. */
static size_t climb_work(const struct pp_split_step *p)
{
    return p->brief ? PP_CLIMB_WORK / BRIEF_SHARE : PP_CLIMB_WORK;
}

/* Climbs from bounds and near them. Sets *none if nothing may fit. */
static void climb_first(struct step_search *z, bool *none)
{
    struct pp_climb *climb = &z->climb;
    const struct pp_split_step *p = climb->cuts.problem;
    if (!p->fit_only)
        pp_climb_frontier(climb, z->bounds, climb_work(p));
    if (isfinite(climb->makespan) && p->memory)
        pp_climb_from(climb, climb->best, climb_work(p) / 8);
    else if (isinf(climb->makespan) && make_fit(z, none))
        pp_climb_from(climb, z->bounds, climb_work(p));
}

/* Searches all partitions, and climbs from what it finds if nothing fitted.
 * Returns true if the search completed. */
static bool search_partitions(struct step_search *z)
{
    struct pp_climb *climb = &z->climb;
    bool fitted = isfinite(climb->makespan);
    bool whole = pp_cuts_search(&climb->cuts, climb->best, &climb->makespan);
    if (!whole && !fitted && isfinite(climb->makespan))
        pp_climb_from(climb, climb->best, climb_work(climb->cuts.problem));
    return whole;
}

static struct pp_split_found run(struct step_search *z)
{
    struct pp_climb *climb = &z->climb;
    struct pp_cuts *x = &climb->cuts;
    struct pp_split_found found = {0};
    climb_first(z, &found.proved);
    bool enough = x->problem->fit_only && isfinite(climb->makespan);
    if (!found.proved && !enough)
        found.proved = search_partitions(z);
    found.bound =
        found.proved || enough ? climb->makespan : find_makespan_bound(z);
    if (isfinite(climb->makespan))
        memcpy(z->bounds, climb->best, (x->n_stages + 1) * sizeof *z->bounds);
    found.makespan = climb->makespan;
    found.bound = fmin(found.bound, found.makespan);
    found.n_simulated = x->n_pieces / x->problem->makespan->n_pieces;
    return found;
}

struct pp_split_found pp_split_step(const struct pp_split_step *p,
                                    size_t *bounds)
{
    struct step_search z = {.bounds = bounds};
    pp_climb_init(&z.climb, p, n_generated(p->makespan));
    size_t n = z.climb.cuts.n_stages + 1;
    z.trial = pp_calloc(n, sizeof *z.trial);
    z.start = pp_calloc(n, sizeof *z.start);
    z.limit = pp_calloc((size_t)p->makespan->graph->n_rows, sizeof *z.limit);
    const struct pp_split_found found = run(&z);
    free(z.trial);
    free(z.start);
    free(z.limit);
    pp_climb_finish(&z.climb);
    return found;
}

double pp_split_step_time(const struct pp_split_step *p, const size_t *bounds)
{
    struct pp_cuts x;
    pp_cuts_init(&x, p, 0);
    double makespan = pp_cuts_time(&x, bounds);
    pp_cuts_finish(&x);
    return makespan;
}
