/* SPDX-License-Identifier: MIT */
/* The bound for every split, placement and order, against all of them: every
 * unit is a stage of its own on any rank, in every order, and each backward of
 * the unit that saves by it is whole or not. */
#include "sched_fixture.h"

#include <string.h>

#include "base/rng.h"
#include "optimum.h"
#include "split/least.h"

enum { MOST_UNITS = 4, NODES = 20000 };

struct trial {
    struct pp_split_least p;
    double times[MOST_UNITS][PP_N_TIMES], messages[MOST_UNITS], speeds[3];
    size_t head;    /* the unit that saves */
    unsigned whole; /* its microbatches with B, one bit each */
    const struct pp_graph *g;
};

static double trial_time(const void *ctx, struct pp_action a)
{
    const struct trial *x = ctx;
    double speed = x->speeds[x->g->stages[a.stage].row];
    if (a.op == PP_SEND_F || a.op == PP_SEND_B)
        return x->messages[a.op == PP_SEND_F ? a.stage : a.peer];
    bool whole = (size_t)a.stage == x->head && x->whole >> a.microbatch & 1;
    int time = pp_time_of((enum pp_op)a.op, x->g->stages[a.stage].input_grad);
    if (whole && x->g->stages[a.stage].input_grad)
        time = a.op == PP_I ? PP_TIME_B : a.op == PP_W ? -1 : time;
    return time < 0 ? 0 : x->times[a.stage][time] / speed;
}

/* Returns the least step below best with units on the ranks of the digits of
 * `place`; best if there is none. Counts searches that gave up. */
static double search_orders(struct trial *x, int place, double best, int *lost)
{
    struct pp_stage_node stages[MOST_UNITS] = {{0}};
    struct pp_graph g = {.n_rows = (int)x->p.n_ranks,
                         .n_stages = (int)x->p.n_units,
                         .stages = stages};
    struct pp_arena arena = {0};
    struct pp_err err = {0};
    int inputs[MOST_UNITS];
    const struct pp_costs costs = {trial_time, x, 0};
    for (int s = 0; s < g.n_stages; s++) {
        inputs[s] = s - 1;
        stages[s].row = place % g.n_rows;
        stages[s].n_inputs = s > 0;
        stages[s].inputs = &inputs[s];
        place /= g.n_rows;
    }
    x->g = &g;
    if (pp_graph_connect(&arena, &g, &err))
        best = -1;
    for (x->whole = 0; x->whole < 1u << x->p.n_microbatches; x->whole++) {
        struct optimum o = {.g = &g,
                            .costs = &costs,
                            .m = (int)x->p.n_microbatches,
                            .split = true,
                            .best = best,
                            .nodes = NODES};
        *lost += !optimum_find(&o);
        best = fmin(best, o.best);
    }
    pp_arena_finish(&arena);
    return best;
}

/* Returns the least step of all placements and orders, or best if no step is
 * shorter. */
static double search_all(struct trial *x, double best, int *lost)
{
    int n = 1;
    for (size_t i = 0; i < x->p.n_units; i++)
        n *= (int)x->p.n_ranks;
    for (int place = 0; place < n; place++)
        best = search_orders(x, place, best, lost);
    return best;
}

static int roll(uint64_t key, uint64_t *at, int n)
{
    return (int)(pp_rng_bits(key, (*at)++) % (uint64_t)n);
}

static void roll_trial(struct trial *x, uint64_t key)
{
    uint64_t at = 0;
    int range = 1 + roll(key, &at, 6), alike = roll(key, &at, 2);
    int sends = roll(key, &at, 3) == 0, uneven = roll(key, &at, 4) == 0;
    *x = (struct trial){.p = {.n_units = 2 + (size_t)roll(key, &at, 3),
                              .n_ranks = 2 + (size_t)roll(key, &at, 2),
                              .n_microbatches = 1 + roll(key, &at, 2),
                              .times = (const double(*)[PP_N_TIMES])x->times}};
    x->head = x->p.n_units - 1;
    for (size_t i = 0; i < x->p.n_units; i++) {
        double *t = x->times[i];
        for (int k = 0; k < PP_TIME_B; k++)
            t[k] = alike && i > 0 ? x->times[0][k] : 1 + roll(key, &at, range);
        x->messages[i] = sends ? roll(key, &at, 3) : 0;
    }
    if (roll(key, &at, 2)) /* the last unit is a head of several times a */
        for (int k = 0; k < PP_TIME_B; k++)
            x->times[x->head][k] = (1 + (k != PP_TIME_F)) * range;
    for (size_t i = 0; i < x->p.n_units; i++)
        x->times[i][PP_TIME_B] =
            x->times[i][PP_TIME_I] + x->times[i][PP_TIME_W];
    x->times[x->head][PP_TIME_B] -= roll(key, &at, 1 + range);
    for (int r = 0; r < 3; r++)
        x->speeds[r] = uneven ? 1 + roll(key, &at, 3) : 1;
    x->p.messages = sends ? x->messages : NULL;
    x->p.speeds = uneven ? x->speeds : NULL;
}

