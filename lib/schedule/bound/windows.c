/* SPDX-License-Identifier: MIT */
/* Windows shrink by data, order and edge finding. */
#include "schedule/bound/windows.h"

/* The work of edge finding for a task. */
enum { EDGE_WORK = 64 };

static size_t set_words(const struct pp_windows *w)
{
    return (w->n_actions + 63) / 64;
}

/* --- data and order --- */

/* Delays what comes after the actions that were delayed. */
static void pass_from(struct pp_windows *w)
{
    const struct pp_op_edges *out = &w->ops.out;
    size_t words = set_words(w), work = 0;
    for (size_t i = 0; i < words && !w->refuted;) {
        uint64_t set = w->changed_from[i];
        if (!set) {
            i++;
            continue;
        }
        w->changed_from[i] &= set - 1;
        size_t at = w->at_place[64 * i + (size_t)__builtin_ctzll(set)];
        int32_t first = out->first[at], end = out->first[at + 1];
        for (int32_t e = first; e < end; e++) {
            size_t to = (size_t)out->op[e];
            pp_window_raise(w, to,
                            w->from[at] + (w->ops.time[at] + out->lag[e]));
            size_t word = w->place[to] / 64;
            i = word < i && w->changed_from[word] ? word : i;
        }
        work += 2 + (size_t)(end - first);
    }
    pp_windows_spend(w, work);
}

/* Ends sooner what comes before the actions that must end sooner. */
static void pass_until(struct pp_windows *w)
{
    const struct pp_op_edges *in = &w->ops.in;
    size_t words = set_words(w), work = 0;
    for (size_t i = words; i > 0 && !w->refuted;) {
        uint64_t set = w->changed_until[i - 1];
        if (!set) {
            i--;
            continue;
        }
        unsigned bit = 63 - (unsigned)__builtin_clzll(set);
        w->changed_until[i - 1] &= ~((uint64_t)1 << bit);
        size_t at = w->at_place[64 * (i - 1) + bit];
        int32_t first = in->first[at], end = in->first[at + 1];
        for (int32_t e = first; e < end; e++) {
            size_t to = (size_t)in->op[e];
            pp_window_lower(w, to,
                            w->until[at] - (w->ops.time[at] + in->lag[e]));
            size_t word = w->place[to] / 64 + 1;
            i = word > i && w->changed_until[word - 1] ? word : i;
        }
        work += 2 + (size_t)(end - first);
    }
    pp_windows_spend(w, work);
}

/* --- edge finding --- */

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
    const uint32_t *a = w->actions + first;
    struct pp_edge_task *t = w->tasks;
    uint32_t *by_from = w->by_from + first, *by_until = w->by_until + first;
    for (size_t i = 0; i < n; i++) {
        double from = w->from[a[i]], until = w->until[a[i]];
        t[i] = (struct pp_edge_task){from, until, w->ops.time[a[i]], from};
    }
    sort_tasks(t, n, false, by_from);
    sort_tasks(t, n, true, by_until);
    w->refuted |=
        !pp_edges_find(t, n, by_from, by_until, w->eps, w->leaf, w->nodes);
    pp_windows_spend(w, EDGE_WORK * n);
    if (w->refuted)
        return;
    for (size_t i = 0; i < n; i++) {
        pp_window_raise(w, a[i], t[i].pushed);
        double from = t[i].from;
        t[i].from = t[i].pushed = -t[i].until;
        t[i].until = -from;
    }
    w->refuted |=
        !pp_edges_find(t, n, by_until, by_from, w->eps, w->leaf, w->nodes);
    for (size_t i = 0; i < n; i++)
        pp_window_lower(w, a[i], -t[i].pushed);
}

/* Applies the rules that cost little until none does anything. */
static void shrink_cheaply(struct pp_windows *w)
{
    bool again = true;
    while (again && !w->refuted && !pp_windows_spent(w)) {
        again = false;
        pass_from(w);
        pass_until(w);
        for (int r = 0; r < w->c->g->n_rows && !w->refuted; r++)
            if (w->is_moved[r]) {
                w->is_moved[r] = false;
                pp_windows_fit(w, r);
                again |= w->is_moved[r];
            }
    }
}

void pp_windows_shrink(struct pp_windows *w, int most)
{
    bool changed = true;
    while (changed) {
        shrink_cheaply(w);
        changed = false;
        if (w->refuted || pp_windows_spent(w) || most-- <= 0)
            return;
        for (int r = 0; r < w->c->g->n_rows && !w->refuted; r++) {
            if (!w->is_changed[r])
                continue;
            w->is_changed[r] = false;
            find_edges(w, r);
            changed = true;
        }
    }
}
