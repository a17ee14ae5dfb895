/* SPDX-License-Identifier: MIT */
/* cuts - cuts: lower bounds of the makespan of every partition. Private
 * to lib/split.
 *
 * A path through the actions of a step passes, on each stage, some number of F,
 * I and W, and some messages after the stage. These numbers are the weights of
 * a cut. The makespan of any partition is at least the sum of its times, each
 * multiplied by its weight. Stages are the stages of one copy; the weights of
 * the other copy are added to them. */
#ifndef PP_SPLIT_CUTS_H
#define PP_SPLIT_CUTS_H

#include "split/step.h"

struct pp_cuts {
    const struct pp_split_step *problem;
    size_t n_units, n_stages; /* one copy of the weights */
    size_t width;             /* times of a unit: PP_N_TIMES for each slice */
    double *before;  /* (n_units + 1, width): sums of the times of the units
                        before each unit */
    double *message; /* time of the message after each unit; 0 for the last */
    size_t n, most;  /* number of cuts, and their limit */
    /* The cuts come in this order: cuts of the search, one along each row,
     * one for each row with detours, one for each row if it is slow, and means
     * of paths. These are the ends of the first four groups. */
    size_t n_from_search, n_with_rows, n_with_detours, n_with_slow;
    double *weights; /* (most, n_stages, width + 1), the last for messages */
    struct pp_times times, counts; /* scratch, for all stages */
    size_t n_pieces;               /* simulated so far */
    /* The needs of ranks, by the boundaries of their stages. An entry is
     * replaced by another one with the same hash. */
    size_t key_length, *keys, *trial_key;
    double *needs;
    size_t n_planned; /* ranks planned so far */
    int refuser;      /* the rank that did not fit last */
};

void pp_cuts_init(struct pp_cuts *x, const struct pp_split_step *p,
                  size_t most);
void pp_cuts_finish(struct pp_cuts *x);

/* Returns the makespan of a partition. Adds its longest path as a cut unless
 * the limit is reached. */
double pp_cuts_simulate(struct pp_cuts *x, const size_t *bounds);

/* Returns the makespan of a partition. */
double pp_cuts_time(struct pp_cuts *x, const size_t *bounds);

/* Writes the weights of the path in counts behind the last cut, and returns
 * them. There is room for one cut more than the limit. */
double *pp_cuts_next(struct pp_cuts *x);

/* Adds the path in counts as a cut. The limit is not reached. */
void pp_cuts_add(struct pp_cuts *x);

/* Generates cuts for a bound, up to the limit: for every row a path along it,
 * then a path that may leave it for other rows at either end, then the longest
 * path if the row is slow; and means of many paths, which come to weigh all
 * stages alike. Simulates that many steps. Sets split, which has room for
 * n_stages + 1 boundaries, to a partition that is good for these paths. */
void pp_cuts_generate(struct pp_cuts *x, const size_t *bounds, size_t steps,
                      size_t *split);

static inline const double *pp_cut_weights(const struct pp_cuts *x, size_t cut,
                                           size_t stage)
{
    return &x->weights[(cut * x->n_stages + stage) * (x->width + 1)];
}

/* Returns weights times the times of the units i .. j - 1, without messages. */
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

/* Returns the same with messages, for a stage that holds these units. */
static inline double pp_cut_stage(const struct pp_cuts *x,
                                  const double *weights, size_t i, size_t j)
{
    return pp_cut_sum(x, weights, i, j) + weights[x->width] * x->message[j - 1];
}

/* Returns a cut's bound for a partition without empty stages. */
double pp_cut_cost(const struct pp_cuts *x, size_t cut, const size_t *bounds);

/* Fills least, (n_stages + 1, n_units + 1): the least bound by these weights of
 * stages s, s + 1, ... with the units from i on. end, (n_stages, n_units + 1)
 * or NULL, is the end of stage s in that case. weights has a cut's layout. */
void pp_cut_least(const struct pp_cuts *x, const double *weights, double *least,
                  uint32_t *end);

/* Returns a lower bound of the makespan of all partitions from the cuts: the
 * larger of a Lagrangian bound, which combines all cuts, and a bound by the
 * heaviest cut of each stage. best is the makespan of some partition. */
double pp_cuts_bound(const struct pp_cuts *x, double best);

/* Searches all partitions by branch and bound, with the cuts as bounds, for one
 * that is better than *best and fits in memory. Sets bounds and *best if there
 * is one. Returns true if the search completed. */
bool pp_cuts_search(struct pp_cuts *x, size_t *bounds, double *best);

/* Returns true if a partition has the fixed units in their places and may fit
 * in memory: its buffers without the gaps between them fit. */
static inline bool pp_cuts_may_fit(const struct pp_cuts *x,
                                   const size_t *bounds)
{
    const struct pp_split_step *p = x->problem;
    if (!pp_split_keeps_fixed(p, bounds))
        return false;
    return !p->memory ||
           pp_split_memory_excess(p->memory, bounds, p->limit, NULL, NULL) <= 0;
}

/* Returns true if a partition has the fixed units in their places and fits in
 * memory with its buffers as they are planned. Takes much longer than
 * pp_cuts_may_fit. */
bool pp_cuts_fits(struct pp_cuts *x, const size_t *bounds);

/* Returns the bytes that a rank needs. The problem has need. */
double pp_cuts_need(struct pp_cuts *x, const size_t *bounds, int rank);

/* Returns true if a is less than b by more than rounding errors. */
static inline bool pp_cuts_less(double a, double b)
{
    return a < b * (1 - 1e-10);
}

enum pp_feasibility {
    PP_FEASIBLE_UNKNOWN, /* the placement is not supported, or the search
                            would take too long */
    PP_FEASIBLE_FOUND,   /* bounds may fit in memory, and no stage is empty */
    PP_FEASIBLE_NONE     /* no such partition fits */
};

/* Finds a partition that may fit in memory, or proves that none fits. Every
 * message counts as the smallest, and buffers have no gaps between them. Sets
 * bounds if one is found. p has a memory model. */
enum pp_feasibility pp_split_feasible(const struct pp_split_step *p,
                                      size_t *bounds);

#endif
