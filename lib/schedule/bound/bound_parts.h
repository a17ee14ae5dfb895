/* SPDX-License-Identifier: MIT */
/* bound_parts - what the files of the lower bound share, private to
 * lib/schedule/bound.
 *
 * Whole backward is a split one whose W takes no time and holds nothing, so
 * there is only one case. "Case" is the work as the event graph sees it: every
 * microbatch takes, per stage, the least time of any. */
#ifndef PP_SCHEDULE_BOUND_BOUND_PARTS_H
#define PP_SCHEDULE_BOUND_BOUND_PARTS_H

#include "schedule/bound/bound.h"

enum { PP_BOUND_F, PP_BOUND_I, PP_BOUND_W, PP_BOUND_OPS };

/* Stages of the same rank that memory edges look at; fewer are valid too. */
enum { PP_BOUND_ABOVE = 8 };

struct pp_bound_stage {
    double time[PP_BOUND_OPS];
    /* What its rank has done before op k ends, for each of k + 1 microbatches,
     * and what it does from the start of the k-th from last on. */
    double before[PP_BOUND_OPS], after[PP_BOUND_OPS];
    struct pp_load load;
    int above[PP_BOUND_ABOVE]; /* the nearest on its rank that it depends on */
    int n_above;
};

struct pp_bound_case {
    const struct pp_graph *g;
    size_t n; /* microbatches, or slices of them */
    bool uniform;
    struct pp_bound_stage *stages;
    size_t *first_edge;          /* per stage: number of its first input */
    double *forward, *backward;  /* per edge: time of a message */
    double *work;                /* per rank: true sum over microbatches */
    double *times[PP_BOUND_OPS]; /* true; by stage * n + microbatch */
    const double *limit;         /* per rank, or NULL */
    double *row_head, *row_tail;
    /* Earliest start and least time from end to the end of all, by stage * n
     * + k, nondecreasing and nonincreasing in k. */
    double *head[PP_BOUND_OPS], *tail[PP_BOUND_OPS];
};

/* Reads the costs; everything but heads and tails. */
int pp_bound_read(struct pp_bound_case *c, bool split,
                  const struct pp_costs *costs,
                  const struct pp_memory_limit *room,
                  struct pp_err *err) PP_MUST_USE;
void pp_bound_finish(struct pp_bound_case *c);

/* Fills rank_head and rank_tail from data alone. Returns the critical path,
 * through the copy of the weights where it is shorter. */
double pp_bound_path(struct pp_bound_case *c);

/* Where there are copies of the weights: all the work, spread evenly over the
 * ranks, each with its head and tail. */
double pp_bound_copies(const struct pp_bound_case *c);

/* Fills head and tail. PP_EXIT_NO when a microbatch does not fit. */
int pp_bound_events(struct pp_bound_case *c, struct pp_err *err) PP_MUST_USE;

/* Where there are limits: the least time by which a rank can have run all that
 * must come before op k of a stage, and the least that all that must come after
 * it takes to the end. Asked in rising k for heads, falling for tails, when the
 * heads or tails of what is before or after are there. */
struct pp_bound_sets;
struct pp_bound_sets *pp_bound_sets_create(const struct pp_bound_case *c);
void pp_bound_sets_destroy(struct pp_bound_sets *sets);
double pp_bound_set_head(struct pp_bound_sets *sets, int s, int op, size_t k);
double pp_bound_set_tail(struct pp_bound_sets *sets, int s, int op, size_t k);

/* The preemptive one-machine bound of a rank; -1 when out of memory. stages:
 * those on it. */
double pp_bound_machine(const struct pp_bound_case *c, const int *stages,
                        int n_stages, struct pp_err *err);

/* Per stage, the sum over all microbatches of the least time from the start of
 * F to the end of I. malloc'ed; NULL when out of memory. */
double *pp_bound_holds(const struct pp_bound_case *c, struct pp_err *err);

/* Little's law on a rank with a limit; -1 when out of memory. */
double pp_bound_little(const struct pp_bound_case *c, const int *stages,
                       int n_stages, const double *hold, struct pp_err *err);

/* Where microbatches differ. Replaces heads and tails, for good, by those of
 * each microbatch's own data and times. */
void pp_bound_own_paths(struct pp_bound_case *c);

/* The preemptive one-machine bound on those; -1 when out of memory. */
double pp_bound_unequal(const struct pp_bound_case *c, const int *stages,
                        int n_stages, struct pp_err *err);

#endif
