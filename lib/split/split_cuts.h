/* SPDX-License-Identifier: MIT */
/* split_cuts - sums that no partition's step can be below, private to the
 * split_*.c files.
 *
 * A path through the actions of a step takes, on each stage, some number of
 * the F, I and W of the units there, and some messages behind it: weights. A
 * cut is such a path. Stages are those of one copy; what the other copy's do
 * is added to them. */
#ifndef PP_SPLIT_SPLIT_CUTS_H
#define PP_SPLIT_SPLIT_CUTS_H

#include "split/split_step.h"

struct pp_cuts {
    const struct pp_split_step *problem;
    size_t n_units, n_stages; /* of one copy */
    size_t width;             /* times of a unit: PP_N_TIMES for each slice */
    double *before;           /* width for each unit, n_units + 1: sums of the
                                 times of those before it */
    double *message;          /* behind each unit; 0 behind the last */
    size_t n, most;           /* cuts there are, and there may be */
    size_t n_searched;        /* of them, those before the rows' ... */
    size_t n_with_rows;       /* ... and with these, before the ways ... */
    size_t n_with_ways;       /* ... and with these, before the level ones */
    double *weights;          /* of cut c: n_stages * (width + 1), the last of
                                 each stage being for messages */
    struct pp_times times, counts; /* scratch, of all stages */
    size_t n_pieces;               /* simulated so far */
};

int pp_cuts_init(struct pp_cuts *x, const struct pp_split_step *p, size_t most,
                 struct pp_err *err) PP_MUST_USE;
void pp_cuts_finish(struct pp_cuts *x);

/* The makespan of a partition; its longest path becomes a cut while there is
 * room. */
double pp_cuts_simulate(struct pp_cuts *x, const size_t *bounds);

/* The makespan alone. */
double pp_cuts_time(struct pp_cuts *x, const size_t *bounds);

/* Adds the path in counts, for which there is room. */
void pp_cuts_add(struct pp_cuts *x);

/* Sets times to a partition's. */
void pp_cuts_set_times(struct pp_cuts *x, const size_t *bounds);

/* Fills the room with cuts for a bound: for every rank a path that follows its
 * row, and one that takes a way through others in front and behind; then paths
 * that together weigh every stage about alike. */
int pp_cuts_generate(struct pp_cuts *x, const size_t *bounds,
                     struct pp_err *err) PP_MUST_USE;

static inline const double *pp_cut_weights(const struct pp_cuts *x, size_t cut,
                                           size_t stage)
{
    return &x->weights[(cut * x->n_stages + stage) * (x->width + 1)];
}

/* Weights times the units i .. j - 1, without messages. */
static inline double pp_cut_sum(const struct pp_cuts *x, const double *weights,
                                size_t i, size_t j)
{
    const double *from = &x->before[i * x->width];
    const double *to = &x->before[j * x->width];
    double sum = 0;
    for (size_t k = 0; k < x->width; k++)
        sum += weights[k] * (to[k] - from[k]);
    return sum;
}

/* A stage that holds the units i .. j - 1, and its messages. */
static inline double pp_cut_stage(const struct pp_cuts *x,
                                  const double *weights, size_t i, size_t j)
{
    return pp_cut_sum(x, weights, i, j) + weights[x->width] * x->message[j - 1];
}

/* The whole partition; no stage is empty. */
double pp_cut_cost(const struct pp_cuts *x, size_t cut, const size_t *bounds);

/* Of a stage's weights: least[s * (n_units + 1) + i] becomes the least that
 * stages s, s + 1, ... take with the units from i on, n_stages + 1 rows;
 * end, of the same size without the last row, where stage s then ends; it may
 * be NULL. weights is laid out as a cut's. */
void pp_cut_least(const struct pp_cuts *x, const double *weights, double *least,
                  uint32_t *end);

/* A makespan that no partition goes below, by the cuts there are: cuts, none of
 * which alone says much, together weighted as well as was found (Lagrange), and
 * what every stage takes by the cut that is heaviest there. best: a partition's
 * makespan. */
int pp_cuts_bound(const struct pp_cuts *x, double best, double *bound,
                  struct pp_err *err) PP_MUST_USE;

/* Tries all partitions, bounded by the cuts, for one that is better than
 * *best and fits in memory: then bounds and *best are its own. *whole: the
 * search came to its end. */
int pp_cuts_search(struct pp_cuts *x, size_t *bounds, double *best, bool *whole,
                   struct pp_err *err) PP_MUST_USE;

/* Whether a partition fits in memory, and begins its stages where it must. */
static inline bool pp_cuts_fits(const struct pp_cuts *x, const size_t *bounds)
{
    const struct pp_split_step *p = x->problem;
    if (p->fixed_stage && bounds[p->fixed_stage] != p->fixed_unit)
        return false;
    return !p->memory ||
           pp_split_memory_excess(p->memory, bounds, p->limit, NULL, NULL) <= 0;
}

/* Less by more than rounding. */
static inline bool pp_cuts_less(double a, double b)
{
    return a < b * (1 - 1e-10);
}

enum pp_feasibility {
    PP_FEASIBLE_UNKNOWN, /* stages lie otherwise, or it would take long */
    PP_FEASIBLE_FOUND,   /* bounds fit in memory, and no stage is empty */
    PP_FEASIBLE_NONE     /* no such partition does */
};

/* Sets bounds where some are found. There is memory. */
int pp_split_feasible(const struct pp_split_step *p, size_t *bounds,
                      enum pp_feasibility *answer,
                      struct pp_err *err) PP_MUST_USE;

#endif
