/* SPDX-License-Identifier: MIT */
/* The rules that shrink windows. */
#include "schedule/bound/bound_windows.h"

#include <math.h>
#include <stdlib.h>

static void spend(struct pp_windows *w, size_t work)
{
    w->work -= (double)work;
    w->part -= (double)work;
}

/* Notes a changed window, which may be too small now. */
static void note_change(struct pp_windows *w, int op, size_t at)
{
    w->changed = true;
    w->is_changed[w->c->g->stages[at / w->c->n].row] = true;
    w->refuted |=
        w->from[op][at] + pp_window_time(w, op, at) > w->until[op][at] + w->eps;
}

void pp_window_raise(struct pp_windows *w, int op, size_t at, double to)
{
    if (to > w->from[op][at] + w->eps) {
        w->from[op][at] = to;
        note_change(w, op, at);
    }
}

void pp_window_lower(struct pp_windows *w, int op, size_t at, double to)
{
    if (to < w->until[op][at] - w->eps) {
        w->until[op][at] = to;
        note_change(w, op, at);
    }
}

/* Makes action b start at least `time` after action a ends. */
static void follow(struct pp_windows *w, int op_a, size_t a, int op_b, size_t b,
                   double time)
{
    pp_window_raise(w, op_b, b,
                    w->from[op_a][a] + pp_window_time(w, op_a, a) + time);
    pp_window_lower(w, op_a, a,
                    w->until[op_b][b] - pp_window_time(w, op_b, b) - time);
}

/* Keeps a stage from being too far ahead of those below it. */
static void follow_below(struct pp_windows *w, int s, size_t k)
{
    const struct pp_bound_case *c = w->c;
    const struct pp_bound_stage *stage = &c->stages[s];
    size_t at = (size_t)s * c->n;
    for (int i = 0; i < stage->n_below; i++) {
        size_t below = (size_t)stage->below[i] * c->n;
        if (k + stage->ahead_f[i] < c->n)
            follow(w, PP_BOUND_F, below + k, PP_BOUND_F,
                   at + k + stage->ahead_f[i], 0);
        if (k + stage->ahead_w[i] < c->n)
            follow(w, PP_BOUND_W, at + k, PP_BOUND_W,
                   below + k + stage->ahead_w[i], 0);
    }
}

static void follow_data(struct pp_windows *w, int s, size_t k)
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
    follow_below(w, s, k);
    for (int i = 0; i < node->n_inputs; i++) {
        size_t from = (size_t)node->inputs[i] * c->n + k;
        size_t e = c->first_edge[s] + (size_t)i;
        follow(w, PP_BOUND_F, from, PP_BOUND_F, at, c->forward[e]);
        if (pp_sends_gradient(c->g, node->inputs[i]))
            follow(w, PP_BOUND_I, at, PP_BOUND_I, from, c->backward[e]);
    }
}

static void follow_all(struct pp_windows *w)
{
    const struct pp_bound_case *c = w->c;
    for (int s = 0; s < c->g->n_stages && !w->refuted; s++)
        for (size_t k = 0; k < c->n; k++)
            follow_data(w, s, k);
    for (int s = c->g->n_stages; s-- > 0 && !w->refuted;)
        for (size_t k = c->n; k-- > 0;)
            follow_data(w, s, k);
}

/* Collects the actions of each rank that take time. */
static void collect_actions(struct pp_windows *w)
{
    const struct pp_bound_case *c = w->c;
    size_t n = 0;
    for (int row = 0; row < c->g->n_rows; row++) {
        size_t first = n;
        for (int s = 0; s < c->g->n_stages; s++)
            for (int op = 0; op < PP_BOUND_OPS; op++)
                for (size_t k = 0; k < c->n; k++)
                    if (c->g->stages[s].row == row && c->stages[s].time[op] > 0)
                        w->actions[n++] =
                            (struct window_action){op, (size_t)s * c->n + k};
        for (size_t i = first; i < n; i++)
            w->by_from[i] = w->by_until[i] = (uint32_t)(i - first);
        w->first_action[row] = first;
        w->first_action[row + 1] = n;
    }
}

/* Sorts tasks by from, or by falling until; they are nearly sorted. */
static void sort_tasks(const struct pp_edge_task *tasks, size_t n, bool until,
                       uint32_t *order)
{
    for (size_t i = 1; i < n; i++) {
        uint32_t x = order[i];
        double key = until ? -tasks[x].until : tasks[x].from;
        size_t k = i;
        for (; k > 0; k--) {
            const struct pp_edge_task *t = &tasks[order[k - 1]];
            if ((until ? -t->until : t->from) <= key)
                break;
            order[k] = order[k - 1];
        }
        order[k] = x;
    }
}

/* Does edge finding on a rank, forwards and backwards in time. */
static void find_edges(struct pp_windows *w, int row)
{
    size_t first = w->first_action[row];
    size_t n = w->first_action[row + 1] - first;
    const struct window_action *a = w->actions + first;
    struct pp_edge_task *t = w->tasks;
    uint32_t *by_from = w->by_from + first, *by_until = w->by_until + first;
    for (size_t i = 0; i < n; i++) {
        double from = w->from[a[i].op][a[i].at];
        double until = w->until[a[i].op][a[i].at];
        t[i] = (struct pp_edge_task){from, until,
                                     pp_window_time(w, a[i].op, a[i].at), from};
    }
    sort_tasks(t, n, false, by_from);
    sort_tasks(t, n, true, by_until);
    w->refuted |=
        !pp_edges_find(t, n, by_from, by_until, w->eps, w->leaf, w->nodes);
    spend(w, 16 * n);
    if (w->refuted)
        return;
    for (size_t i = 0; i < n; i++) {
        pp_window_raise(w, a[i].op, a[i].at, t[i].pushed);
        double from = t[i].from;
        t[i].from = t[i].pushed = -t[i].until;
        t[i].until = -from;
    }
    w->refuted |=
        !pp_edges_find(t, n, by_until, by_from, w->eps, w->leaf, w->nodes);
    for (size_t i = 0; i < n; i++)
        pp_window_lower(w, a[i].op, a[i].at, -t[i].pushed);
}

