/* SPDX-License-Identifier: MIT */
/* Sorted orders of the rounds of a step, and moves of single rounds. */
#include "schedule/simulate/microbatch_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct ordering {
    struct pp_makespan *makespan;
    const struct pp_rounds *rounds;
    struct pp_microbatch_times *placed; /* by place, for one rank */
    struct costly {
        double cost;
        uint32_t round;
    } * sorted;              /* costliest first */
    uint32_t *best, *trial;  /* orders */
    double least, work, eps; /* least: the makespan of best; work: left */
};

/* Returns the makespan of the slowest rank, or more than the least so far. */
static double evaluate(struct ordering *o, const uint32_t *order)
{
    const struct pp_rounds *x = o->rounds;
    double slowest = 0;
    for (size_t r = 0; r < x->dp && slowest < o->least; r++) {
        for (size_t k = 0; k < x->n_rounds; k++)
            o->placed[k] = x->times[r * x->n_rounds + order[k]];
        slowest = fmax(slowest, pp_makespan_unequal(o->makespan, o->placed));
        o->work -= (double)o->makespan->n_pieces;
    }
    return slowest;
}

/* Takes the trial if it is shorter. Returns whether it is. */
static bool take_shorter(struct ordering *o)
{
    double here = evaluate(o, o->trial);
    if (here >= o->least - o->eps)
        return false;
    o->least = here;
    memcpy(o->best, o->trial, o->rounds->n_rounds * sizeof *o->best);
    return true;
}

static int by_cost(const void *pa, const void *pb)
{
    const struct costly *a = pa, *b = pb;
    if (a->cost != b->cost)
        return a->cost > b->cost ? -1 : 1;
    return a->round < b->round ? -1 : 1;
}

static void sort_rounds(struct ordering *o)
{
    const struct pp_rounds *x = o->rounds;
    const struct pp_graph *g = o->makespan->graph;
    for (size_t k = 0; k < x->n_rounds; k++) {
        o->sorted[k].round = (uint32_t)k;
        for (size_t r = 0; r < x->dp; r++)
            for (int i = 0; i < g->n_stages * g->slices.n; i++) {
                const double *op = x->times[r * x->n_rounds + k].op + 4 * i;
                o->sorted[k].cost += op[PP_F] + op[PP_B];
            }
    }
    qsort(o->sorted, x->n_rounds, sizeof *o->sorted, by_cost);
}

/* Tries descending and ascending costs, and the costly ones at both ends. */
static void try_sorted(struct ordering *o)
{
    size_t n = o->rounds->n_rounds;
    for (size_t k = 0; k < n; k++)
        o->trial[k] = o->sorted[k].round;
    take_shorter(o);
    for (size_t k = 0; k < n; k++)
        o->trial[k] = o->sorted[n - 1 - k].round;
    take_shorter(o);
    for (size_t k = 0; k < n; k++)
        o->trial[k % 2 ? n - 1 - k / 2 : k / 2] = o->sorted[k].round;
    take_shorter(o);
}

/* Writes best to trial with one round moved to a place. */
static void move(const struct ordering *o, uint32_t round, size_t place)
{
    size_t n = o->rounds->n_rounds, to = 0;
    for (size_t k = 0; k < n; k++) {
        if (o->best[k] == round)
            continue;
        to += to == place;
        o->trial[to++] = o->best[k];
    }
    o->trial[place] = round;
}

/* Moves each round, costliest first, to its best place. Returns whether that
 * helped. */
static bool improve(struct ordering *o)
{
    bool better = false;
    for (size_t i = 0; i < o->rounds->n_rounds; i++)
        for (size_t place = 0; place < o->rounds->n_rounds; place++) {
            if (o->work <= 0)
                return false;
            move(o, o->sorted[i].round, place);
            better |= take_shorter(o);
        }
    return better;
}

void pp_microbatch_order(struct pp_makespan *x, const struct pp_rounds *rounds,
                         double work, uint32_t *order, double *makespan)
{
    size_t n = rounds->n_rounds;
    struct ordering o = {.makespan = x,
                         .rounds = rounds,
                         .best = order,
                         .least = INFINITY,
                         .work = work};
    o.placed = pp_calloc(n, sizeof *o.placed);
    o.sorted = pp_calloc(n, sizeof *o.sorted);
    o.trial = pp_calloc(n, sizeof *o.trial);
    o.least = evaluate(&o, order);
    o.eps = 1e-9 * o.least;
    sort_rounds(&o);
    try_sorted(&o);
    while (improve(&o))
        ;
    *makespan = o.least;
    free(o.placed);
    free(o.sorted);
    free(o.trial);
}
