/* SPDX-License-Identifier: MIT */
/* frontier - climbs from partitions that need little memory and from ones
 * that need more. The way down from the start depends on the start only, not on
 * the limit, and so do the partitions on it from which climbs begin. */
#include "split/climb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The way down has so many partitions at most, climbs begin from some of them,
 * and each has work for MOST_MOVES simulated steps if that is possible. */
enum { MAX_DOWN = 512, MAX_STARTS = 48, MOST_MOVES = 300 };

/* Tries to reach a goal, goals in a row that are not reached, and work for each
 * stage, in needs of ranks that are looked at. */
enum { N_TRIES = 4, MAX_FAILED = 40, STAGE_WORK = 1 << 16 };

/* The next goal needs less by this share of the memory. */
static const double STEP = 1.0 / 256;

/* The way down. */
struct descent {
    struct pp_climb *climb;
    size_t *bounds;         /* the partitions; (MAX_DOWN, n_stages + 1) */
    size_t n;               /* of them */
    size_t *home;           /* scratch */
    double goal;            /* bytes over the limit that ranks may be */
    size_t work, most_work; /* needs of ranks that are looked at */
};

/* Returns by how much ranks exceed the goal together after a move, or more than
 * most. Sets *rank to the one that needs most, and *over to its bytes over the
 * limit, unless they are NULL. */
static double goal_excess(struct descent *d, struct pp_boundary_move m,
                          double most, int *rank, double *over)
{
    struct pp_nearby *x = &d->climb->nearby;
    double sum = 0, largest = -INFINITY;
    for (int r = 0; r < x->problem->memory->graph->n_rows && sum <= most; r++) {
        double bytes = pp_nearby_over(x, r, m);
        d->work++;
        sum += fmax(0, bytes - d->goal);
        if (rank && bytes > largest)
            *rank = r;
        largest = fmax(largest, bytes);
    }
    if (over)
        *over = largest;
    return sum;
}

/* Returns the bytes over the limit of the rank that needs most. */
static double most_over(struct descent *d, const size_t *bounds)
{
    double over;
    pp_nearby_set(&d->climb->nearby, bounds);
    goal_excess(d, (struct pp_boundary_move){1, 0, 1}, INFINITY, NULL, &over);
    return over;
}

/* Returns the move that leaves least of the excess, and sets *least to that. */
static struct pp_boundary_move best_relief(struct descent *d, const size_t *at,
                                           int rank, double *least)
{
    struct pp_cuts *x = &d->climb->cuts;
    struct pp_boundary_move best = {0};
    for (struct pp_boundary_move m = {0}; pp_move_next(x, at, &m);) {
        if (!pp_move_relieves(x, m, rank))
            continue;
        double left = goal_excess(d, m, *least, NULL, NULL);
        if (left >= *least)
            continue;
        *least = left;
        best = m;
    }
    return best;
}

/* Moves units away from the rank that needs most, while that reduces the
 * excess. Returns what is left of it. */
static double reduce(struct descent *d, size_t *at)
{
    size_t n = d->climb->cuts.n_stages;
    int rank = 0;
    for (;;) {
        pp_nearby_set(&d->climb->nearby, at);
        double least = goal_excess(d, (struct pp_boundary_move){1, 0, 1},
                                   INFINITY, &rank, NULL);
        if (least <= 0 || d->work > d->most_work)
            return least;
        struct pp_boundary_move m = best_relief(d, at, rank, &least);
        if (m.first == 0)
            return least;
        pp_move_apply(n, at, m, d->climb->trial);
        memcpy(at, d->climb->trial, (n + 1) * sizeof *at);
    }
}

/* Changes next until it keeps to the goal: from the last partition, from the
 * first one, or by random moves. Returns false if it does not. */
static bool reach_goal(struct descent *d, size_t *next, uint64_t *draw)
{
    size_t row = d->climb->cuts.n_stages + 1, bytes = row * sizeof *next;
    double least = INFINITY;
    for (int i = 0; i < N_TRIES && d->work < d->most_work; i++) {
        const size_t *from = i == 0 ? next - row : i == 1 ? d->bounds : d->home;
        memcpy(next, from, bytes);
        for (int k = 0; i > 1 && k < 2 + i % 3; k++)
            pp_move_randomly(&d->climb->cuts, next, draw);
        double left = reduce(d, next);
        if (left <= 0)
            return true;
        if (left > least)
            continue;
        least = left;
        memcpy(d->home, next, bytes);
    }
    return false;
}

static void descend(struct descent *d, const size_t *start)
{
    const struct pp_split_step *p = d->climb->cuts.problem;
    size_t row = d->climb->cuts.n_stages + 1;
    uint64_t draw = 0;
    memcpy(d->bounds, start, row * sizeof *start);
    d->goal = most_over(d, start);
    d->n = 1;
    for (int failed = 0; d->n < MAX_DOWN && failed < MAX_FAILED;) {
        size_t *next = &d->bounds[d->n * row];
        double goal = d->goal - STEP * (d->goal + p->limit[0]);
        if (goal >= d->goal) /* no rank needs any memory */
            return;
        d->goal = goal;
        if (most_over(d, next - row) <= d->goal)
            continue;
        if (reach_goal(d, next, &draw)) {
            d->n++;
            failed = 0;
        } else {
            failed++;
        }
    }
}

/* Climbs from the end, from the start, and from partitions between. */
static void climb_from_each(struct descent *d, size_t work)
{
    struct pp_climb *z = d->climb;
    size_t row = z->cuts.n_stages + 1;
    size_t n = work / (MOST_MOVES * z->cuts.problem->makespan->n_pieces + 1);
    n = n < 2 ? 2 : n > MAX_STARTS ? MAX_STARTS : n;
    size_t apart = 1 + (d->n - 1) / (n - 1);
    for (size_t i = d->n - 1; i > 0; i = i < apart ? 0 : i - apart)
        pp_climb_from(z, &d->bounds[i * row], work / n);
    pp_climb_from(z, d->bounds, work / n);
}

void pp_climb_frontier(struct pp_climb *z, const size_t *start, size_t work)
{
    size_t row = z->cuts.n_stages + 1;
    if (!z->cuts.problem->memory) {
        pp_climb_from(z, start, work);
        return;
    }
    struct descent d = {.climb = z,
                        .most_work = STAGE_WORK * z->cuts.n_stages,
                        .bounds = pp_calloc(MAX_DOWN, row * sizeof *d.bounds),
                        .home = pp_calloc(row, sizeof *d.home)};
    descend(&d, start);
    climb_from_each(&d, work);
    free(d.bounds);
    free(d.home);
}
