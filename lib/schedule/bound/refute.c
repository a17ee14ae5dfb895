/* SPDX-License-Identifier: MIT */
/* Refutes makespans: windows are shaved until one is too small. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "schedule/bound/windows.h"

/* STEPS: the first makespan is above the known bound by 1 in so many. PARTS:
 * the last parts that are tried are the least time over so many. TRIAL_ROUNDS:
 * while a part of a window is assumed, edges are found in so many rounds, as
 * most parts are refuted in fewer, and only if no such part is left, in any
 * number. MAKESPANS: a makespan gets at most one in so many of the work. */
enum { STEPS = 64, PARTS = 8, TRIAL_ROUNDS = 1, MAKESPANS = 4 };

/* Work in a second on a machine of 2020, in steps of about 16 instructions. */
static const double work_per_second = 3e8;

/* Shaving parts of windows below this share of the makespan is not worth it. */
#define LEAST_PART 1e-4

/* Keeps the windows, or takes them back. */
static void keep_windows(struct pp_windows *w)
{
    memcpy(w->known, w->from, 2 * w->n_actions * sizeof *w->known);
}

static void restore_windows(struct pp_windows *w)
{
    memcpy(w->from, w->known, 2 * w->n_actions * sizeof *w->from);
    pp_windows_touch(w);
    w->refuted = false;
}

/* Cuts off the first part of a window, or the last, if the action cannot begin
 * in it, or end in it. Returns whether that is so. */
static bool shave_window(struct pp_windows *w, size_t at, double part,
                         bool last)
{
    double from = w->from[at], until = w->until[at];
    /* A window is cut a little less than what is refuted. */
    double width = w->ops.time[at] + part, cut = part - 4 * w->eps;
    if (until - from < width - w->eps)
        return false;
    pp_windows_assume(w);
    if (last)
        pp_window_raise(w, at, until - width + 2 * w->eps);
    else
        pp_window_lower(w, at, from + width - 2 * w->eps);
    pp_windows_shrink(w, w->rounds);
    bool refuted = w->refuted;
    pp_windows_forget(w);
    if (!refuted)
        return false;
    if (last)
        pp_window_lower(w, at, until - cut);
    else
        pp_window_raise(w, at, from + cut);
    pp_windows_shrink(w, INT_MAX);
    return true;
}

/* Shaves a window as often as that helps, by more and more. Returns whether it
 * changed. */
static bool shave_action(struct pp_windows *w, size_t at, double part,
                         bool last)
{
    bool changed = false;
    double cut = part;
    while (w->ops.time[at] > 0 && !w->refuted && !pp_windows_spent(w)) {
        if (shave_window(w, at, cut, last)) {
            changed = true;
            cut *= 2;
        } else if (cut > part) {
            cut = part;
        } else {
            break;
        }
    }
    return changed;
}

/* Shaves all windows, windows of the first microbatches first, or at their ends
 * windows of the last microbatches. Returns whether that changed any. */
static bool shave_windows(struct pp_windows *w, double part)
{
    const struct pp_bound_case *c = w->c;
    bool changed = false;
    for (int last = 0; last < 2; last++)
        for (size_t k = 0; k < c->n; k++)
            for (int s = 0; s < c->g->n_stages; s++)
                for (int op = 0; op < PP_BOUND_OPS; op++) {
                    size_t at = pp_window_of(w, op, s, last ? c->n - 1 - k : k);
                    changed |= shave_action(w, at, part, last);
                }
    return changed;
}

/* Sets the windows from heads and tails. */
static void set_windows(struct pp_windows *w, double makespan)
{
    const struct pp_bound_case *c = w->c;
    w->eps = 1e-9 * makespan;
    w->makespan = makespan;
    for (int op = 0; op < PP_BOUND_OPS; op++)
        for (size_t i = 0; i < w->n; i++) {
            w->from[(size_t)op * w->n + i] = c->head[op][i];
            w->until[(size_t)op * w->n + i] = makespan - c->tail[op][i];
        }
    keep_windows(w);
}

/* Returns whether no order takes `makespan` or less. The windows known of a
 * larger makespan hold for this one, and so do their ends less the difference:
 * an order that ends sooner may begin later. */
static bool is_refuted(struct pp_windows *w, double makespan, double part)
{
    double less = w->makespan - makespan;
    restore_windows(w);
    for (size_t at = 0; at < w->n_actions; at++)
        w->until[at] -= less;
    w->part = w->share;
    pp_windows_shrink(w, INT_MAX);
    double least = part / PARTS;
    w->rounds = TRIAL_ROUNDS;
    while (part >= least && !w->refuted && !pp_windows_spent(w)) {
        if (shave_windows(w, part))
            continue;
        part /= w->rounds == INT_MAX ? 2 : 1;
        w->rounds = INT_MAX;
    }
    if (!w->refuted) {
        w->makespan = makespan;
        keep_windows(w);
    }
    return w->refuted;
}

/* Returns the largest number of which both are multiples. */
static double common_divisor(double a, double b)
{
    while (b > 0) {
        double rest = fmod(a, b);
        a = b;
        b = rest;
    }
    return a;
}

/* Returns the largest number that divides all times into whole parts, or 0 if
 * they are not whole numbers. Makespans are multiples of it. */
static double common_part(const struct pp_bound_case *c)
{
    const struct pp_ops *d = &c->data;
    int32_t n_edges = d->in.first[d->n];
    double part = 0;
    for (int32_t i = 0; i < d->n + n_edges; i++) {
        double time = i < d->n ? d->time[i] : d->in.lag[i - d->n];
        if (time != floor(time) || time > 1e6)
            return 0;
        part = common_divisor(part, time);
    }
    return part;
}

static double least_time(const struct pp_bound_case *c)
{
    double least = INFINITY;
    for (int s = 0; s < c->g->n_stages; s++)
        for (int op = 0; op < PP_BOUND_OPS; op++)
            if (c->stages[s].time[op] > 0)
                least = fmin(least, c->stages[s].time[op]);
    return least;
}

/* Raises the bound as long as makespans below `reached` are refuted: by more
 * and more, and after the first that is not, by halving. */
static double raise_makespan(struct pp_windows *w, double known, double reached)
{
    double unit = common_part(w->c), part = least_time(w->c), low = known;
    double step = known / STEPS, least = unit > 0 ? unit : step / 8;
    double high = fmin(2 * known, reached);
    if (part == INFINITY || part < known * LEAST_PART)
        return known;
    if (unit > 0) {
        low = unit * (ceil(known / unit * (1 - 1e-9)) - 1);
        high = unit * ceil(high / unit * (1 - 1e-9));
        step = unit * ceil(step / unit);
    }
    set_windows(w, high);
    while (w->work > 0 && low + least < high * (1 - 1e-12)) {
        if (low + step >= high)
            step = unit > 0 ? unit * floor((high - low) / unit / 2)
                            : (high - low) / 2;
        if (is_refuted(w, low + step, part)) {
            low += step;
            step *= 2;
        } else {
            high = low + step;
        }
    }
    /* The next multiple is the bound. */
    return fmax(known, unit > 0 ? low + unit : low);
}

double pp_bound_windows(const struct pp_bound_case *c, double known,
                        double reached, double seconds, struct pp_err *err)
{
    struct pp_windows w;
    double bound = -1;
    if (!pp_windows_init(&w, c, err)) {
        w.work = seconds * work_per_second;
        w.share = w.work / MAKESPANS;
        bound = raise_makespan(&w, known, reached);
    }
    pp_windows_finish(&w);
    return bound;
}
