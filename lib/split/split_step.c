/* SPDX-License-Identifier: MIT */
/* split_step - the local search. It ends at a partition that no single move
 * improves. A move shifts adjacent boundaries by one unit, which takes one unit
 * from a stage and gives one to any other. */
#include "split/split_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "split/split_cuts.h"

/* Limits of cuts, and of pieces of simulated steps: some tenths of a second. */
enum { MAX_CUTS = 256, MAX_PIECES = 45000000 };

/* For the bound: the means of paths that become cuts, and limits of the size of
 * the cuts that are generated, and of the steps that are simulated for them. */
enum {
    MEANS = 64,
    MAX_GENERATED_CELLS = 1 << 22,
    MAX_STEPS = 2000,
    MAX_STEP_PIECES = 36000000
};

/* A bound this close to the makespan is close enough. */
#define NEAR 0.99

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

struct boundary_move {
    size_t first, last; /* boundaries; first is 0 for no move */
    int by;             /* 1 or -1 */
};

struct climb {
    struct pp_cuts cuts;
    size_t *bounds;  /* the best so far */
    size_t *trial;   /* scratch */
    size_t *start;   /* where to climb from once more */
    size_t *first;   /* the result of the first climb */
    double *cost;    /* per cut: its bound for the best partition */
    double *change;  /* per cut: prefix sums over boundaries of the change of
                        cost if a boundary goes up by one, then down by one */
    size_t *order;   /* cuts by decreasing cost */
    size_t *refused; /* partitions that may fit, but do not */
    size_t n_refused;
    double *limit;   /* per rank: lowered to find a partition that fits */
    double makespan; /* the best partition's */
};

/* Returns the change of a cut's cost if only boundary b moves. */
static double change_of(const struct pp_cuts *x, size_t cut,
                        const size_t *bounds, size_t b, int by)
{
    const double *before = pp_cut_weights(x, cut, b - 1);
    const double *behind = pp_cut_weights(x, cut, b);
    size_t from = bounds[b], to = by > 0 ? from + 1 : from - 1;
    size_t unit = by > 0 ? from : to;
    double moved = pp_cut_sum(x, before, unit, unit + 1) -
                   pp_cut_sum(x, behind, unit, unit + 1);
    double message = x->message[to - 1] - x->message[from - 1];
    return by * moved + before[x->width] * message;
}

/* Fills cost, change and order for the best partition. No legal move shifts a
 * boundary below unit 1, so that change is not computed. */
static void weigh_moves(struct climb *z)
{
    const struct pp_cuts *x = &z->cuts;
    size_t n = x->n_stages;
    for (size_t c = 0; c < x->n; c++) {
        double *up = &z->change[2 * n * c], *down = up + n;
        z->cost[c] = pp_cut_cost(x, c, z->bounds);
        up[0] = down[0] = 0;
        for (size_t b = 1; b < n; b++) {
            up[b] = up[b - 1] + change_of(x, c, z->bounds, b, 1);
            down[b] = down[b - 1];
            if (z->bounds[b] > 1)
                down[b] += change_of(x, c, z->bounds, b, -1);
        }
        size_t at = c;
        for (; at > 0 && z->cost[z->order[at - 1]] < z->cost[c]; at--)
            z->order[at] = z->order[at - 1];
        z->order[at] = c;
    }
}

static bool is_legal_move(const struct climb *z, struct boundary_move m)
{
    size_t loser = m.by > 0 ? m.last : m.first - 1;
    size_t fixed = z->cuts.problem->fixed_stage;
    return z->bounds[loser + 1] - z->bounds[loser] > 1 &&
           (fixed < m.first || fixed > m.last);
}

/* Returns the cuts' lower bound for the partition after a move; infinite if it
 * is not better than least. */
static double move_bound(const struct climb *z, struct boundary_move m,
                         double least)
{
    size_t n = z->cuts.n_stages;
    double most = 0;
    for (size_t i = 0; i < z->cuts.n; i++) {
        size_t c = z->order[i];
        const double *change = &z->change[2 * n * c + (m.by > 0 ? 0 : n)];
        double cost = z->cost[c] + change[m.last] - change[m.first - 1];
        if (!pp_cuts_less(cost, least))
            return INFINITY;
        most = cost > most ? cost : most;
    }
    return most;
}

