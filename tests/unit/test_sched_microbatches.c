/* SPDX-License-Identifier: MIT */
/* Microbatches that differ: the makespan of a fixed graph is that of the
 * simulator, and the order that is found is compared with all orders. */
#include "sched_fixture.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "schedule/simulate/microbatch_order.h"

enum { MOST = 32, SLOTS = 64 };

/* Times of every microbatch on every slice of every stage. */
struct unequal {
    double op[MOST][4 * SLOTS], message[MOST][SLOTS];
    struct pp_microbatch_times times[MOST];
    const struct pp_graph *graph;
    const uint32_t *order; /* round of each microbatch, or NULL */
};

static double unequal_time(const void *ctx, struct pp_action a)
{
    const struct unequal *u = ctx;
    size_t k = (size_t)a.microbatch;
    k = u->order ? u->order[k] : k;
    if (a.op == PP_SEND_B)
        return u->message[k][a.peer * u->graph->slices.n + a.slice];
    int slot = a.stage * u->graph->slices.n + a.slice;
    if (a.op == PP_SEND_F)
        return u->message[k][slot];
    return pp_is_compute(a.op) ? u->op[k][4 * slot + a.op] : 0;
}

/* Draws times by a microbatch's size: most are small, some are large. */
static void roll_times(struct unequal *u, const struct pp_graph *g, int m,
                       uint64_t key)
{
    *u = (struct unequal){.graph = g};
    for (int k = 0; k < m; k++) {
        double size = 1 + pp_rng_uniform(key, (uint64_t)k);
        if (pp_rng_bits(key, 500 + (uint64_t)k) % 4 == 0)
            size *= 6;
        for (int s = 0; s < g->n_stages * g->slices.n; s++) {
            double skew = 1 + 0.2 * pp_rng_uniform(key, 1000 + (uint64_t)s);
            double *op = &u->op[k][4 * s];
            op[PP_F] = size * skew;
            op[PP_I] = op[PP_F] * 1.1;
            op[PP_W] = op[PP_F] * 0.9;
            op[PP_B] = op[PP_I] + op[PP_W];
            u->message[k][s] = 0.1 * size;
        }
        u->times[k] = (struct pp_microbatch_times){u->op[k], u->message[k]};
    }
}

static double simulate_unequal(struct fixture *f, const struct unequal *u)
{
    struct pp_costs costs = {.time = unequal_time, .ctx = u};
    struct pp_sim sim = {0};
    double makespan = NAN;
    if (pp_simulate(&f->s, &costs, INT_MAX, &sim, &f->err))
        printf("# %s\n", f->err.text);
    else
        makespan = sim.makespan;
    pp_sim_finish(&sim);
    return makespan;
}

static void test_simulator(void)
{
    static const struct kind_case cases[] = {
        {"1f1b", 4, 1, 9, PP_PLACEMENT_LOOP},
        {"zb-h1", 4, 1, 9, PP_PLACEMENT_LOOP},
        {"interleaved", 2, 2, 6, PP_PLACEMENT_LOOP},
        {"zbv", 3, 2, 7, PP_PLACEMENT_V},
        {"seq1f1b", 3, 1, 5, PP_PLACEMENT_LOOP},
        {"dualpipev", 2, 2, 6, PP_PLACEMENT_V}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct unequal u;
        struct pp_makespan x = {0};
        bool slices = !strcmp(cases[i].kind, "seq1f1b");
        chain(&f, cases[i].p, cases[i].c, cases[i].placement);
        f.graph.slices.n = slices ? 3 : 1;
        roll_times(&u, &f.graph, cases[i].m, i);
        if (emit(&f, cases[i].kind, cases[i].m, 0) || pp_lower(&f.s, &f.err) ||
            pp_makespan_init(&x, &f.s, &f.err))
            printf("# %s\n", f.err.text);
        is_near(pp_makespan_unequal(&x, u.times), simulate_unequal(&f, &u),
                1e-12, cases[i].kind);
        pp_makespan_finish(&x);
        drop(&f);
    }
}

