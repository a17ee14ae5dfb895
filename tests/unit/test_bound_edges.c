/* SPDX-License-Identifier: MIT */
/* Edge finding on one rank against all orders of a few tasks. */
#include "schedule/bound/edges.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tap.h"

enum { MOST = 6 };

struct trial {
    struct pp_edge_task tasks[MOST];
    size_t n;
    double least[MOST]; /* earliest start in any order that keeps the windows */
};

static void roll_trial(struct trial *t, uint64_t key)
{
    uint64_t at = 0;
    *t = (struct trial){.n = 2 + pp_rng_bits(key, at++) % (MOST - 1)};
    for (size_t i = 0; i < t->n; i++) {
        double from = (double)(pp_rng_bits(key, at++) % 12);
        double time = 1 + (double)(pp_rng_bits(key, at++) % 5);
        double slack = (double)(pp_rng_bits(key, at++) % 14);
        t->tasks[i] =
            (struct pp_edge_task){from, from + time + slack, time, from};
        t->least[i] = INFINITY;
    }
}

/* Tries all orders of the tasks that are not in done. Returns whether any keeps
 * the windows. */
static bool try_orders(struct trial *t, unsigned done, double now)
{
    bool some = done == (1u << t->n) - 1;
    for (size_t i = 0; i < t->n; i++) {
        const struct pp_edge_task *x = &t->tasks[i];
        double start = fmax(now, x->from);
        if (done & 1u << i || start + x->time > x->until)
            continue;
        if (try_orders(t, done | 1u << i, start + x->time)) {
            t->least[i] = fmin(t->least[i], start);
            some = true;
        }
    }
    return some;
}

static void sort(const struct trial *t, bool until, uint32_t *order)
{
    for (size_t i = 0; i < t->n; i++) {
        size_t k = i;
        for (; k > 0; k--) {
            const struct pp_edge_task *a = &t->tasks[order[k - 1]],
                                      *b = &t->tasks[i];
            if (until ? a->until >= b->until : a->from <= b->from)
                break;
            order[k] = order[k - 1];
        }
        order[k] = (uint32_t)i;
    }
}

int main(void)
{
    int wrong = 0, pushed = 0, refuted = 0, possible = 0;
    for (uint64_t key = 0; key < 4000; key++) {
        struct trial t;
        struct pp_edge_node nodes[2 * 8];
        uint32_t by_from[MOST], by_until[MOST], leaf[MOST];
        roll_trial(&t, key);
        bool fits = try_orders(&t, 0, 0);
        sort(&t, false, by_from);
        sort(&t, true, by_until);
        bool found =
            pp_edges_find(t.tasks, t.n, by_from, by_until, 1e-9, leaf, nodes);
        possible += fits;
        refuted += !found;
        wrong += fits && !found;
        for (size_t i = 0; i < t.n && fits && found; i++) {
            wrong += t.tasks[i].pushed > t.least[i] + 1e-9;
            pushed += t.tasks[i].pushed > t.tasks[i].from;
        }
    }
    ok(pp_edge_nodes(MOST) == 16 && pp_edge_nodes(1) == 2,
       "the nodes are twice the leaves");
    is_int(wrong, 0, "no order begins a task before its earliest start");
    ok(pushed > 300, "%d tasks start later in all orders", pushed);
    ok(refuted > (4000 - possible) * 8 / 10, "%d of %d are refuted", refuted,
       4000 - possible);
    return done();
}
