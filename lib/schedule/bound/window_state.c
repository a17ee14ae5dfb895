/* SPDX-License-Identifier: MIT */
/* The actions that have windows, the edges between them, and changes of
 * windows. */
#include "schedule/bound/windows.h"

#include <stdlib.h>

#include "base/alloc.h"

/* Collects the actions of each rank that take time. */
static void collect_actions(struct pp_windows *w)
{
    size_t n = 0;
    for (int row = 0; row < w->c->g->n_rows; row++) {
        size_t first = n;
        for (size_t at = 0; at < w->n_actions; at++)
            if (w->ops.row[at] == row && w->ops.time[at] > 0)
                w->actions[n++] = (uint32_t)at;
        for (size_t i = first; i < n; i++)
            w->by_from[i] = w->by_until[i] = (uint32_t)(i - first);
        w->first_action[row] = first;
        w->first_action[row + 1] = n;
    }
}

static void collect_stages(struct pp_windows *w)
{
    int n = 0;
    for (int row = 0; row < w->c->g->n_rows; row++) {
        w->first_stage[row] = n;
        for (int s = 0; s < w->c->g->n_stages; s++)
            if (w->c->g->stages[s].row == row)
                w->stages[n++] = s;
        w->first_stage[row + 1] = n;
    }
}

/* Makes an action wait for the last microbatch, its inputs, and the stages
 * below that its own may not be too far ahead of. */
static int add_waits(struct pp_windows *w, int32_t op, size_t k,
                     struct pp_err *err)
{
    const struct pp_bound_case *c = w->c;
    const struct pp_op_edges *in = &c->data.in;
    int kind = op / c->g->n_stages, s = op % c->g->n_stages;
    const struct pp_bound_stage *stage = &c->stages[s];
    int rc = k > 0 ? pp_ops_wait(&w->ops, w->ops.n - 2, 0, err) : 0;
    for (int32_t i = in->first[op]; i < in->first[op + 1] && !rc; i++)
        rc = pp_ops_wait(&w->ops, (int32_t)((size_t)in->op[i] * c->n + k),
                         in->lag[i], err);
    for (int i = 0; kind == PP_BOUND_F && i < stage->n_below && !rc; i++)
        if (k >= stage->ahead_f[i])
            rc = pp_ops_wait(&w->ops,
                             (int32_t)pp_window_of(w, kind, stage->below[i],
                                                   k - stage->ahead_f[i]),
                             0, err);
    for (int i = 0; kind == PP_BOUND_W && i < stage->n_above && !rc; i++) {
        const struct pp_bound_stage *above = &c->stages[stage->above[i]];
        for (int j = 0; j < above->n_below && !rc; j++)
            if (above->below[j] == s && k >= above->ahead_w[j])
                rc = pp_ops_wait(&w->ops,
                                 (int32_t)pp_window_of(w, kind, stage->above[i],
                                                       k - above->ahead_w[j]),
                                 0, err);
    }
    return rc;
}

static int add_actions(struct pp_windows *w, struct pp_err *err)
{
    const struct pp_ops *data = &w->c->data;
    if (pp_ops_init(&w->ops, w->n_actions, (size_t)data->n_rows, true, err))
        return -1;
    for (int32_t op = 0; op < data->n; op++)
        for (size_t k = 0; k < w->c->n; k++) {
            pp_ops_add(&w->ops, data->row[op], data->time[op]);
            if (add_waits(w, op, k, err))
                return -1;
        }
    pp_ops_link(&w->ops, true);
    return 0;
}

struct head {
    double time;
    uint32_t at;
};

static int compare_heads(const void *a, const void *b)
{
    const struct head *x = a, *y = b;
    return x->time != y->time ? (x->time > y->time) - (x->time < y->time)
                              : (x->at > y->at) - (x->at < y->at);
}

/* Gives each action its place in the order of heads. */
static void find_places(struct pp_windows *w)
{
    struct head *heads = pp_calloc(w->n_actions, sizeof *heads);
    for (size_t at = 0; at < w->n_actions; at++)
        heads[at] =
            (struct head){w->c->head[at / w->n][at % w->n], (uint32_t)at};
    qsort(heads, w->n_actions, sizeof *heads, compare_heads);
    for (size_t i = 0; i < w->n_actions; i++) {
        w->at_place[i] = heads[i].at;
        w->place[heads[i].at] = (uint32_t)i;
    }
    free(heads);
}