/* Returns the least makespan of all orders that begin with order[0 .. at). */
static double best_order(struct pp_makespan *x, const struct unequal *u,
                         uint32_t *order, size_t at, size_t m)
{
    struct pp_microbatch_times placed[MOST];
    double best = INFINITY;
    for (size_t k = 0; at == m && k < m; k++)
        placed[k] = u->times[order[k]];
    if (at == m)
        return pp_makespan_unequal(x, placed);
    for (size_t k = at; k < m; k++) {
        uint32_t other = order[k];
        order[k] = order[at];
        order[at] = other;
        best = fmin(best, best_order(x, u, order, at + 1, m));
        order[at] = order[k];
        order[k] = other;
    }
    return best;
}

struct tally {
    int n, optimal, wrong, longer;
    double excess, before; /* mean, above the least makespan */
};

static void compare_orders(const char *kind, int p, int m, uint64_t key,
                           struct tally *t)
{
    struct fixture f;
    struct unequal u;
    struct pp_makespan x = {0};
    uint32_t order[MOST];
    double makespan;
    chain(&f, p, 1, PP_PLACEMENT_LOOP);
    roll_times(&u, &f.graph, m, key);
    if (emit(&f, kind, m, 0) || pp_lower(&f.s, &f.err) ||
        pp_makespan_init(&x, &f.s, &f.err))
        printf("# %s\n", f.err.text);
    for (int k = 0; k < m; k++)
        order[k] = (uint32_t)k;
    double least = best_order(&x, &u, order, 0, (size_t)m);
    double given = pp_makespan_unequal(&x, u.times);
    struct pp_rounds rounds = {u.times, (size_t)m, 1};
    pp_microbatch_order(&x, &rounds, 1e6, order, &makespan);
    u.order = order;
    t->n++;
    t->optimal += makespan <= least * (1 + 1e-9);
    t->excess += makespan / least - 1;
    t->before += given / least - 1;
    t->longer += makespan > given;
    t->wrong += fabs(simulate_unequal(&f, &u) - makespan) > 1e-9 * makespan ||
                makespan < least * (1 - 1e-9);
    pp_makespan_finish(&x);
    drop(&f);
}

static void test_all_orders(void)
{
    struct tally t = {0};
    for (uint64_t key = 0; key < 60; key++)
        compare_orders(key % 3 ? "1f1b" : "zb-h1", 2 + (int)(key % 3),
                       4 + (int)(key % 3), key, &t);
    is_int(t.wrong, 0, "the simulator finds the same makespan");
    is_int(t.longer, 0, "no order is longer than the given one");
    printf("# %d of %d orders are the best; %.2f %% above it in the mean, "
           "%.2f %% before\n",
           t.optimal, t.n, 100 * t.excess / t.n, 100 * t.before / t.n);
    ok(t.excess < 0.1 * t.before, "orders are near the best");
}

/* Two data-parallel ranks share the order; the slower one counts. Without work
 * only the sorted orders are tried. */
static void test_rounds(void)
{
    enum { M = 5 };
    struct fixture f;
    struct unequal u;
    struct pp_makespan x = {0};
    struct pp_microbatch_times placed[M];
    uint32_t order[M] = {0, 1, 2, 3, 4};
    double makespan, slowest = 0;
    chain(&f, 3, 1, PP_PLACEMENT_LOOP);
    roll_times(&u, &f.graph, 2 * M, 7);
    if (emit(&f, "1f1b", M, 0) || pp_makespan_init(&x, &f.s, &f.err))
        printf("# %s\n", f.err.text);
    struct pp_rounds rounds = {u.times, M, 2};
    pp_microbatch_order(&x, &rounds, 1e6, order, &makespan);
    for (size_t r = 0; r < 2; r++) {
        for (size_t k = 0; k < M; k++)
            placed[k] = u.times[r * M + order[k]];
        slowest = fmax(slowest, pp_makespan_unequal(&x, placed));
    }
    is_near(makespan, slowest, 1e-12, "the slower rank counts");
    double without = makespan;
    for (uint32_t k = 0; k < M; k++)
        order[k] = k;
    pp_microbatch_order(&x, &rounds, 0, order, &without);
    ok(makespan <= without, "work makes no order longer");
    pp_makespan_finish(&x);
    drop(&f);
}

int main(void)
{
    test_simulator();
    test_all_orders();
    test_rounds();
    return done();
}
