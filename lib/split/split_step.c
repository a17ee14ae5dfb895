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

/* Limits of the cuts that are generated for the bound, of their sizes, and of
 * pieces of the steps that are simulated for them. */
enum {
    MAX_GENERATED = 1000,
    MAX_GENERATED_CELLS = 1 << 22,
    MAX_GENERATED_PIECES = 12000000
};

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
    size_t n = smaller(MAX_GENERATED, MAX_GENERATED_PIECES / (m->n_pieces + 1));
    return smaller(2 * (size_t)g->n_rows + n, MAX_GENERATED_CELLS / cells);
}

struct boundary_move {
    size_t first, last; /* boundaries; first is 0 for no move */
    int by;             /* 1 or -1 */
};

struct climb {
    struct pp_cuts cuts;
    size_t *bounds;  /* the best so far */
    size_t *trial;   /* scratch */
    double *cost;    /* per cut: its bound for the best partition */
    double *change;  /* per cut: prefix sums over boundaries of the change of
                        cost if a boundary goes up by one, then down by one */
    size_t *order;   /* cuts by decreasing cost */
    double makespan; /* of the best partition */
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
                if (pp_cuts_fits(&z->cuts, z->trial)) {
                    least = cost;
                    best = m;
                }
            }
    return best;
}

/* Every simulation adds a cut that bounds the simulated partition exactly, so
 * no move is simulated twice. */
static void climb(struct climb *z)
{
    struct pp_cuts *x = &z->cuts;
    while (x->n < x->most && x->n_pieces < MAX_PIECES) {
        weigh_moves(z);
        struct boundary_move m = best_move(z);
        if (m.first == 0)
            return;
        apply(z, m);
        double time = pp_cuts_simulate(x, z->trial);
        if (!pp_cuts_less(time, z->makespan))
            continue;
        z->makespan = time;
        memcpy(z->bounds, z->trial, (x->n_stages + 1) * sizeof *z->bounds);
    }
}

/* --- memory --- */

static double excess(const struct climb *z, const size_t *bounds, int *rank,
                     double *total)
{
    const struct pp_split_step *p = z->cuts.problem;
    return pp_split_memory_excess(p->memory, bounds, p->limit, rank, total);
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
    z->cost = calloc(most, sizeof *z->cost);
    z->change = calloc(size, sizeof *z->change);
    z->order = calloc(most, sizeof *z->order);
    if (!z->trial || !z->cost || !z->change || !z->order)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

/* Changes the partition to one that fits. Sets *none if there is none. */
static int make_fit(struct climb *z, bool *none, struct pp_err *err)
{
    const struct pp_cuts *x = &z->cuts;
    enum pp_feasibility answer;
    if (pp_cuts_fits(x, z->bounds))
        return 0;
    reduce_excess(z);
    if (pp_cuts_fits(x, z->bounds))
        return 0;
    if (pp_split_feasible(x->problem, z->bounds, &answer, err))
        return -1;
    *none = answer == PP_FEASIBLE_NONE;
    return 0;
}

static int find_makespan_bound(struct climb *z, double *bound,
                               struct pp_err *err)
{
    struct pp_cuts *x = &z->cuts;
    *bound = 0;
    if (isinf(z->makespan))
        return 0;
    x->most += n_generated(x->problem->makespan);
    return pp_cuts_generate(x, z->bounds, err) ||
                   pp_cuts_bound(x, z->makespan, bound, err)
               ? -1
               : 0;
}

static int run(struct climb *z, struct pp_split_found *found,
               struct pp_err *err)
{
    struct pp_cuts *x = &z->cuts;
    if (make_fit(z, &found->proved, err))
        return -1;
    z->makespan = pp_cuts_simulate(x, z->bounds);
    bool fits = pp_cuts_fits(x, z->bounds);
    bool enough = fits && x->problem->fit_only;
    if (!fits)
        z->makespan = INFINITY;
    else if (!enough)
        climb(z);
    if (!found->proved && !enough &&
        pp_cuts_search(x, z->bounds, &z->makespan, &found->proved, err))
        return -1;
    found->makespan = found->bound = z->makespan;
    if (!found->proved && !enough && find_makespan_bound(z, &found->bound, err))
        return -1;
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
    free(z.cost);
    free(z.change);
    free(z.order);
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