static void apply(const struct climb *z, struct boundary_move m)
{
    memcpy(z->trial, z->bounds, (z->cuts.n_stages + 1) * sizeof *z->trial);
    for (size_t b = m.first; b <= m.last; b++)
        z->trial[b] = m.by > 0 ? z->trial[b] + 1 : z->trial[b] - 1;
}

/* Returns true if the trial is a partition that was refused. */
static bool is_refused(const struct climb *z)
{
    size_t row = z->cuts.n_stages + 1;
    for (size_t i = 0; i < z->n_refused; i++)
        if (!memcmp(&z->refused[i * row], z->trial, row * sizeof *z->trial))
            return true;
    return false;
}

/* Returns the legal move with the least bound; first is 0 if none can help. */
static struct boundary_move best_move(const struct climb *z)
{
    struct boundary_move best = {0};
    double least = z->makespan;
    for (size_t first = 1; first < z->cuts.n_stages; first++)
        for (size_t last = first; last < z->cuts.n_stages; last++)
            for (int by = -1; by <= 1; by += 2) {
                struct boundary_move m = {first, last, by};
                if (!is_legal_move(z, m))
                    continue;
                double cost = move_bound(z, m, least);
                if (cost >= least)
                    continue;
                apply(z, m);
                if (pp_cuts_may_fit(&z->cuts, z->trial) && !is_refused(z)) {
                    least = cost;
                    best = m;
                }
            }
    return best;
}

/* Every simulation adds a cut that bounds the simulated partition exactly, so
 * no move is simulated twice. If it is better, but does not fit, it is refused
 * from then on. */
static int climb(struct climb *z, struct pp_err *err)
{
    struct pp_cuts *x = &z->cuts;
    size_t bytes = (x->n_stages + 1) * sizeof *z->bounds;
    bool fits;
    while (x->n < x->most && x->n_pieces < MAX_PIECES) {
        weigh_moves(z);
        struct boundary_move m = best_move(z);
        if (m.first == 0)
            return 0;
        apply(z, m);
        double time = pp_cuts_simulate(x, z->trial);
        if (!pp_cuts_less(time, z->makespan))
            continue;
        if (pp_cuts_fits(x, z->trial, &fits, err))
            return -1;
        if (!fits) {
            memcpy(&z->refused[z->n_refused++ * (x->n_stages + 1)], z->trial,
                   bytes);
            continue;
        }
        z->makespan = time;
        memcpy(z->bounds, z->trial, bytes);
    }
    return 0;
}

/* --- memory --- */

static double excess(const struct climb *z, const size_t *bounds, int *rank,
                     double *total)
{
    const struct pp_split_step *p = z->cuts.problem;
    return pp_split_memory_excess(p->memory, bounds, z->limit, rank, total);
}

/* Returns true if the move takes a unit from a stage of the rank. */
static bool relieves(const struct climb *z, struct boundary_move m, int rank)
{
    const struct pp_graph *g = z->cuts.problem->makespan->graph;
    size_t loser = m.by > 0 ? m.last : m.first - 1;
    for (int s = (int)loser; s < g->n_stages; s += (int)z->cuts.n_stages)
        if (g->stages[s].row == rank)
            return true;
    return false;
}

/* Moves units away from the rank with the largest excess of memory, while that
 * reduces the total excess. */