static void allocate(struct pp_windows *w)
{
    size_t n = w->n_actions, rows = (size_t)w->c->g->n_rows;
    w->from = pp_calloc(2 * n, sizeof *w->from);
    w->known = pp_calloc(2 * n, sizeof *w->known);
    w->place = pp_calloc(n, sizeof *w->place);
    w->at_place = pp_calloc(n, sizeof *w->at_place);
    w->changed_from = pp_calloc(n / 64 + 1, sizeof *w->changed_from);
    w->changed_until = pp_calloc(n / 64 + 1, sizeof *w->changed_until);
    w->trail = pp_calloc(2 * n, sizeof *w->trail);
    w->noted = pp_calloc(2 * n, sizeof *w->noted);
    w->actions = pp_calloc(n, sizeof *w->actions);
    w->first_action = pp_calloc(rows + 1, sizeof *w->first_action);
    w->tasks = pp_calloc(n, sizeof *w->tasks);
    w->by_from = pp_calloc(n, sizeof *w->by_from);
    w->by_until = pp_calloc(n, sizeof *w->by_until);
    w->leaf = pp_calloc(n, sizeof *w->leaf);
    w->nodes = pp_calloc(pp_edge_nodes(n), sizeof *w->nodes);
    w->stages = pp_calloc((size_t)w->c->g->n_stages, sizeof *w->stages);
    w->first_stage = pp_calloc(rows + 1, sizeof *w->first_stage);
    w->passed = pp_calloc((size_t)w->c->g->n_stages, sizeof *w->passed);
    w->is_changed = pp_calloc(rows, sizeof *w->is_changed);
    w->is_moved = pp_calloc(rows, sizeof *w->is_moved);
}

int pp_windows_init(struct pp_windows *w, const struct pp_bound_case *c,
                    struct pp_err *err)
{
    size_t n = (size_t)c->g->n_stages * c->n;
    *w = (struct pp_windows){.c = c, .n = n, .n_actions = PP_BOUND_OPS * n};
    allocate(w);
    w->until = w->from + w->n_actions;
    if (add_actions(w, err))
        return -1;
    collect_actions(w);
    collect_stages(w);
    find_places(w);
    return 0;
}

void pp_windows_finish(struct pp_windows *w)
{
    free(w->from);
    free(w->known);
    pp_ops_finish(&w->ops);
    free(w->place);
    free(w->at_place);
    free(w->changed_from);
    free(w->changed_until);
    free(w->trail);
    free(w->noted);
    free(w->actions);
    free(w->first_action);
    free(w->tasks);
    free(w->by_from);
    free(w->by_until);
    free(w->leaf);
    free(w->nodes);
    free(w->stages);
    free(w->first_stage);
    free(w->passed);
    free(w->is_changed);
    free(w->is_moved);
    *w = (struct pp_windows){.c = NULL};
}

/* --- changes --- */

/* Keeps a value while a part of a window is assumed. */
static void note_value(struct pp_windows *w, size_t at, double value)
{
    if (w->trial == 0 || w->noted[at] == w->trial)
        return;
    w->noted[at] = w->trial;
    w->trail[w->n_trail++] = (struct window_value){(uint32_t)at, value};
}

/* Notes a changed window, which may be too small now. */
static void note_change(struct pp_windows *w, uint64_t *changed, size_t at)
{
    uint32_t place = w->place[at];
    changed[place / 64] |= (uint64_t)1 << place % 64;
    w->is_changed[w->ops.row[at]] = w->is_moved[w->ops.row[at]] = true;
    w->refuted |= w->from[at] + w->ops.time[at] > w->until[at] + w->eps;
}

void pp_window_raise(struct pp_windows *w, size_t at, double to)
{
    if (to > w->from[at] + w->eps) {
        note_value(w, at, w->from[at]);
        w->from[at] = to;
        note_change(w, w->changed_from, at);
    }
}

void pp_window_lower(struct pp_windows *w, size_t at, double to)
{
    if (to < w->until[at] - w->eps) {
        note_value(w, w->n_actions + at, w->until[at]);
        w->until[at] = to;
        note_change(w, w->changed_until, at);
    }
}

/* Sets all marks of changes, or clears them. */
static void mark_all(struct pp_windows *w, bool changed)
{
    size_t rows = (size_t)w->c->g->n_rows;
    for (size_t i = 0; i < w->n_actions; i += 64) {
        size_t rest = w->n_actions - i;
        uint64_t all = rest < 64 ? ((uint64_t)1 << rest) - 1 : UINT64_MAX;
        w->changed_from[i / 64] = w->changed_until[i / 64] = changed ? all : 0;
    }
    for (size_t r = 0; r < rows; r++)
        w->is_changed[r] = w->is_moved[r] = changed;
}

void pp_windows_touch(struct pp_windows *w)
{
    mark_all(w, true);
}

void pp_windows_assume(struct pp_windows *w)
{
    w->trial = ++w->n_trials;
    w->n_trail = 0;
}

void pp_windows_forget(struct pp_windows *w)
{
    while (w->n_trail > 0) {
        const struct window_value *v = &w->trail[--w->n_trail];
        w->from[v->at] = v->value;
    }
    mark_all(w, false);
    w->trial = 0;
    w->refuted = false;
}
