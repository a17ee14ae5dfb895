/* SPDX-License-Identifier: MIT */
/* bound_windows - the windows of a destructive bound, private to
 * lib/schedule/bound.
 *
 * Assume that the step takes no longer than a time, and refute it. Heads and
 * tails give each action a window, from its earliest start to its latest end.
 * Windows shrink by rules that hold for every order, until none applies or a
 * window is too small; then no order is that short.
 *
 *   data, order  an action follows its inputs and its stage's last microbatch
 *   ahead        a stage is not too far ahead of the stages below on its rank
 *   rank         edge finding (bound_edges.h)
 *   memory       F starts only if the microbatches that must be held at that
 *                time leave room for it
 *
 * Edge finding backwards in time negates the times. Then windows are shaved: if
 * an action cannot begin in the first part of its window, because that is
 * refuted, the window loses this part; and so at its end (Martin and Shmoys, "A
 * new approach to computing optimal schedules for the job-shop scheduling
 * problem", IPCO 1996). */
#ifndef PP_SCHEDULE_BOUND_BOUND_WINDOWS_H
#define PP_SCHEDULE_BOUND_BOUND_WINDOWS_H

#include "schedule/bound/bound_edges.h"
#include "schedule/bound/bound_parts.h"

struct pp_windows {
    const struct pp_bound_case *c;
    size_t n;                                         /* actions of a kind */
    double *from[PP_BOUND_OPS], *until[PP_BOUND_OPS]; /* by stage * n + k */
    double *kept;    /* copies of these, while a part of a window is assumed */
    double *known;   /* those known to hold for a makespan */
    double makespan; /* that makespan */
    int rounds;      /* most rounds of shrinking while a part is assumed */
    struct window_action {
        int op;
        size_t at;
    } * actions;          /* those that take time, rank by rank */
    size_t *first_action; /* per rank, n_rows + 1 */
    /* The tasks of a rank; and for each rank their numbers by earliest start
     * and by latest end, from the last time on. */
    struct pp_edge_task *tasks;
    uint32_t *by_from, *by_until, *leaf;
    struct pp_edge_node *nodes;
    bool *is_changed;       /* by rank: since its last edge finding */
    double eps, work, part; /* work, part: left in all, and for a makespan */
    bool changed, refuted;
};

static inline bool pp_windows_spent(const struct pp_windows *w)
{
    return w->work <= 0 || w->part <= 0;
}

static inline double pp_window_time(const struct pp_windows *w, int op,
                                    size_t at)
{
    return w->c->stages[at / w->c->n].time[op];
}

/* Returns false if memory runs out. Finish w in both cases. */
bool pp_windows_init(struct pp_windows *w, const struct pp_bound_case *c);
void pp_windows_finish(struct pp_windows *w);

/* Makes an action start no sooner, or end no later. Sets refuted if its window
 * is too small then. */
void pp_window_raise(struct pp_windows *w, int op, size_t at, double to);
void pp_window_lower(struct pp_windows *w, int op, size_t at, double to);

/* Shrinks windows until no rule applies, in so many rounds at most, or until
 * the work is spent. */
void pp_windows_shrink(struct pp_windows *w, int most);

#endif