static void reduce_excess(struct climb *z)
{
    size_t n = z->cuts.n_stages;
    double least, most;
    int rank = 0;
    while ((most = excess(z, z->bounds, &rank, &least)) > 0) {
        struct boundary_move best = {0};
        for (size_t first = 1; first < n; first++)
            for (size_t last = first; last < n; last++)
                for (int by = -1; by <= 1; by += 2) {
                    struct boundary_move m = {first, last, by};
                    double total, largest;
                    if (!is_legal_move(z, m) || !relieves(z, m, rank))
                        continue;
                    apply(z, m);
                    largest = excess(z, z->trial, NULL, &total);
                    if (total < least || (total == least && largest < most)) {
                        least = total;
                        most = largest;
                        best = m;
                    }
                }
        if (best.first == 0)
            return;
        apply(z, best);
        memcpy(z->bounds, z->trial, (n + 1) * sizeof *z->bounds);
    }
}

static int allocate_climb(struct climb *z, size_t *bounds, struct pp_err *err)
{
    size_t n = z->cuts.n_stages, most = z->cuts.most, size;
    z->bounds = bounds;
    if (pp_mul(2 * n, most, &size, err))
        return -1;
    z->trial = calloc(n + 1, sizeof *z->trial);
    z->start = calloc(n + 1, sizeof *z->start);
    z->first = calloc(n + 1, sizeof *z->first);
    z->cost = calloc(most, sizeof *z->cost);
    z->change = calloc(size, sizeof *z->change);
    z->order = calloc(most, sizeof *z->order);
    if (pp_mul(n + 1, most, &size, err))
        return -1;
    z->refused = calloc(size, sizeof *z->refused);
    z->limit = calloc((size_t)z->cuts.problem->makespan->graph->n_rows,
                      sizeof *z->limit);
    if (!z->limit || !z->trial || !z->start || !z->first || !z->cost ||
        !z->change || !z->order || !z->refused)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

/* Lowers the limit of each rank that only seems to fit in trial: its sum by the
 * function does, but its buffers as they are planned do not. Sets *changed if
 * there is such a rank. */
static int lower_limits(struct climb *z,
                        double (*sum)(const struct climb *, int), bool *changed,
                        struct pp_err *err)
{
    const struct pp_split_step *p = z->cuts.problem;
    *changed = false;
    for (int r = 0; p->need && r < p->memory->graph->n_rows; r++) {
        double bytes;
        if (pp_cuts_need(&z->cuts, z->trial, r, &bytes, err))
            return -1;
        if (bytes > p->limit[r]) {
            z->limit[r] = sum(z, r) - (bytes - p->limit[r]);
            *changed = true;
        }
    }
    return 0;
}

static void reset_limits(struct climb *z)
{
    const struct pp_split_step *p = z->cuts.problem;
    memcpy(z->limit, p->limit,
           (size_t)p->memory->graph->n_rows * sizeof *z->limit);
}

static double trial_need(const struct climb *z, int rank)
{
    return pp_split_memory_need(z->cuts.problem->memory, z->trial, rank);
}

static double trial_small(const struct climb *z, int rank)
{
    return pp_split_memory_small(z->cuts.problem->memory, z->trial, rank);
}

/* Moves units from rank to rank until the partition fits. */
static int move_to_fit(struct climb *z, bool *fits, struct pp_err *err)
{
    size_t bytes = (z->cuts.n_stages + 1) * sizeof *z->trial;
    bool changed = true;
    reset_limits(z);
    for (int i = 0; i < MAX_LOWERED && changed && !*fits; i++) {
        reduce_excess(z);
        memcpy(z->trial, z->bounds, bytes);
        if (!pp_cuts_may_fit(&z->cuts, z->trial))
            return 0;
        if (pp_cuts_fits(&z->cuts, z->trial, fits, err) ||
            (!*fits && lower_limits(z, trial_need, &changed, err)))
            return -1;
    }
    return 0;
}

/* Looks for a partition that fits in tables of what may fit. Sets *none if
 * nothing may fit. */
static int find_fit(struct climb *z, bool *fits, bool *none, struct pp_err *err)
{
    struct pp_split_step p = *z->cuts.problem;
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
        if (pp_cuts_fits(&z->cuts, z->trial, fits, err) ||
            (!*fits && lower_limits(z, trial_small, &changed, err)))
            return -1;
    }
    if (*fits)
        memcpy(z->bounds, z->trial, (z->cuts.n_stages + 1) * sizeof *z->bounds);
    return 0;
}

