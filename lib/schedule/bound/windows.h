/* SPDX-License-Identifier: MIT */
/* windows - the windows of a destructive bound, private to
 * lib/schedule/bound.
 *
 * Assume that the step takes no longer than a time, and refute it. Heads and
 * tails give each action a window, from its earliest start to its latest end.
 * Windows shrink by rules that hold for every order, until none applies or a
 * window is too small; then no order is that short.
 *
 *   data, order  an action follows its inputs and its stage's last microbatch
 *   ahead        a stage is not too far ahead of the stages below on its rank
 *   memory       memory.c
 *   rank         edge finding (edges.h)
 *
 * The rules that cost little come first, and each looks only at what changed.
 * Edge finding backwards in time negates the times. Then windows are shaved: if
 * an action cannot begin in the first part of its window, because that is
 * refuted, the window loses this part; and so at its end (Martin and Shmoys, "A
 * new approach to computing optimal schedules for the job-shop scheduling
 * problem", IPCO 1996). */
#ifndef PP_SCHEDULE_BOUND_WINDOWS_H
#define PP_SCHEDULE_BOUND_WINDOWS_H

#include "schedule/bound/edges.h"
#include "schedule/bound/parts.h"

/* Actions are numbered op * n + stage * (microbatches) + microbatch. */
struct pp_windows {
    const struct pp_bound_case *c;
    size_t n;             /* actions of a kind */
    size_t n_actions;     /* of all kinds */
    double *from, *until; /* until follows from in memory */
    double *known;        /* copies of both, known to hold for a makespan */
    double makespan;      /* that makespan */
    struct pp_ops ops;    /* the actions */
    /* The order of heads, in which changes pass on. changed_from and
     * changed_until are sets of places in it. */
    uint32_t *place, *at_place;
    uint64_t *changed_from, *changed_until;
    /* While a part of a window is assumed: what has changed, and its values
     * before. trial counts these times; 0: nothing is assumed. */
    struct window_value {
        uint32_t at; /* in from and until as one array */
        double value;
    } * trail;
    size_t n_trail;
    uint32_t trial, n_trials, *noted; /* noted: the trial of the last change */
    int rounds;        /* most rounds of edge finding while a part is assumed */
    uint32_t *actions; /* actions that take time, rank by rank */
    size_t *first_action; /* per rank, n_rows + 1 */
    /* The tasks of a rank; and for each rank their numbers by earliest start
     * and by latest end, from the last time on. */
    struct pp_edge_task *tasks;
    uint32_t *by_from, *by_until, *leaf;
    struct pp_edge_node *nodes;
    bool *is_changed, *is_moved; /* by rank: since edge finding, memory */
    int *stages, *first_stage;   /* the stages of each rank, n_rows + 1 */
    /* Per stage, where the last look at it ended: the numbers of microbatches
     * that have begun F, and ended I and W, for certain or at best. */
    struct pp_window_passed {
        size_t begun, i_ended, w_ended;
    } * passed;
    double eps;
    /* Work left in all and for a makespan, and what a makespan gets. */
    double work, part, share;
    bool refuted;
};

static inline bool pp_windows_spent(const struct pp_windows *w)
{
    return w->work <= 0 || w->part <= 0;
}

static inline void pp_windows_spend(struct pp_windows *w, size_t work)
{
    w->work -= (double)work;
    w->part -= (double)work;
}

/* Returns the number of an action. */
static inline size_t pp_window_of(const struct pp_windows *w, int op, int s,
                                  size_t k)
{
    return (size_t)op * w->n + (size_t)s * w->c->n + k;
}

/* Finish w in all cases. */
int pp_windows_init(struct pp_windows *w, const struct pp_bound_case *c,
                    struct pp_err *err) PP_MUST_USE;
void pp_windows_finish(struct pp_windows *w);

/* Makes an action start no sooner, or end no later. Sets refuted if its window
 * is too small then. */
void pp_window_raise(struct pp_windows *w, size_t at, double to);
void pp_window_lower(struct pp_windows *w, size_t at, double to);

/* Marks every window as changed. */
void pp_windows_touch(struct pp_windows *w);

/* Assumes what comes next, until pp_windows_forget takes it back. Nothing may
 * have changed since the last pp_windows_shrink. */
void pp_windows_assume(struct pp_windows *w);
void pp_windows_forget(struct pp_windows *w);

/* Shrinks windows until no rule applies, in so many rounds of edge finding at
 * most, or until the work is spent. */
void pp_windows_shrink(struct pp_windows *w, int most);

/* Delays each F of a rank until the microbatches that must be held leave it
 * room, and ends each W before others must take its room. */
void pp_windows_fit(struct pp_windows *w, int row);

#endif
