/* SPDX-License-Identifier: MIT */
/* lagrangian - lower bounds of the makespan of all partitions, from cuts.
 *
 * The Lagrangian bound: for any shares of the cuts that add up to 1, the least
 * cost of a partition by the weighted mean of the cuts is a lower bound. The
 * shares are improved by the multiplicative weights method. The other bound
 * looks at one cut for each stage. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "split/cuts.h"

/* Limits of rounds, and of numbers read in all rounds: a tenth of a second. */
enum { MAX_ROUNDS = 3000, MAX_CELLS = 10000000, MAX_HALVINGS = 60 };

/* --- the Lagrangian bound --- */

/* Step sizes from uniform shares, and from shares of a group of cuts. */
static const double STEP = 4, SMALL = 0.5;

struct blend {
    const struct pp_cuts *cuts;
    double *share;   /* per cut, the Lagrange multipliers; their sum is 1 */
    double *weights; /* weighted mean of the cuts */
    double *least;
    uint32_t *end;
    size_t *bounds; /* partition with the least cost by weights */
    double *cost;   /* per cut: its bound for that partition */
};

/* Returns the least cost of any partition by the weighted mean of the cuts. */
static double blend_least(struct blend *z)
{
    const struct pp_cuts *x = z->cuts;
    size_t size = x->n_stages * (x->width + 1), row = x->n_units + 1;
    memset(z->weights, 0, size * sizeof *z->weights);
    for (size_t c = 0; c < x->n; c++) {
        const double *w = pp_cut_weights(x, c, 0);
        if (z->share[c] > 1e-9)
            for (size_t k = 0; k < size; k++)
                z->weights[k] += z->share[c] * w[k];
    }
    pp_cut_least(x, z->weights, z->least, z->end);
    z->bounds[0] = 0;
    for (size_t s = 0; s < x->n_stages; s++)
        z->bounds[s + 1] = z->end[s * row + z->bounds[s]];
    return z->least[0];
}

/* Multiplies every share by a factor that grows exponentially with the cut's
 * cost. So a cut that the partition violates gets a larger share. */
static void shift_shares(struct blend *z, double best, double step)
{
    const struct pp_cuts *x = z->cuts;
    double most = 0, sum = 0;
    for (size_t c = 0; c < x->n; c++) {
        z->cost[c] = pp_cut_cost(x, c, z->bounds);
        most = z->cost[c] > most ? z->cost[c] : most;
    }
    for (size_t c = 0; c < x->n; c++)
        sum += z->share[c] *= exp(step * (z->cost[c] - most) / best);
    for (size_t c = 0; c < x->n; c++)
        z->share[c] /= sum;
}

/* Gives most of the shares to the cuts from .. end - 1, in equal parts. */
static void set_shares(struct blend *z, size_t from, size_t end)
{
    size_t n = z->cuts->n, others = n - (end - from);
    double most = others > 0 ? 0.98 : 1;
    for (size_t c = 0; c < n; c++)
        z->share[c] = c >= from && c < end ? most / (double)(end - from)
                                           : (1 - most) / (double)others;
}

/* Improves the shares for some rounds, with decreasing steps. */
static void improve_shares(struct blend *z, size_t rounds, double step,
                           double best, double *bound)
{
    for (size_t i = 0; i < rounds; i++) {
        double least = blend_least(z);
        *bound = least > *bound ? least : *bound;
        shift_shares(z, best, step / sqrt(1 + (double)i));
    }
}

static double blend_bound(const struct pp_cuts *x, double best)
{
    size_t row = x->n_units + 1, table = (x->n_stages + 1) * row;
    size_t rounds =
        MAX_CELLS / (table + 2 * x->n * x->n_stages * (x->width + 1));
    double bound = 0;
    struct blend z = {
        .cuts = x,
        .share = pp_calloc(x->n, sizeof *z.share),
        .weights = pp_calloc(x->n_stages * (x->width + 1), sizeof *z.weights),
        .least = pp_calloc(table, sizeof *z.least),
        .end = pp_calloc(table, sizeof *z.end),
        .bounds = pp_calloc(x->n_stages + 1, sizeof *z.bounds),
        .cost = pp_calloc(x->n, sizeof *z.cost)};
    if (rounds > MAX_ROUNDS)
        rounds = MAX_ROUNDS;
    /* Start from equal shares of all cuts, and of cuts along rows, and from
     * the last mean, which weighs all stages about alike. */
    set_shares(&z, 0, x->n);
    improve_shares(&z, rounds / 3, STEP, best, &bound);
    if (x->n > x->n_from_search) {
        set_shares(&z, x->n_from_search, x->n_with_rows);
        improve_shares(&z, rounds / 3, SMALL, best, &bound);
    }
    if (x->n > x->n_with_slow) {
        set_shares(&z, x->n - 1, x->n);
        improve_shares(&z, rounds / 3, SMALL, best, &bound);
    }
    free(z.share);
    free(z.cost);
    free(z.weights);
    free(z.least);
    free(z.end);
    free(z.bounds);
    return bound;
}