/* Changes the partition to one that fits. Sets *none if there is none. Without
 * an answer *fits and *none are false. */
static int make_fit(struct climb *z, bool *fits, bool *none, struct pp_err *err)
{
    if (pp_cuts_fits(&z->cuts, z->bounds, fits, err))
        return -1;
    if (*fits || !z->cuts.problem->memory)
        return 0;
    if (move_to_fit(z, fits, err))
        return -1;
    return *fits ? 0 : find_fit(z, fits, none, err);
}

/* Climbs from z->start too, or from what fits near it, and keeps the better
 * result. The cuts so far give way to those of this climb. */
static int climb_again(struct climb *z, struct pp_err *err)
{
    struct pp_cuts *x = &z->cuts;
    size_t bytes = (x->n_stages + 1) * sizeof *z->bounds;
    double before = z->makespan;
    bool fits;
    memcpy(z->first, z->bounds, bytes);
    memcpy(z->bounds, z->start, bytes);
    if (pp_cuts_fits(x, z->bounds, &fits, err) ||
        (!fits && x->problem->memory && move_to_fit(z, &fits, err)))
        return -1;
    x->n = z->n_refused = 0;
    x->most = MAX_CUTS;
    if (fits) {
        z->makespan = pp_cuts_simulate(x, z->bounds);
        if (climb(z, err))
            return -1;
    }
    if (!fits || !pp_cuts_less(z->makespan, before)) {
        memcpy(z->bounds, z->first, bytes);
        z->makespan = before;
    }
    return 0;
}

static int find_makespan_bound(struct climb *z, double *bound,
                               struct pp_err *err)
{
    struct pp_cuts *x = &z->cuts;
    *bound = 0;
    if (isinf(z->makespan) || x->problem->brief)
        return 0;
    x->most += n_generated(x->problem->makespan);
    size_t steps = smaller(MAX_STEPS, MAX_STEP_PIECES /
                                          (x->problem->makespan->n_pieces + 1));
    return pp_cuts_generate(x, z->bounds, steps, z->start, err) ||
                   pp_cuts_bound(x, z->makespan, bound, err) ||
                   (*bound < z->makespan * NEAR && climb_again(z, err))
               ? -1
               : 0;
}

static int run(struct climb *z, struct pp_split_found *found,
               struct pp_err *err)
{
    struct pp_cuts *x = &z->cuts;
    bool fits = false;
    if (make_fit(z, &fits, &found->proved, err))
        return -1;
    z->makespan = pp_cuts_simulate(x, z->bounds);
    bool enough = fits && x->problem->fit_only;
    if (!fits)
        z->makespan = INFINITY;
    else if (!enough && climb(z, err))
        return -1;
    if (!found->proved && !enough &&
        pp_cuts_search(x, z->bounds, &z->makespan, &found->proved, err))
        return -1;
    if (!found->proved && !fits && isfinite(z->makespan) && climb(z, err))
        return -1;
    found->bound = z->makespan;
    if (!found->proved && !enough && find_makespan_bound(z, &found->bound, err))
        return -1;
    found->makespan = z->makespan;
    found->bound = fmin(found->bound, found->makespan);
    found->n_simulated = x->n_pieces / x->problem->makespan->n_pieces;
    return 0;
}

int pp_split_step(const struct pp_split_step *p, size_t *bounds,
                  struct pp_split_found *found, struct pp_err *err)
{
    struct climb z = {0};
    int rc = -1;
    *found = (struct pp_split_found){0};
    if (!pp_cuts_init(&z.cuts, p, MAX_CUTS + n_generated(p->makespan), err)) {
        z.cuts.most = MAX_CUTS; /* generation raises it */
        if (!allocate_climb(&z, bounds, err))
            rc = run(&z, found, err);
    }
    free(z.trial);
    free(z.start);
    free(z.first);
    free(z.cost);
    free(z.change);
    free(z.order);
    free(z.refused);
    free(z.limit);
    pp_cuts_finish(&z.cuts);
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
