/* SPDX-License-Identifier: MIT */
#include "sched/search_policy.h"

#include <math.h>

#include "base/rng.h"

/* A run costs about this many visits per op. */
static const double run_visits = 16;

static double try_policy(struct pp_policy_search *s, const struct pp_policy *p)
{
    s->steps += run_visits * s->job->n_ops;
    if (!pp_list_run(s->list, p, s->word) || !pp_eval_heads(s->eval, s->word))
        return INFINITY;
    s->found(s->ctx, s->eval, s->word);
    return s->eval->worst;
}

static void set_habits(const struct pp_job *j, struct pp_policy *p,
                       struct pp_habit habit)
{
    for (int r = 0; r < j->graph->n_ranks; r++)
        p->habits[r] = habit;
}

int pp_policy_grid(struct pp_policy_search *s, double steps, struct pp_err *err)
{
    static const double trips[] = {0, 1, 1.2, 1.5, 2, 3};
    static const double squeezes[] = {1, 0.5, 0.01};
    static const double patiences[] = {0, 0.3};
    struct pp_policy p;
    int rc = pp_policy_init(&p, s->job, err);
    for (int i = 0;
         !rc && i < 3 * 2 * 6 * 3 * 2 && s->worst > s->goal && s->steps < steps;
         i++) {
        int k = i;
        struct pp_habit habit = {.order = (enum pp_policy_order)(k % 3)};
        habit.patience = patiences[(k /= 3) % 2];
        habit.squeeze = squeezes[(k /= 2) % 3];
        pp_list_ahead(s->list, trips[(k /= 3) % 6], p.ahead);
        p.shallow = (k /= 6) % 2;
        set_habits(s->job, &p, habit);
        double worst = try_policy(s, &p);
        if (worst < s->worst) {
            s->worst = worst;
            pp_policy_copy(&s->best, &p, s->job);
        }
    }
    pp_policy_finish(&p);
    return rc;
}

struct dice {
    uint64_t key, n;
};

static int roll(struct dice *d, int n)
{
    return (int)((pp_rng_bits(d->key, d->n++) >> 32) * (uint64_t)n >> 32);
}

/* One habit of a run of ranks, or how far ahead a run of stages goes. */
static void change(const struct pp_job *j, struct pp_policy *p, struct dice *d)
{
    static const double squeezes[] = {0, 0.01, 0.25, 0.5, 0.75, 1, 1.5, 2};
    static const double patiences[] = {0, 0, 0.1, 0.3, 0.6, 1};
    int what = roll(d, 8), p_n = j->graph->n_ranks, s_n = j->graph->n_stages;
    int n = what < 4 ? s_n : p_n, first = roll(d, n), last = first;
    int by = roll(d, 2) ? 1 : -1;
    int squeeze = roll(d, 8), patience = roll(d, 6), order = roll(d, 3);
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
            p->habits[i].order = (enum pp_policy_order)order;
        } else if (what == 5) {
            p->habits[i].patience = patiences[patience];
        } else {
            p->habits[i].squeeze = squeezes[squeeze];
        }
}

int pp_policy_climb(struct pp_policy_search *s, double steps,
                    struct pp_err *err)
{
    struct dice d = {s->key, 0};
    struct pp_policy now = {0}, next = {0};
    double end = s->steps + steps, at = s->worst, mean = 0;
    int rc =
        pp_policy_init(&now, s->job, err) || pp_policy_init(&next, s->job, err);
    for (int32_t op = 0; op < s->job->n_ops; op++)
        mean += s->job->time[op] / s->job->n_ops;
    if (!rc)
        pp_policy_copy(&now, &s->best, s->job);
    while (!rc && s->steps < end && s->worst > s->goal) {
        double heat = 0.5 * mean * (end - s->steps) / steps;
        pp_policy_copy(&next, &now, s->job);
        for (int n = 1 + roll(&d, 3); n > 0; n--)
            change(s->job, &next, &d);
        double worst = try_policy(s, &next);
        double u = pp_rng_uniform(d.key, d.n++);
        if (worst > at - heat * log(1 - u))
            continue;
        at = worst;
        pp_policy_copy(&now, &next, s->job);
        if (worst < s->worst) {
            s->worst = worst;
            pp_policy_copy(&s->best, &next, s->job);
        }
    }
    pp_policy_finish(&now);
    pp_policy_finish(&next);
    return rc ? -1 : 0;
}