/* --- the bound by stages --- */

/* A cut for one stage: the weights of the stage, the least weights of the
 * stages before and after, and the cheapest messages. */
struct stage_cut {
    const double *own;
    double *front, *behind; /* (width) */
    double messages;
};

static double stage_cut_cost(const struct pp_cuts *x, const struct stage_cut *l,
                             size_t i, size_t j)
{
    return pp_cut_sum(x, l->front, 0, i) + pp_cut_sum(x, l->own, i, j) +
           pp_cut_sum(x, l->behind, j, x->n_units) + l->messages;
}

/* Returns the cut of from .. end - 1 with the largest weight on stage s, summed
 * over all units. */
static size_t heaviest(const struct pp_cuts *x, size_t s, size_t from,
                       size_t end)
{
    size_t best = from;
    double most = -1;
    for (size_t c = from; c < end; c++) {
        double sum = pp_cut_sum(x, pp_cut_weights(x, c, s), 0, x->n_units);
        if (sum > most) {
            most = sum;
            best = c;
        }
    }
    return best;
}

/* Weights of the stages before and after are limited to the stage's own, so
 * that a later begin or an earlier end never increases the cost. */
static void set_stage_cut(const struct pp_cuts *x, size_t s, size_t c,
                          double cheapest, struct stage_cut *l)
{
    l->own = pp_cut_weights(x, c, s);
    memcpy(l->front, l->own, x->width * sizeof *l->front);
    memcpy(l->behind, l->own, x->width * sizeof *l->behind);
    for (size_t t = 0; t < x->n_stages; t++) {
        const double *w = pp_cut_weights(x, c, t);
        double *side = t < s ? l->front : l->behind;
        l->messages += w[x->width] * cheapest;
        for (size_t k = 0; k < x->width && t != s; k++)
            side[k] = w[k] < side[k] ? w[k] : side[k];
    }
}

/* Returns true if every stage can stay within a time. Every stage takes as many
 * units as it can. A stage may get none: the stages before it may already hold
 * all units that it has in a valid partition. */
static bool all_within(const struct pp_cuts *x, const struct stage_cut *l,
                       double time)
{
    size_t at = 0, n = x->n_units;
    for (size_t s = 0; s < x->n_stages; s++) {
        size_t low = at, high = n - (x->n_stages - 1 - s);
        while (low < high) {
            size_t middle = low + (high - low + 1) / 2;
            if (stage_cut_cost(x, &l[s], at, middle) <= time)
                low = middle;
            else
                high = middle - 1;
        }
        at = low;
    }
    return at == n;
}

/* Returns low, a bound, raised by the cuts from .. end - 1. */
static double stage_bound(const struct pp_cuts *x, size_t from, size_t end,
                          double best, double low)
{
    size_t n = x->n_stages;
    struct stage_cut *l = pp_calloc(n, sizeof *l);
    double *sides = pp_calloc(2 * n, x->width * sizeof *sides);
    double cheapest = INFINITY, high = best;
    for (size_t i = 0; i < x->n_units; i++)
        cheapest = x->message[i] < cheapest ? x->message[i] : cheapest;
    for (size_t s = 0; s < n; s++) {
        l[s].front = &sides[2 * s * x->width];
        l[s].behind = l[s].front + x->width;
        set_stage_cut(x, s, heaviest(x, s, from, end), cheapest, &l[s]);
    }
    for (int i = 0; i < MAX_HALVINGS && low < high; i++) {
        double middle = low + (high - low) / 2;
        if (all_within(x, l, middle))
            high = middle;
        else
            low = middle;
    }
    free(l);
    free(sides);
    return low;
}

double pp_cuts_bound(const struct pp_cuts *x, double best)
{
    const size_t ends[] = {0,
                           x->n_from_search,
                           x->n_with_rows,
                           x->n_with_detours,
                           x->n_with_slow,
                           x->n};
    if (x->n == 0 || !isfinite(best))
        return 0;
    double bound = blend_bound(x, best);
    for (size_t i = 1; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] > ends[i - 1])
            bound = stage_bound(x, ends[i - 1], ends[i], best, bound);
    /* Rounding may put the bound above the best makespan. */
    return bound > best ? best : bound;
}