/* --- memory --- */

/* Returns the least that microbatch k of stage s can hold at a time, if its F
 * has begun. *next becomes the next time at which it may hold less. */
static double least_held(const struct pp_windows *w, int s, size_t k,
                         double now, double *next)
{
    const struct pp_bound_stage *stage = &w->c->stages[s];
    size_t at = (size_t)s * w->c->n + k;
    double both = pp_bound_held(stage->load);
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
static double latest_start(const struct pp_windows *w, int s, size_t k)
{
    return w->until[PP_BOUND_F][(size_t)s * w->c->n + k] -
           w->c->stages[s].time[PP_BOUND_F];
}

/* Returns the least that stage t can hold at a time. Microbatches before
 * n_begun have begun for certain. */
static double least_of_stage(struct pp_windows *w, int t, size_t n_begun,
                             double now, double *next)
{
    double held = 0;
    size_t k = 0;
    for (; k < w->c->n; k++) {
        if (k >= n_begun && latest_start(w, t, k) >= now - w->eps)
            break;
        held += least_held(w, t, k, now, next);
    }
    spend(w, k / 4);
    return held;
}

/* Returns how many microbatches of stage t have begun when F(k) of stage s of
 * the same rank begins. */
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

/* Delays F(k) of stage s until the others on its rank may leave room. */
static void make_windows_fit(struct pp_windows *w, int s, size_t k)
{
    const struct pp_bound_case *c = w->c;
    int row = c->g->stages[s].row;
    size_t at = (size_t)s * c->n + k;
    double limit = c->limit[row] * (1 + 1e-9);
    for (double now = w->from[PP_BOUND_F][at];;) {
        double next = INFINITY, held = pp_bound_held(c->stages[s].load);
        for (int t = 0; t < c->g->n_stages; t++)
            if (c->g->stages[t].row == row)
                held +=
                    least_of_stage(w, t, begun_before(c, t, s, k), now, &next);
        if (held <= limit) {
            pp_window_raise(w, PP_BOUND_F, at, now);
            return;
        }
        if (next == INFINITY) {
            w->refuted = true;
            return;
        }
        now = next;
    }
}

static void fit_memory(struct pp_windows *w, int row)
{
    const struct pp_bound_case *c = w->c;
    for (int s = 0; s < c->g->n_stages; s++)
        for (size_t k = 0; c->g->stages[s].row == row && k < c->n; k++)
            if (!w->refuted)
                make_windows_fit(w, s, k);
}

void pp_windows_shrink(struct pp_windows *w, int most)
{
    const struct pp_bound_case *c = w->c;
    do {
        w->changed = false;
        follow_all(w);
        spend(w, 2 * w->n);
        for (int r = 0; r < c->g->n_rows && !w->refuted; r++) {
            if (!w->is_changed[r])
                continue;
            w->is_changed[r] = false;
            fit_memory(w, r);
            if (!w->refuted)
                find_edges(w, r);
        }
    } while (w->changed && !w->refuted && --most > 0 && !pp_windows_spent(w));
}

bool pp_windows_init(struct pp_windows *w, const struct pp_bound_case *c)
{
    *w = (struct pp_windows){.c = c, .n = (size_t)c->g->n_stages * c->n};
    size_t n = PP_BOUND_OPS * w->n, rows = (size_t)w->c->g->n_rows;
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        w->from[op] = calloc(w->n, sizeof *w->from[op]);
        w->until[op] = calloc(w->n, sizeof *w->until[op]);
        if (!w->from[op] || !w->until[op])
            return false;
    }
    w->kept = calloc(2 * n, sizeof *w->kept);
    w->known = calloc(2 * n, sizeof *w->known);
    w->actions = calloc(n, sizeof *w->actions);
    w->first_action = calloc(rows + 1, sizeof *w->first_action);
    w->tasks = calloc(n, sizeof *w->tasks);
    w->by_from = calloc(n, sizeof *w->by_from);
    w->by_until = calloc(n, sizeof *w->by_until);
    w->leaf = calloc(n, sizeof *w->leaf);
    w->nodes = calloc(pp_edge_nodes(n), sizeof *w->nodes);
    w->is_changed = calloc(rows, sizeof *w->is_changed);
    bool ok = w->kept && w->known && w->actions && w->first_action &&
              w->tasks && w->by_from && w->by_until && w->leaf && w->nodes &&
              w->is_changed;
    if (ok)
        collect_actions(w);
    return ok;
}

void pp_windows_finish(struct pp_windows *w)
{
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        free(w->from[op]);
        free(w->until[op]);
    }
    free(w->kept);
    free(w->known);
    free(w->actions);
    free(w->first_action);
    free(w->tasks);
    free(w->by_from);
    free(w->by_until);
    free(w->leaf);
    free(w->nodes);
    free(w->is_changed);
    *w = (struct pp_windows){.c = NULL};
}
