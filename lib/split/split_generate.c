/* SPDX-License-Identifier: MIT */
/* split_generate - cut generation for a bound. The longest path of one
 * partition bounds only the stages that it passes; a bound needs cuts for all
 * stages.
 *
 * Consider the relaxation in which any work may be on any stage. The least
 * makespan is then the value of a game: one player sets the times of stages,
 * the other answers with a longest path. With the multiplicative weights method
 * (Y. Freund, R. E. Schapire, "Adaptive game playing using multiplicative
 * weights", Games and Economic Behavior 29, 1999), the time of a stage
 * decreases exponentially with its weight in the paths so far. The times and
 * the mean of the paths then converge to a solution, in which all stages have
 * the same weight if that is possible. */
#include <math.h>
#include <stdlib.h>

#include "split/split_cuts.h"

/* Step size over the number of rows, and its decay. A smaller step would never
 * reach the other stages. */
static const double STEP = 0.5, SLOWER = 0.03;

/* Part of a row's work that a path may skip at either end for a detour through
 * other rows. */
static const double PART = 0.25;

static void add_path(void *ctx)
{
    struct pp_cuts *x = ctx;
    if (x->n < x->most)
        pp_cuts_add(x);
}

/* Multiplies every time of stage s by exp(-shrink[s]). */
static void scale_times(struct pp_cuts *x, const double *shrink)
{
    const struct pp_graph *g = x->problem->makespan->graph;
    for (int s = 0; s < g->n_stages; s++)
        for (int q = 0; q < g->n_slices; q++)
            for (int k = 0; k < PP_N_TIMES; k++)
                x->times.slice[s * g->n_slices + q][k] *=
                    exp(-shrink[pp_original(g, s)]);
}

/* Updates shrink: a stage's times decrease if the last cut has more than the
 * mean weight there. */
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
    x->n_from_search = x->n;
    if (pp_makespan_row_paths(m, &x->times, &x->counts, 0, add_path, x, err))
        goto out;
    x->n_with_rows = x->n;
    if (pp_makespan_row_paths(m, &x->times, &x->counts, PART, add_path, x, err))
        goto out;
    x->n_with_detours = x->n;
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
