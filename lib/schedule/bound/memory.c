/* SPDX-License-Identifier: MIT */
/* Windows shrink by memory.
 *
 * A microbatch is held on a stage for certain from the latest start of its F to
 * the earliest end of its I, and in part to that of its W. F may begin only
 * when what the rank holds for certain leaves room for it. Backwards in time W
 * begins to hold and F ends it, so W may end only when there is room, too.
 *
 * While a rank runs an action it runs no other: an F that can only begin before
 * the action ends has begun before it, and a W that can only end after the
 * action begins ends after it. Microbatches of a stage are in order, so the
 * microbatches that have begun, or ended, are the first. */
#include "schedule/bound/windows.h"

#include <math.h>

/* The work for a microbatch, per pair of stages of a rank. */
enum { ROOM_WORK = 12 };

/* Returns how many of n rising times are at most `now`, from a guess on. */
static size_t count_until(const double *times, size_t n, double now, size_t at)
{
    while (at < n && times[at] <= now)
        at++;
    while (at > 0 && times[at - 1] > now)
        at--;
    return at;
}

/* Returns the least that a stage holds. */
static double least_held(struct pp_load l, struct pp_window_passed n)
{
    double both = pp_bound_held(l), held = 0;
    size_t whole = n.i_ended > n.w_ended ? n.i_ended : n.w_ended;
    size_t end = n.begun < n.i_ended ? n.begun : n.i_ended;
    if (n.begun > whole)
        held += (double)(n.begun - whole) * both;
    if (end > n.w_ended)
        held += (double)(end - n.w_ended) * fmin(both, l.f_to_w + l.i_to_w);
    return held;
}

/* Returns how many microbatches of stage t have begun when F(k) of stage s of
 * the same rank begins, by order alone. */
static size_t begun_before(const struct pp_bound_case *c, int t, int s,
                           size_t k)
{
    const struct pp_bound_stage *stage = &c->stages[s];
    if (t == s)
        return k;
    for (int i = 0; i < stage->n_above; i++)
        if (stage->above[i] == t)
            return k + 1;
    for (int i = 0; i < stage->n_below; i++)
        if (stage->below[i] == t && k >= stage->ahead_f[i])
            return k - stage->ahead_f[i] + 1;
    return 0;
}

/* Returns the first microbatch of stage t whose W comes after W(k) of stage s
 * of the same rank, by order alone. */
static size_t ended_after(const struct pp_bound_case *c, int t, int s, size_t k)
{
    const struct pp_bound_stage *stage = &c->stages[s];
    if (t == s)
        return k + 1;
    for (int i = 0; i < stage->n_below; i++)
        if (stage->below[i] == t)
            return k + stage->ahead_w[i];
    return c->n;
}

/* Counts what stage t has begun if an action of the rank begins at `now` and
 * takes `busy`, and what it can have ended at most by then. `first` have begun
 * by order. *n has a guess. */
static void pass(const struct pp_windows *w, int t, size_t first, double now,
                 double busy, struct pp_window_passed *n)
{
    const struct pp_bound_case *c = w->c;
    const double *time = c->stages[t].time;
    struct pp_load load = c->stages[t].load;
    const double *i = &w->from[pp_window_of(w, PP_BOUND_I, t, 0)];
    const double *ends = &w->from[pp_window_of(w, PP_BOUND_W, t, 0)];
    const double *begins = &w->until[pp_window_of(w, PP_BOUND_F, t, 0)];
    n->begun = count_until(
        begins, c->n, now + busy + time[PP_BOUND_F] - 2 * w->eps, n->begun);
    n->begun = n->begun > first ? n->begun : first;
    n->w_ended =
        count_until(ends, c->n, now + w->eps - time[PP_BOUND_W], n->w_ended);
    /* If I frees nothing on balance, its end does not matter. */
    n->i_ended =
        load.f_to_i <= load.i_to_w
            ? c->n
            : count_until(i, c->n, now + w->eps - time[PP_BOUND_I], n->i_ended);
}

