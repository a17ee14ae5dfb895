/* SPDX-License-Identifier: MIT */
/* generate - cut generation for a bound. The longest path of one
 * partition bounds only the stages that it passes; a bound needs cuts for all
 * stages.
 *
 * Consider the relaxation in which any work may be on any stage, except for the
 * first and the last unit. The least
 * makespan is then the value of a game: one player sets the times of stages,
 * the other answers with a longest path. By regret matching (S. Hart, A.
 * Mas-Colell, "A simple adaptive procedure leading to correlated equilibrium",
 * Econometrica 68, 2000), the time of a stage is proportional to its regret: by
 * how much less the paths so far weigh there than on average. With regrets that
 * never fall below 0, and paths that count in proportion to their number (O.
 * Tammelin, "Solving large imperfect information games using CFR+", 2014), the
 * mean of the paths converges fast to one that weighs all stages alike, if
 * there is one. */
#include "split/cuts.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

/* Part of a row's work that a path may skip at either end for a detour through
 * other rows. */
static const double PART = 0.25;

/* The factor of a slow row's times. Its longest path should stay in the row
 * without leaving out what happens before and after. */
static const double SLOW = 1.25;

static void add_path(void *ctx)
{
    struct pp_cuts *x = ctx;
    if (x->n < x->most)
        pp_cuts_add(x);
}

/* Units that may be on any stage: from .. until - 1. */
struct free_units {
    size_t from, until;
};

/* Gives every stage an equal part of the work of free units, with a factor, and
 * the cheapest message. Units before are on the first stage, and units after on
 * the last. */
static void share_work(struct pp_cuts *x, struct free_units units,
                       const double *factor)
{
    const struct pp_graph *g = x->problem->makespan->graph;
    const double *first = &x->before[units.from * x->width];
    const double *last = &x->before[units.until * x->width];
    const double *all = &x->before[x->n_units * x->width];
    double cheapest = INFINITY;
    for (size_t i = 0; i + 1 < x->n_units; i++)
        cheapest = fmin(cheapest, x->message[i]);
    for (int s = 0; s < g->n_stages; s++) {
        size_t at = (size_t)(s * g->slices.n), o = (size_t)pp_original(g, s);
        double share = factor[o] / (double)x->n_stages;
        for (size_t k = 0; k < x->width; k++)
            x->times.slice[at + k / PP_N_TIMES][k % PP_N_TIMES] =
                share * (last[k] - first[k]) + (o == 0 ? first[k] : 0) +
                (o == x->n_stages - 1 ? all[k] - last[k] : 0);
        for (size_t q = 0; q < (size_t)g->slices.n; q++)
            x->times.message[at + q] = cheapest;
    }
}

/* Finds the longest path with the times that are set. */
static void find_path(struct pp_cuts *x)
{
    struct pp_makespan *m = x->problem->makespan;
    pp_makespan(m, &x->times);
    pp_makespan_path(m, &x->times, &x->counts);
}

/* The state of the game. */
struct game {
    struct pp_cuts *cuts;
    struct free_units units;
    double *factor; /* per stage: what its times are multiplied by */
    double *share;  /* per stage: sum of the factors so far */
    double *regret; /* per stage */
    double *weight; /* per stage: of the last path, with all free units on it */
    double *mean;   /* the paths so far, as a sum over a cut's weights */
    double total;   /* what they count together */
    size_t n_weights;
};

static struct game start_game(struct pp_cuts *x)
{
    size_t n = x->n_stages, n_weights = n * (x->width + 1);
    struct game z = {.cuts = x,
                     .units = {x->n_units > 1, x->n_units - 1},
                     .factor = pp_calloc(n, sizeof *z.factor),
                     .share = pp_calloc(n, sizeof *z.share),
                     .regret = pp_calloc(n, sizeof *z.regret),
                     .weight = pp_calloc(n, sizeof *z.weight),
                     .mean = pp_calloc(n_weights, sizeof *z.mean),
                     .n_weights = n_weights};
    for (size_t s = 0; s < n; s++)
        z.factor[s] = 1;
    return z;
}

static void finish_game(struct game *z)
{
    free(z->factor);
    free(z->share);
    free(z->regret);
    free(z->weight);
    free(z->mean);
}

