/* SPDX-License-Identifier: MIT */
/* A destructive bound: assume that the step takes no longer than a time, and
 * refute it. Heads and tails give each action a window, from its earliest start
 * to its latest end. Windows shrink by rules that hold for every order, until
 * none applies or a window is too small; then no order is that short.
 *
 *   data, order  an action follows its inputs and its stage's last microbatch
 *   rank         edge finding: if some actions of a rank, with one more, cannot
 *                all end by the last end of the others, the one comes after
 *                them (Carlier and Pinson, "An algorithm for solving the
 *                job-shop problem", Management Science 35, 1989; the quadratic
 *                form is that of Baptiste, Le Pape and Nuijten,
 *                "Constraint-Based Scheduling", 2001)
 *   memory       F starts only if the microbatches that must be held at that
 *                time leave room for it, and W ends while they do
 *
 * Edge finding backwards in time negates the times. Then windows are shaved: if
 * an action cannot begin in the first part of its window, because that is
 * refuted, the window loses this part; and so at its end (Martin and Shmoys, "A
 * new approach to computing optimal schedules for the job-shop scheduling
 * problem", IPCO 1996). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/bound/bound_parts.h"

/* WORK: comparisons in all; PART: for one makespan. STEPS: makespans tried up
 * to twice the known bound. */
enum { WORK = 1 << 27, PART = 1 << 25, STEPS = 128 };

/* Shaving parts of windows below this share of the makespan is not worth it. */
#define LEAST_PART 1e-4

struct window_task {
    double from, until, time; /* earliest start, latest end */
    int op;
    size_t at;
    double pushed, after; /* scratch of edge finding */
};

struct windows {
    const struct pp_bound_case *c;
    size_t n;                                         /* actions of a kind */
    double *from[PP_BOUND_OPS], *until[PP_BOUND_OPS]; /* by stage * n + k */
    double *kept; /* copies of these, while a part of a window is assumed */
    struct window_task *tasks; /* of one rank */
    struct window_task **sorted;
    bool *is_changed; /* by rank: since its last edge finding */
    double eps, work, part;
    bool changed, refuted;
};

static bool is_spent(const struct windows *w)
{
    return w->work <= 0 || w->part <= 0;
}

static void spend(struct windows *w, size_t work)
{
    w->work -= (double)work;
    w->part -= (double)work;
}

static void note_change(struct windows *w, size_t at)
{
    w->changed = true;
    w->is_changed[w->c->g->stages[at / w->c->n].row] = true;
}

static void raise_from(struct windows *w, int op, size_t at, double to)
{
    if (to > w->from[op][at] + w->eps) {
        w->from[op][at] = to;
        note_change(w, at);
    }
}

static void lower_until(struct windows *w, int op, size_t at, double to)
{
    if (to < w->until[op][at] - w->eps) {
        w->until[op][at] = to;
        note_change(w, at);
    }
}

static double time_of(const struct windows *w, int op, size_t at)
{
    return w->c->stages[at / w->c->n].time[op];
}

/* Makes action b start at least `time` after action a ends. */
static void follow(struct windows *w, int op_a, size_t a, int op_b, size_t b,
                   double time)
{
    raise_from(w, op_b, b, w->from[op_a][a] + time_of(w, op_a, a) + time);
    lower_until(w, op_a, a, w->until[op_b][b] - time_of(w, op_b, b) - time);
}

static void follow_data(struct windows *w, int s, size_t k)
{
    const struct pp_bound_case *c = w->c;
    const struct pp_stage_node *node = &c->g->stages[s];
    size_t at = (size_t)s * c->n + k;
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        if (k + 1 < c->n)
            follow(w, op, at, op, at + 1, 0);
        if (op + 1 < PP_BOUND_OPS)
            follow(w, op, at, op + 1, at, 0);
    }
    for (int i = 0; i < node->n_inputs; i++) {
        size_t from = (size_t)node->inputs[i] * c->n + k;
        size_t e = c->first_edge[s] + (size_t)i;
        follow(w, PP_BOUND_F, from, PP_BOUND_F, at, c->forward[e]);
        if (pp_sends_gradient(c->g, node->inputs[i]))
            follow(w, PP_BOUND_I, at, PP_BOUND_I, from, c->backward[e]);
    }
}

