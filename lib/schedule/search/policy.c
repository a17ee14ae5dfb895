/* SPDX-License-Identifier: MIT */
/* The search for the best policy of the list scheduler. */
#include "schedule/search/methods.h"

#include <math.h>

#include "base/rng.h"

/* A run costs about this many visits per op. */
static const double run_visits = 16;

static double try_policy(struct pp_policy_search *s, const struct pp_policy *p)
{
    s->steps += run_visits * s->problem->ops.n;
    if (!pp_list_run(s->list, p, s->order) ||
        !pp_paths_heads(s->eval, s->order))
        return INFINITY;
    s->found(s->ctx, s->eval, s->order);
    return s->eval->worst;
}

static void set_heuristics(const struct pp_search_problem *j,
                           struct pp_policy *p,
                           struct pp_row_heuristic heuristic)
{
    for (int r = 0; r < j->graph->n_rows; r++)
        p->heuristics[r] = heuristic;
}

void pp_policy_grid(struct pp_policy_search *s, double steps)
{
    static const double trips[] = {0, 1, 1.2, 1.5, 2, 3};
    static const double min_fills[] = {1, 0.5, 0.01};
    static const double wait_ratios[] = {0, 0.3};
    struct pp_policy p;
    pp_policy_init(&p, s->problem);
    for (int i = 0;
         i < 3 * 2 * 6 * 3 * 2 && s->worst > s->goal && s->steps < steps; i++) {
        int k = i;
        struct pp_row_heuristic heuristic = {.order =
                                                 (enum pp_policy_order)(k % 3)};
        heuristic.wait_ratio = wait_ratios[(k /= 3) % 2];
        heuristic.min_fill = min_fills[(k /= 2) % 3];
        pp_list_ahead(s->list, trips[(k /= 3) % 6], p.ahead);
        p.shallow = (k /= 6) % 2;
        set_heuristics(s->problem, &p, heuristic);
        double worst = try_policy(s, &p);
        if (worst < s->worst) {
            s->worst = worst;
            pp_policy_copy(&s->best, &p, s->problem);
        }
    }
    pp_policy_finish(&p);
}

struct dice {
    uint64_t key, n;
};

static int roll(struct dice *d, int n)
{
    return (int)((pp_rng_bits(d->key, d->n++) >> 32) * (uint64_t)n >> 32);
}

/* Changes one heuristic of adjacent ranks, or how far ahead adjacent stages
 * run. */
static void change(const struct pp_search_problem *j, struct pp_policy *p,
                   struct dice *d)
{
    static const double min_fills[] = {0, 0.01, 0.25, 0.5, 0.75, 1, 1.5, 2};
    static const double wait_ratios[] = {0, 0, 0.1, 0.3, 0.6, 1};
    int what = roll(d, 8), p_n = j->graph->n_rows, s_n = j->graph->n_stages;
    int n = what < 4 ? s_n : p_n, first = roll(d, n), last = first;
    int by = roll(d, 2) ? 1 : -1;
    int min_fill = roll(d, 8), wait_ratio = roll(d, 6), order = roll(d, 3);
    int shape = roll(d, 4);
    if (shape == 0)
        last = n - 1;
    else if (shape == 1)
        last = first + roll(d, n - first);
    for (int i = first; i <= last; i++)
        if (what < 4) {
            p->ahead[i] += by;
            if (p->ahead[i] < 1 || p->ahead[i] > j->n_microbatches)
                p->ahead[i] = p->ahead[i] < 1 ? 1 : j->n_microbatches;
        } else if (what == 4) {
            p->heuristics[i].order = (enum pp_policy_order)order;
        } else if (what == 5) {
            p->heuristics[i].wait_ratio = wait_ratios[wait_ratio];
        } else {
            p->heuristics[i].min_fill = min_fills[min_fill];
        }
}

void pp_policy_climb(struct pp_policy_search *s, double steps)
{
    struct dice d = {s->key, 0};
    struct pp_policy now = {0}, next = {0};
    double end = s->steps + steps, at = s->worst, mean = 0;
    pp_policy_init(&now, s->problem);
    pp_policy_init(&next, s->problem);
    for (int32_t op = 0; op < s->problem->ops.n; op++)
        mean += s->problem->ops.time[op] / s->problem->ops.n;
    pp_policy_copy(&now, &s->best, s->problem);
    while (s->steps < end && s->worst > s->goal) {
        double heat = 0.5 * mean * (end - s->steps) / steps;
        pp_policy_copy(&next, &now, s->problem);
        for (int n = 1 + roll(&d, 3); n > 0; n--)
            change(s->problem, &next, &d);
        double worst = try_policy(s, &next);
        double u = pp_rng_uniform(d.key, d.n++);
        if (worst > at - heat * log(1 - u))
            continue;
        at = worst;
        pp_policy_copy(&now, &next, s->problem);
        if (worst < s->worst) {
            s->worst = worst;
            pp_policy_copy(&s->best, &next, s->problem);
        }
    }
    pp_policy_finish(&now);
    pp_policy_finish(&next);
}
