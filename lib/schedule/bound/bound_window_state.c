/* SPDX-License-Identifier: MIT */
/* The actions that have windows, and the edges between them. */
#include "schedule/bound/bound_windows.h"

#include <stdlib.h>

/* Collects the actions of each rank that take time. */
static void collect_actions(struct pp_windows *w)
{
    size_t n = 0;
    for (int row = 0; row < w->c->g->n_rows; row++) {
        size_t first = n;
        for (size_t at = 0; at < w->n_actions; at++)
            if (w->row[at] == row && w->time[at] > 0)
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

/* Adds an edge, or counts it while there is no room yet: action b starts at
 * least `time` after action a ends. */
static void add_edge(struct pp_windows *w, size_t a, size_t b, double time)
{
    struct pp_window_edges *out = &w->after, *in = &w->before;
    if (!out->edges) {
        out->first[a + 2]++;
        in->first[b + 2]++;
        return;
    }
    out->edges[out->first[a + 1]++] =
        (struct pp_window_edge){(uint32_t)b, w->time[a] + time};
    in->edges[in->first[b + 1]++] =
        (struct pp_window_edge){(uint32_t)a, w->time[b] + time};
}

/* Keeps a stage from being too far ahead of those below it. */
static void add_edges_below(struct pp_windows *w, int s, size_t k)
{
    const struct pp_bound_case *c = w->c;
    const struct pp_bound_stage *stage = &c->stages[s];
    for (int i = 0; i < stage->n_below; i++) {
        int below = stage->below[i];
        if (k + stage->ahead_f[i] < c->n)
            add_edge(w, pp_window_of(w, PP_BOUND_F, below, k),
                     pp_window_of(w, PP_BOUND_F, s, k + stage->ahead_f[i]), 0);
        if (k + stage->ahead_w[i] < c->n)
            add_edge(w, pp_window_of(w, PP_BOUND_W, s, k),
                     pp_window_of(w, PP_BOUND_W, below, k + stage->ahead_w[i]),
                     0);
    }
}

static void add_edges(struct pp_windows *w, int s, size_t k)
{
    const struct pp_bound_case *c = w->c;
    const struct pp_stage_node *node = &c->g->stages[s];
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        size_t at = pp_window_of(w, op, s, k);
        if (k + 1 < c->n)
            add_edge(w, at, at + 1, 0);
        if (op + 1 < PP_BOUND_OPS)
            add_edge(w, at, at + w->n, 0);
    }
    add_edges_below(w, s, k);
    for (int i = 0; i < node->n_inputs; i++) {
        int t = node->inputs[i];
        size_t e = c->first_edge[s] + (size_t)i;
        add_edge(w, pp_window_of(w, PP_BOUND_F, t, k),
                 pp_window_of(w, PP_BOUND_F, s, k), c->forward[e]);
        if (pp_sends_gradient(c->g, t))
            add_edge(w, pp_window_of(w, PP_BOUND_I, s, k),
                     pp_window_of(w, PP_BOUND_I, t, k), c->backward[e]);
    }
}

static void add_all_edges(struct pp_windows *w)
{
    for (int s = 0; s < w->c->g->n_stages; s++)
        for (size_t k = 0; k < w->c->n; k++)
            add_edges(w, s, k);
}

/* Makes room for the edges that were counted. */
static bool make_edges(struct pp_windows *w, struct pp_window_edges *e)
{
    for (size_t i = 2; i < w->n_actions + 2; i++)
        e->first[i] += e->first[i - 1];
    e->edges = calloc(e->first[w->n_actions + 1] + 1, sizeof *e->edges);
    return e->edges != NULL;
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
static bool find_places(struct pp_windows *w)
{
    struct head *heads = calloc(w->n_actions, sizeof *heads);
    if (!heads)
        return false;
    for (size_t at = 0; at < w->n_actions; at++)
        heads[at] =
            (struct head){w->c->head[at / w->n][at % w->n], (uint32_t)at};
    qsort(heads, w->n_actions, sizeof *heads, compare_heads);
    for (size_t i = 0; i < w->n_actions; i++) {
        w->at_place[i] = heads[i].at;
        w->place[heads[i].at] = (uint32_t)i;
    }
    free(heads);
    return true;
}

static bool allocate(struct pp_windows *w)
{
    size_t n = w->n_actions, rows = (size_t)w->c->g->n_rows;
    w->from = calloc(2 * n, sizeof *w->from);
    w->known = calloc(2 * n, sizeof *w->known);
    w->time = calloc(n, sizeof *w->time);
    w->row = calloc(n, sizeof *w->row);
    w->before.first = calloc(n + 2, sizeof *w->before.first);
    w->after.first = calloc(n + 2, sizeof *w->after.first);
    w->place = calloc(n, sizeof *w->place);
    w->at_place = calloc(n, sizeof *w->at_place);
    w->changed_from = calloc(n / 64 + 1, sizeof *w->changed_from);
    w->changed_until = calloc(n / 64 + 1, sizeof *w->changed_until);
    w->trail = calloc(2 * n, sizeof *w->trail);
    w->noted = calloc(2 * n, sizeof *w->noted);
    w->actions = calloc(n, sizeof *w->actions);
    w->first_action = calloc(rows + 1, sizeof *w->first_action);
    w->tasks = calloc(n, sizeof *w->tasks);
    w->by_from = calloc(n, sizeof *w->by_from);
    w->by_until = calloc(n, sizeof *w->by_until);
    w->leaf = calloc(n, sizeof *w->leaf);
    w->nodes = calloc(pp_edge_nodes(n), sizeof *w->nodes);
    w->stages = calloc((size_t)w->c->g->n_stages, sizeof *w->stages);
    w->first_stage = calloc(rows + 1, sizeof *w->first_stage);
    w->passed = calloc((size_t)w->c->g->n_stages, sizeof *w->passed);
    w->is_changed = calloc(rows, sizeof *w->is_changed);
    w->is_moved = calloc(rows, sizeof *w->is_moved);
    return w->from && w->known && w->time && w->row && w->before.first &&
           w->after.first && w->place && w->at_place && w->changed_from &&
           w->changed_until && w->trail && w->noted && w->actions &&
           w->first_action && w->tasks && w->by_from && w->by_until &&
           w->leaf && w->nodes && w->stages && w->first_stage && w->passed &&
           w->is_changed && w->is_moved;
}

bool pp_windows_init(struct pp_windows *w, const struct pp_bound_case *c)
{
    size_t n = (size_t)c->g->n_stages * c->n;
    *w = (struct pp_windows){.c = c, .n = n, .n_actions = PP_BOUND_OPS * n};
    if (!allocate(w))
        return false;
    w->until = w->from + w->n_actions;
    for (size_t at = 0; at < w->n_actions; at++) {
        int stage = (int)(at % n / c->n);
        w->time[at] = c->stages[stage].time[at / n];
        w->row[at] = c->g->stages[stage].row;
    }
    collect_actions(w);
    collect_stages(w);
    add_all_edges(w);
    if (!make_edges(w, &w->before) || !make_edges(w, &w->after) ||
        !find_places(w))
        return false;
    add_all_edges(w);
    return true;
}

void pp_windows_finish(struct pp_windows *w)
{
    free(w->from);
    free(w->known);
    free(w->time);
    free(w->row);
    free(w->before.first);
    free(w->before.edges);
    free(w->after.first);
    free(w->after.edges);
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