static void follow_all(struct windows *w)
{
    const struct pp_bound_case *c = w->c;
    for (int s = 0; s < c->g->n_stages; s++)
        for (size_t k = 0; k < c->n; k++)
            follow_data(w, s, k);
    for (int s = c->g->n_stages; s-- > 0;)
        for (size_t k = c->n; k-- > 0;)
            follow_data(w, s, k);
}

/* Collects the actions of a rank that take time. */
static size_t collect(struct windows *w, int row)
{
    const struct pp_bound_case *c = w->c;
    size_t n = 0;
    for (int s = 0; s < c->g->n_stages; s++)
        for (int op = 0; op < PP_BOUND_OPS && c->g->stages[s].row == row; op++)
            for (size_t k = 0; k < c->n && c->stages[s].time[op] > 0; k++) {
                size_t at = (size_t)s * c->n + k;
                w->tasks[n++] = (struct window_task){
                    .time = c->stages[s].time[op], .op = op, .at = at};
            }
    return n;
}

static int by_from(const void *pa, const void *pb)
{
    const struct window_task *a = *(struct window_task *const *)pa;
    const struct window_task *b = *(struct window_task *const *)pb;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return (a > b) - (a < b);
}

/* Finds what must come after all tasks that end by `end`. Tasks are sorted by
 * from. */
static void push_after(struct windows *w, size_t n, double end)
{
    double sum = 0, last = -INFINITY, most = -INFINITY;
    for (size_t i = n; i-- > 0;) {
        struct window_task *t = w->sorted[i];
        if (t->until <= end) {
            sum += t->time;
            last = fmax(last, t->from + sum);
        }
        t->after = last;
    }
    w->refuted |= last > end + w->eps;
    for (size_t i = 0; i < n; i++) {
        struct window_task *t = w->sorted[i];
        if (t->until <= end) {
            most = fmax(most, t->from + sum);
            sum -= t->time;
            continue;
        }
        if (t->from + sum + t->time > end + w->eps)
            t->pushed = fmax(t->pushed, t->after);
        if (most + t->time > end + w->eps)
            t->pushed = fmax(t->pushed, last);
    }
}

/* Does edge finding on a rank, forwards or backwards in time. */
static void find_edges(struct windows *w, size_t n, bool backwards)
{
    for (size_t i = 0; i < n; i++) {
        struct window_task *t = &w->tasks[i];
        double from = w->from[t->op][t->at], until = w->until[t->op][t->at];
        t->from = backwards ? -until : from;
        t->until = backwards ? -from : until;
        t->pushed = t->from;
        w->sorted[i] = t;
    }
    qsort(w->sorted, n, sizeof(struct window_task *), by_from);
    for (size_t i = 0; i < n && !w->refuted; i++)
        push_after(w, n, w->tasks[i].until);
    spend(w, n * n);
    for (size_t i = 0; i < n; i++) {
        struct window_task *t = &w->tasks[i];
        if (backwards)
            lower_until(w, t->op, t->at, -t->pushed);
        else
            raise_from(w, t->op, t->at, t->pushed);
    }
}

/* --- memory --- */

static double held_by_both(struct pp_load l)
{
    return l.f_to_i + l.f_to_w;
}

/* Returns the least that microbatch k of stage s can hold at a time, if its F
 * has begun. *next becomes the next time at which it may hold less. */
static double least_held(const struct windows *w, int s, size_t k, double now,
                         double *next)
{
    const struct pp_bound_stage *stage = &w->c->stages[s];
    size_t at = (size_t)s * w->c->n + k;
    double both = held_by_both(stage->load);
    double after_i = fmin(both, stage->load.f_to_w + stage->load.i_to_w);
    double i_end = w->from[PP_BOUND_I][at] + stage->time[PP_BOUND_I];
    double w_end = w->from[PP_BOUND_W][at] + stage->time[PP_BOUND_W];
    if (now < i_end - w->eps)
        *next = fmin(*next, i_end);
    else if (now < w_end - w->eps)
        *next = fmin(*next, w_end);
    return now >= w_end - w->eps ? 0 : now >= i_end - w->eps ? after_i : both;
}