/* Returns the next time at which stage t may hold less. */
static double next_end(const struct pp_windows *w, int t,
                       struct pp_window_passed n)
{
    const double *time = w->c->stages[t].time;
    double next = INFINITY;
    if (n.i_ended < n.begun)
        next = w->from[pp_window_of(w, PP_BOUND_I, t, n.i_ended)] +
               time[PP_BOUND_I];
    if (n.w_ended < n.begun)
        next = fmin(next, w->from[pp_window_of(w, PP_BOUND_W, t, n.w_ended)] +
                              time[PP_BOUND_W]);
    return next;
}

/* Delays F(k) of stage s until the others on its rank may leave room. */
static void begin_with_room(struct pp_windows *w, int s, size_t k)
{
    const struct pp_bound_case *c = w->c;
    size_t at = pp_window_of(w, PP_BOUND_F, s, k);
    int row = c->g->stages[s].row;
    double limit = c->limit[row] * (1 + 1e-9);
    for (double now = w->from[at];;) {
        double next = INFINITY, held = pp_bound_held(c->stages[s].load);
        for (int i = w->first_stage[row]; i < w->first_stage[row + 1]; i++) {
            int t = w->stages[i];
            pass(w, t, begun_before(c, t, s, k), now, w->ops.time[at],
                 &w->passed[t]);
            struct pp_window_passed n = w->passed[t];
            n.begun = t == s ? k : n.begun;
            held += least_held(c->stages[t].load, n);
            next = fmin(next, next_end(w, t, n));
        }
        if (held <= limit) {
            pp_window_raise(w, at, now);
            return;
        }
        if (next == INFINITY) {
            w->refuted = true;
            return;
        }
        now = next;
    }
}

/* Ends W(k) of stage s before the others on its rank must take its room. */
static void end_with_room(struct pp_windows *w, int s, size_t k)
{
    const struct pp_bound_case *c = w->c;
    size_t at = pp_window_of(w, PP_BOUND_W, s, k);
    int row = c->g->stages[s].row;
    double limit = c->limit[row] * (1 + 1e-9);
    for (double now = w->until[at];;) {
        struct pp_load own = c->stages[s].load;
        double next = -INFINITY, held = own.f_to_w + own.i_to_w;
        for (int i = w->first_stage[row]; i < w->first_stage[row + 1]; i++) {
            int t = w->stages[i];
            size_t first = begun_before(c, t, s, k);
            size_t ended = ended_after(c, t, s, k);
            /* An F that begins before W begins before W ends, too. */
            pass(w, t, first, now - w->ops.time[at], w->ops.time[at],
                 &w->passed[t]);
            struct pp_window_passed n = w->passed[t];
            n.w_ended = t == s || n.w_ended > ended ? ended : n.w_ended;
            held += least_held(c->stages[t].load, n);
            if (n.begun > first && n.begun > n.w_ended)
                next =
                    fmax(next,
                         w->until[pp_window_of(w, PP_BOUND_F, t, n.begun - 1)] -
                             c->stages[t].time[PP_BOUND_F]);
        }
        if (held <= limit) {
            pp_window_lower(w, at, now);
            return;
        }
        if (next == -INFINITY) {
            w->refuted = true;
            return;
        }
        now = next;
    }
}

void pp_windows_fit(struct pp_windows *w, int row)
{
    size_t n = w->c->n;
    int first = w->first_stage[row], end = w->first_stage[row + 1];
    for (int i = first; i < end; i++) {
        for (size_t k = 0; k < n && !w->refuted; k++)
            begin_with_room(w, w->stages[i], k);
        for (size_t k = n; k-- > 0 && !w->refuted;)
            end_with_room(w, w->stages[i], k);
    }
    size_t n_stages = (size_t)(end - first);
    pp_windows_spend(w, ROOM_WORK * n * n_stages * n_stages);
}