static void test_all(void)
{
    enum { N = 120 };
    int above = 0, near = 0, equal = 0, lost = 0, rules[3] = {0};
    for (int i = 0; i < N; i++) {
        struct trial x;
        roll_trial(&x, pp_rng_key((uint64_t)i, "least"));
        const struct pp_least_found b = pp_split_least(&x.p);
        if (b.step <= 0) {
            above++;
            continue;
        }
        int gave_up = 0;
        double best = search_all(&x, b.step * (1 + 1e-6), &gave_up);
        lost += gave_up > 0;
        if (best < b.step * (1 - 1e-9)) {
            printf("# %d: %g (%s) is above a step of %g\n", i, b.step,
                   pp_least_rule_names[b.rule], best);
            above++;
        }
        equal += best < b.step * (1 + 1e-6);
        /* A bound a tenth larger would be seen to be wrong. */
        best = search_all(&x, b.step * 1.1, &gave_up);
        near += best < b.step * 1.1;
        rules[b.rule]++;
    }
    is_int(above, 0, "no split, placement and order is below the bound");
    ok(lost < N / 10, "nearly all are decided: %d of %d are not", lost, N);
    ok(equal > N / 4 && near > N / 2,
       "the bound is reached in %d cases, and nearly in %d", equal, near);
    ok(rules[0] && rules[1] && rules[2], "by each rule: %d, %d and %d",
       rules[0], rules[1], rules[2]);
}

static void test_layers(void)
{
    double times[61][PP_N_TIMES];
    struct pp_split_least p = {.n_units = 61,
                               .n_ranks = 16,
                               .n_microbatches = 64,
                               .times = (const double(*)[PP_N_TIMES])times};
    for (int i = 0; i < 61; i++)
        memcpy(times[i], (double[]){1, 1, 1, 2}, sizeof times[i]);
    struct pp_least_found b = pp_split_least(&p);
    /* 3 layers on each of 16 ranks are 48. If 13 of them have a fourth, the
     * last of these has it and 12 layers before. */
    ok(fabs(b.step - (64 * 12 + 12)) < 1e-3, "some rank has four: %g", b.step);
    memcpy(times[60], (double[]){8, 16, 16, 24}, sizeof times[60]);
    b = pp_split_least(&p);
    is_int((long)b.rule, PP_LEAST_UNIT, "a large head gives the bound");
    /* 60 forwards, 64 times 32, 61 gradients; half of these are hidden. */
    ok(fabs(b.step - (60 + 64 * 32 + 61 / 2.0)) < 1e-6,
       "of the head and the layers before and after: %g", b.step);
}

/* Costs 4, 4, 4, 3 and 3 are 18, but no rank has exactly 9 of them. The first
 * unit costs nothing, so no rank starts later for it. */
static void test_two_costs(void)
{
    static const double costs[] = {0, 4, 4, 4, 3, 3};
    double times[6][PP_N_TIMES];
    struct pp_split_least p = {.n_units = 6,
                               .n_ranks = 2,
                               .n_microbatches = 100,
                               .times = (const double(*)[PP_N_TIMES])times};
    for (int i = 0; i < 6; i++)
        memcpy(times[i],
               (double[]){costs[i] / 4, costs[i] / 2, costs[i] / 4,
                          0.75 * costs[i]},
               sizeof times[i]);
    const struct pp_least_found b = pp_split_least(&p);
    /* The rank that begins first has ten. */
    ok(fabs(b.step - 1000) < 1e-3, "some rank has ten: %g", b.step);
    is_int((long)b.rule, PP_LEAST_UNITS, "whole units give the bound");
}

int main(void)
{
    test_all();
    test_two_costs();
    test_layers();
    return done();
}
