/* SPDX-License-Identifier: MIT */
/* split_step - the order of the search: climbs from the start, a search of all
 * partitions, then a bound and climbs from a partition that is near to it. */
#include "split/split_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "split/split_climb.h"

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

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the number of cuts to generate. */
static size_t n_generated(const struct pp_makespan *m)
{
    const struct pp_graph *g = m->graph;
    size_t width = PP_N_TIMES * (size_t)g->n_slices;
    size_t cells = (size_t)g->n_stages * (width + 1);
    return smaller(3 * (size_t)g->n_rows + MEANS, MAX_GENERATED_CELLS / cells);
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
 * function does, but its buffers as they are planned do not. Sets *changed if
 * there is such a rank. */
static int lower_limits(struct step_search *z,
                        double (*sum)(const struct step_search *, int),
                        bool *changed, struct pp_err *err)
{
    const struct pp_split_step *p = z->climb.cuts.problem;
    *changed = false;
    for (int r = 0; p->need && r < p->memory->graph->n_rows; r++) {
        double bytes;
        if (pp_cuts_need(&z->climb.cuts, z->trial, r, &bytes, err))
            return -1;
        if (bytes > p->limit[r]) {
            z->limit[r] = sum(z, r) - (bytes - p->limit[r]);
            *changed = true;
        }
    }
    return 0;
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

/* Moves units from rank to rank until the partition fits. */
static int move_to_fit(struct step_search *z, bool *fits, struct pp_err *err)
{
    size_t bytes = (z->climb.cuts.n_stages + 1) * sizeof *z->trial;
    bool changed = true;
    reset_limits(z);
    for (int i = 0; i < MAX_LOWERED && changed && !*fits; i++) {
        reduce_excess(z);
        memcpy(z->trial, z->bounds, bytes);
        if (!pp_cuts_may_fit(&z->climb.cuts, z->trial))
            return 0;
        if (pp_cuts_fits(&z->climb.cuts, z->trial, fits, err) ||
            (!*fits && lower_limits(z, trial_need, &changed, err)))
            return -1;
    }
    return 0;
}

/* Looks for a partition that fits in tables of what may fit. Sets *none if
 * nothing may fit. */
static int find_fit(struct step_search *z, bool *fits, bool *none,
                    struct pp_err *err)
{
    struct pp_split_step p = *z->climb.cuts.problem;
    enum pp_feasibility answer;
    bool changed = true;
    p.limit = z->limit;
    reset_limits(z);
    for (int i = 0; i < MAX_LOWERED && changed && !*fits; i++) {
        if (pp_split_feasible(&p, z->trial, &answer, err))
            return -1;
        *none = i == 0 && answer == PP_FEASIBLE_NONE;
        if (answer != PP_FEASIBLE_FOUND)
            return 0;
        if (pp_cuts_fits(&z->climb.cuts, z->trial, fits, err) ||
            (!*fits && lower_limits(z, trial_small, &changed, err)))
            return -1;
    }
    if (*fits)
        memcpy(z->bounds, z->trial,
               (z->climb.cuts.n_stages + 1) * sizeof *z->bounds);
    return 0;
}

/* Changes the partition to one that fits. Sets *none if there is none. Without
 * an answer *fits and *none are false. */
static int make_fit(struct step_search *z, bool *fits, bool *none,
                    struct pp_err *err)
{
    if (pp_cuts_fits(&z->climb.cuts, z->bounds, fits, err))
        return -1;
    if (*fits || !z->climb.cuts.problem->memory)
        return 0;
    if (move_to_fit(z, fits, err))
        return -1;
    return *fits ? 0 : find_fit(z, fits, none, err);
}

/* --- the search --- */

/* Finds a bound, then climbs from the partition that the bound is near to. */
static int find_makespan_bound(struct step_search *z, double *bound,
                               struct pp_err *err)
{
    struct pp_climb *climb = &z->climb;
    struct pp_cuts *x = &climb->cuts;
    *bound = 0;
    if (isinf(climb->makespan) || x->problem->brief)
        return 0;
    x->most += n_generated(x->problem->makespan);
    size_t steps = smaller(MAX_STEPS, MAX_STEP_PIECES /
                                          (x->problem->makespan->n_pieces + 1));
    return pp_cuts_generate(x, climb->best, steps, z->start, err) ||
                   pp_cuts_bound(x, climb->makespan, bound, err) ||
                   pp_climb_frontier(climb, z->start, PP_CLIMB_WORK / 4, err)
               ? -1
               : 0;
}

/* Returns the work of climbs from the first partition. */
static size_t climb_work(const struct pp_split_step *p)
{
    return p->brief ? PP_CLIMB_WORK / BRIEF_SHARE : PP_CLIMB_WORK;
}

/* Climbs from bounds and near them. Sets *none if nothing may fit. */
static int climb_first(struct step_search *z, bool *none, struct pp_err *err)
{
    struct pp_climb *climb = &z->climb;
    const struct pp_split_step *p = climb->cuts.problem;
    bool fits = false;
    if (!p->fit_only && pp_climb_frontier(climb, z->bounds, climb_work(p), err))
        return -1;
    if (isinf(climb->makespan)) {
        if (make_fit(z, &fits, none, err))
            return -1;
        return fits ? pp_climb_from(climb, z->bounds, climb_work(p), err) : 0;
    }
    return p->memory ? pp_climb_from(climb, climb->best, climb_work(p) / 8, err)
                     : 0;
}

/* Searches all partitions, and climbs from what it finds if nothing fitted. */
static int search_partitions(struct step_search *z, bool *whole,
                             struct pp_err *err)
{
    struct pp_climb *climb = &z->climb;
    const struct pp_split_step *p = climb->cuts.problem;
    bool fitted = isfinite(climb->makespan);
    if (pp_cuts_search(&climb->cuts, climb->best, &climb->makespan, whole, err))
        return -1;
    if (*whole || fitted || isinf(climb->makespan))
        return 0;
    return pp_climb_from(climb, climb->best, climb_work(p), err);
}

static int run(struct step_search *z, struct pp_split_found *found,
               struct pp_err *err)
{
    struct pp_climb *climb = &z->climb;
    struct pp_cuts *x = &climb->cuts;
    if (climb_first(z, &found->proved, err))
        return -1;
    bool enough = x->problem->fit_only && isfinite(climb->makespan);
    if (!found->proved && !enough && search_partitions(z, &found->proved, err))
        return -1;
    found->bound = climb->makespan;
    if (!found->proved && !enough && find_makespan_bound(z, &found->bound, err))
        return -1;
    if (isfinite(climb->makespan))
        memcpy(z->bounds, climb->best, (x->n_stages + 1) * sizeof *z->bounds);
    found->makespan = climb->makespan;
    found->bound = fmin(found->bound, found->makespan);
    found->n_simulated = x->n_pieces / x->problem->makespan->n_pieces;
    return 0;
}

static int allocate_search(struct step_search *z, struct pp_err *err)
{
    size_t n = z->climb.cuts.n_stages + 1;
    z->trial = calloc(n, sizeof *z->trial);
    z->start = calloc(n, sizeof *z->start);
    z->limit = calloc((size_t)z->climb.cuts.problem->makespan->graph->n_rows,
                      sizeof *z->limit);
    return z->trial && z->start && z->limit
               ? 0
               : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

int pp_split_step(const struct pp_split_step *p, size_t *bounds,
                  struct pp_split_found *found, struct pp_err *err)
{
    struct step_search z = {.bounds = bounds};
    int rc = -1;
    *found = (struct pp_split_found){0};
    if (!pp_climb_init(&z.climb, p, n_generated(p->makespan), err) &&
        !allocate_search(&z, err))
        rc = run(&z, found, err);
    free(z.trial);
    free(z.start);
    free(z.limit);
    pp_climb_finish(&z.climb);
    return rc;
}

int pp_split_step_time(const struct pp_split_step *p, const size_t *bounds,
                       double *makespan, struct pp_err *err)
{
    struct pp_cuts x = {0};
    if (pp_cuts_init(&x, p, 0, err))
        return -1;
    *makespan = pp_cuts_time(&x, bounds);
    pp_cuts_finish(&x);
    return 0;
}