/* Updates regrets and factors by a path. */
static void answer(struct game *z, const double *path)
{
    const struct pp_cuts *x = z->cuts;
    size_t n = x->n_stages, row = x->width + 1;
    double value = 0, sum = 0;
    for (size_t s = 0; s < n; s++) {
        z->weight[s] =
            pp_cut_sum(x, &path[s * row], z->units.from, z->units.until);
        value += z->weight[s] * z->factor[s] / (double)n;
    }
    for (size_t s = 0; s < n; s++) {
        double regret = z->regret[s] + value - z->weight[s];
        z->regret[s] = regret > 0 ? regret : 0;
        sum += z->regret[s];
    }
    for (size_t s = 0; s < n; s++)
        z->factor[s] = sum > 0 ? z->regret[s] * (double)n / sum : 1;
}

static void play_round(struct game *z, size_t round)
{
    struct pp_cuts *x = z->cuts;
    double counts = (double)(round + 1);
    share_work(x, z->units, z->factor);
    for (size_t s = 0; s < x->n_stages; s++)
        z->share[s] += counts * z->factor[s];
    find_path(x);
    const double *path = pp_cuts_next(x);
    answer(z, path);
    for (size_t k = 0; k < z->n_weights; k++)
        z->mean[k] += counts * path[k];
    z->total += counts;
}

/* Adds the mean of the paths so far as a cut. */
static void add_mean(struct game *z)
{
    double *cut = &z->cuts->weights[z->cuts->n * z->n_weights];
    for (size_t k = 0; k < z->n_weights; k++)
        cut[k] = z->mean[k] / z->total;
    z->cuts->n++;
}

/* Returns all times of the units before one. */
static double work_before(const struct pp_cuts *x, size_t unit)
{
    double sum = 0;
    for (size_t k = 0; k < x->width; k++)
        sum += x->before[unit * x->width + k];
    return sum;
}

/* Sets the partition that is nearest to the mean share of each stage. */
static void round_shares(const struct game *z, size_t *split)
{
    const struct pp_cuts *x = z->cuts;
    size_t n = x->n_stages;
    double done = work_before(x, z->units.from), sum = 0;
    double all = work_before(x, z->units.until) - done;
    for (size_t s = 0; s < n; s++)
        sum += z->share[s];
    split[0] = 0;
    for (size_t s = 0; s + 1 < n; s++) {
        size_t end = split[s] + 1, most = x->n_units - (n - 1 - s);
        done += sum > 0 ? all * z->share[s] / sum : 0;
        while (end < most &&
               work_before(x, end) + work_before(x, end + 1) <= 2 * done)
            end++;
        split[s + 1] = end;
    }
    split[n] = x->n_units;
}

/* Plays the game, and adds a cut now and then. */
static void play(struct pp_cuts *x, size_t rounds, size_t *split)
{
    struct game z = start_game(x);
    size_t left = x->most - x->n;
    for (size_t i = 0; i < rounds; i++) {
        play_round(&z, i);
        if ((i + 1) * left / rounds > i * left / rounds)
            add_mean(&z);
    }
    round_shares(&z, split);
    finish_game(&z);
}

/* Adds, for each row, the longest path with equal shares of the work if this
 * row is slow. */
static void add_slowed(struct pp_cuts *x)
{
    const struct pp_graph *g = x->problem->makespan->graph;
    double *factor = pp_calloc(x->n_stages, sizeof *factor);
    for (int r = 0; r < g->n_rows; r++) {
        for (size_t s = 0; s < x->n_stages; s++)
            factor[s] = 1;
        for (int s = 0; s < g->n_stages; s++)
            if (g->stages[s].row == r)
                factor[pp_original(g, s)] = SLOW;
        share_work(x, (struct free_units){0, x->n_units}, factor);
        find_path(x);
        add_path(x);
    }
    free(factor);
}

void pp_cuts_generate(struct pp_cuts *x, const size_t *bounds, size_t steps,
                      size_t *split)
{
    struct pp_makespan *m = x->problem->makespan;
    pp_cuts_time(x, bounds);
    x->n_from_search = x->n;
    pp_makespan_row_paths(m, &x->times, &x->counts, 0, add_path, x);
    x->n_with_rows = x->n;
    pp_makespan_row_paths(m, &x->times, &x->counts, PART, add_path, x);
    x->n_with_detours = x->n;
    size_t rows = (size_t)m->graph->n_rows;
    bool slows = steps >= 2 * rows;
    if (slows)
        add_slowed(x);
    x->n_with_slow = x->n;
    play(x, slows ? steps - rows : steps, split);
}