/* Returns the latest start of F(k) of stage s. */
static double latest_start(const struct windows *w, int s, size_t k)
{
    return w->until[PP_BOUND_F][(size_t)s * w->c->n + k] -
           w->c->stages[s].time[PP_BOUND_F];
}

/* Returns the least that stage t can hold at a time. Microbatches before
 * n_begun have begun for certain. */
static double least_of_stage(struct windows *w, int t, size_t n_begun,
                             double now, double *next)
{
    double held = 0;
    for (size_t k = 0; k < w->c->n; k++) {
        if (k >= n_begun && latest_start(w, t, k) >= now - w->eps)
            break;
        held += least_held(w, t, k, now, next);
    }
    spend(w, w->c->n);
    return held;
}

/* Delays F(k) of stage s until the others on its rank may leave room. */
static void make_windows_fit(struct windows *w, int s, size_t k)
{
    const struct pp_bound_case *c = w->c;
    int row = c->g->stages[s].row;
    size_t at = (size_t)s * c->n + k;
    double limit = c->limit[row] * (1 + 1e-9);
    for (double now = w->from[PP_BOUND_F][at];;) {
        double next = INFINITY, held = held_by_both(c->stages[s].load);
        for (int t = 0; t < c->g->n_stages; t++)
            if (c->g->stages[t].row == row)
                held += least_of_stage(w, t, t == s ? k : 0, now, &next);
        if (held <= limit) {
            raise_from(w, PP_BOUND_F, at, now);
            return;
        }
        if (next == INFINITY) {
            w->refuted = true;
            return;
        }
        now = next;
    }
}

static void fit_memory(struct windows *w, int row)
{
    const struct pp_bound_case *c = w->c;
    for (int s = 0; s < c->g->n_stages; s++)
        for (size_t k = 0; c->g->stages[s].row == row && k < c->n; k++)
            if (!w->refuted)
                make_windows_fit(w, s, k);
}

static void find_empty_windows(struct windows *w)
{
    for (int op = 0; op < PP_BOUND_OPS; op++)
        for (size_t at = 0; at < w->n; at++)
            w->refuted |= w->from[op][at] + time_of(w, op, at) >
                          w->until[op][at] + w->eps;
}

/* Shrinks windows until no rule applies. */
static void shrink(struct windows *w)
{
    const struct pp_bound_case *c = w->c;
    do {
        w->changed = false;
        follow_all(w);
        spend(w, 4 * w->n);
        for (int r = 0; r < c->g->n_rows && !w->refuted; r++) {
            if (!w->is_changed[r])
                continue;
            w->is_changed[r] = false;
            size_t n = collect(w, r);
            find_edges(w, n, false);
            find_edges(w, n, true);
            fit_memory(w, r);
        }
        find_empty_windows(w);
    } while (w->changed && !w->refuted && !is_spent(w));
}

/* Keeps the windows, or takes them back. */
static void keep_windows(struct windows *w)
{
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        double *kept = w->kept + 2 * w->n * (size_t)op;
        memcpy(kept, w->from[op], w->n * sizeof *kept);
        memcpy(kept + w->n, w->until[op], w->n * sizeof *kept);
    }
}

static void restore_windows(struct windows *w)
{
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        const double *kept = w->kept + 2 * w->n * (size_t)op;
        memcpy(w->from[op], kept, w->n * sizeof *kept);
        memcpy(w->until[op], kept + w->n, w->n * sizeof *kept);
    }
    memset(w->is_changed, 0, (size_t)w->c->g->n_rows * sizeof *w->is_changed);
    w->refuted = false;
}

/* Cuts off the first part of a window, or the last, if the action cannot begin
 * in it, or end in it. Returns whether that is so. */
static bool shave_window(struct windows *w, int op, size_t at, double part,
                         bool last)
{
    double from = w->from[op][at], until = w->until[op][at];
    /* A window is cut a little less than what is refuted. */
    double width = time_of(w, op, at) + part, cut = part - 4 * w->eps;
    if (until - from < width - w->eps)
        return false;
    keep_windows(w);
    if (last)
        raise_from(w, op, at, until - width + 2 * w->eps);
    else
        lower_until(w, op, at, from + width - 2 * w->eps);
    shrink(w);
    bool refuted = w->refuted;
    restore_windows(w);
    if (!refuted)
        return false;
    if (last)
        lower_until(w, op, at, until - cut);
    else
        raise_from(w, op, at, from + cut);
    shrink(w);
    return true;
}

