/* SPDX-License-Identifier: MIT */
/* The cuts that a bound wants: the longest path of one partition says much
 * about the stages that it passes and nothing about the others.
 *
 * Which times make the least makespan, when any work may be on any stage, is a
 * game: one player sets the times of stages, the other answers with a longest
 * path. Times that shrink exponentially with what the paths so far weigh there
 * approach its value, and so does the mean of the paths (Y. Freund, R. E.
 * Schapire, "Adaptive game playing using multiplicative weights", Games and
 * Economic Behavior 29, 1999): together they weigh every stage alike, wherever
 * that can be. */
#include <math.h>
#include <stdlib.h>

#include "split/split_cuts.h"

/* A path along one rank of n may change its stages' times by this much, over
 * n: less than that the others never show; and how fast that becomes less. */
static const double STEP = 0.5, SLOWER = 0.03;

/* Of a row's work, what a path may do without at either end, for a way through
 * other ranks. */
static const double PART = 0.25;

static void add_path(void *ctx)
{
    struct pp_cuts *x = ctx;
    if (x->n < x->most)
        pp_cuts_add(x);
}

/* Every time of stage s by exp(-shrink[s]). */
static void scale_times(struct pp_cuts *x, const double *shrink)
{
    const struct pp_graph *g = x->problem->makespan->graph;
    for (int s = 0; s < g->n_stages; s++)
        for (int q = 0; q < g->n_slices; q++)
            for (int k = 0; k < PP_N_TIMES; k++)
                x->times.slice[s * g->n_slices + q][k] *=
                    exp(-shrink[pp_original(g, s)]);
}

/* What the last cut weighs on each stage, more or less than the mean, shrinks
 * its times. */
static void answer(const struct pp_cuts *x, double step, double *weight,
                   double *shrink)
{
    double mean = 0;
    for (size_t s = 0; s < x->n_stages; s++) {
        weight[s] =
            pp_cut_sum(x, pp_cut_weights(x, x->n - 1, s), 0, x->n_units);
        mean += weight[s] / (double)x->n_stages;
    }
    for (size_t s = 0; s < x->n_stages && mean > 0; s++)
        shrink[s] += step * (weight[s] / mean - 1);
}

int pp_cuts_generate(struct pp_cuts *x, const size_t *bounds,
                     struct pp_err *err)
{
    struct pp_makespan *m = x->problem->makespan;
    double *shrink = calloc(2 * x->n_stages, sizeof *shrink);
    int rc = -1;
    if (!shrink) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto out;
    }
    pp_cuts_time(x, bounds);
    x->n_searched = x->n;
    if (pp_makespan_row_paths(m, &x->times, &x->counts, 0, add_path, x, err))
        goto out;
    x->n_with_rows = x->n;
    if (pp_makespan_row_paths(m, &x->times, &x->counts, PART, add_path, x, err))
        goto out;
    x->n_with_ways = x->n;
    for (size_t i = 0; x->n < x->most; i++) {
        double step = STEP / m->graph->n_rows / sqrt(1 + SLOWER * (double)i);
        pp_cuts_set_times(x, bounds);
        scale_times(x, shrink);
        pp_makespan(m, &x->times);
        pp_makespan_path(m, &x->times, &x->counts);
        pp_cuts_add(x);
        answer(x, step, shrink + x->n_stages, shrink);
    }
    rc = 0;
out:
    free(shrink);
    return rc;
}