/* Shaves all windows. Returns whether that changed any. */
static bool shave_windows(struct windows *w, double part)
{
    bool changed = false;
    for (int last = 0; last < 2; last++)
        for (size_t at = 0; at < w->n; at++)
            for (int op = 0; op < PP_BOUND_OPS; op++)
                while (time_of(w, op, at) > 0 && !w->refuted && !is_spent(w) &&
                       shave_window(w, op, at, part, last))
                    changed = true;
    return changed;
}

/* Returns whether no order takes `makespan` or less. */
static bool is_refuted(struct windows *w, double makespan, double part)
{
    const struct pp_bound_case *c = w->c;
    w->eps = 1e-9 * makespan;
    w->refuted = false;
    w->part = PART;
    for (int op = 0; op < PP_BOUND_OPS; op++)
        for (size_t i = 0; i < w->n; i++) {
            w->from[op][i] = c->head[op][i];
            w->until[op][i] = makespan - c->tail[op][i];
        }
    for (int r = 0; r < c->g->n_rows; r++)
        w->is_changed[r] = true;
    shrink(w);
    while (!w->refuted && !is_spent(w) && shave_windows(w, part))
        ;
    return w->refuted;
}

/* Returns the largest number that divides all times into whole parts, or 0 if
 * they are not whole numbers. Makespans are multiples of it. */
static double common_part(const struct pp_bound_case *c)
{
    double part = 0;
    for (int s = 0; s < c->g->n_stages; s++)
        for (int i = -PP_BOUND_OPS; i < 2 * c->g->stages[s].n_inputs; i++) {
            size_t e = c->first_edge[s] + (size_t)(i > 0 ? i / 2 : 0);
            double time = i < 0   ? c->stages[s].time[i + PP_BOUND_OPS]
                          : i % 2 ? c->forward[e]
                                  : c->backward[e];
            if (time != floor(time) || time > 1e6)
                return 0;
            while (time > 0) {
                double rest = fmod(part, time);
                part = time;
                time = rest;
            }
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

/* Raises the bound as long as makespans are refuted, first in large steps. */
static double raise_makespan(struct windows *w, double known)
{
    double unit = common_part(w->c), part = least_time(w->c), low = known;
    double step = known / STEPS, least = unit > 0 ? unit : step / 8;
    if (part == INFINITY || part < known * LEAST_PART)
        return known;
    if (unit > 0) {
        low = unit * (ceil(known / unit * (1 - 1e-9)) - 1);
        step = unit * ceil(step / unit);
    }
    while (w->work > 0 && low < 2 * known) {
        if (is_refuted(w, low + step, part))
            low += step;
        else if (step <= least)
            break;
        else
            step = unit > 0 ? unit * floor(step / unit / 2) : step / 2;
    }
    /* The next multiple is the bound. */
    return fmax(known, unit > 0 ? low + unit : low);
}

double pp_bound_windows(const struct pp_bound_case *c, double known,
                        struct pp_err *err)
{
    size_t n = (size_t)c->g->n_stages * c->n;
    struct windows w = {.c = c, .n = n, .work = WORK};
    bool ok = true;
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        w.from[op] = calloc(n, sizeof *w.from[op]);
        w.until[op] = calloc(n, sizeof *w.until[op]);
        ok = ok && w.from[op] && w.until[op];
    }
    w.kept = calloc(2 * n * PP_BOUND_OPS, sizeof *w.kept);
    w.tasks = calloc(n * PP_BOUND_OPS, sizeof *w.tasks);
    w.sorted = calloc(n * PP_BOUND_OPS, sizeof *w.sorted);
    w.is_changed = calloc((size_t)c->g->n_rows, sizeof *w.is_changed);
    double bound = -1;
    if (!ok || !w.kept || !w.tasks || !w.sorted || !w.is_changed)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else
        bound = raise_makespan(&w, known);
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        free(w.from[op]);
        free(w.until[op]);
    }
    free(w.kept);
    free(w.tasks);
    free(w.sorted);
    free(w.is_changed);
    return bound;
}
