/* SPDX-License-Identifier: MIT */
/* The lower bound is never above the optimum of tiny instances, and it equals
 * closed forms and published tables. */
#include "sched_fixture.h"

#include <limits.h>

#include "base/rng.h"
#include "optimum.h"
#include "schedule/bound/bound.h"
#include "schedule/bound/parts.h"

struct dice {
    uint64_t key, at;
};

static int roll(struct dice *d, int n)
{
    return (int)(pp_rng_bits(d->key, d->at++) % (uint64_t)n);
}

/* A tiny problem: time by op, stage and microbatch. */
struct instance {
    struct fixture f;
    int m;
    bool split, alike;
    double time[PP_N_OPS][OPT_STAGES][OPT_MICROBATCHES];
    double limit[OPT_RANKS];
    struct pp_load load[OPT_STAGES];
    struct pp_memory_limit room;
};

static double instance_time(const void *ctx, struct pp_action a)
{
    const struct instance *x = ctx;
    return x->time[a.op][a.stage][a.microbatch];
}

/* Makes a chain, or a chain with one more input. */
static void roll_graph(struct instance *x, struct dice *d)
{
    static const int shapes[][3] = {/* ranks, chunks, most microbatches */
                                    {2, 1, 4}, {2, 1, 4}, {3, 1, 3},
                                    {1, 2, 3}, {2, 2, 3}, {2, 3, 2}};
    const int *shape = shapes[roll(d, 6)];
    chain(&x->f, shape[0], shape[1],
          roll(d, 2) ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP);
    x->m = 1 + roll(d, shape[2]);
    int n = x->f.graph.n_stages, extra = roll(d, 3);
    if (extra || n < 3)
        return;
    /* Stage 1 becomes a second source, or 0 feeds 2 as well. */
    static const int both[] = {0, 1};
    x->f.graph.stages[2].inputs = both;
    x->f.graph.stages[2].n_inputs = 2;
    if (roll(d, 2))
        x->f.graph.stages[1].n_inputs = 0;
    if (pp_graph_connect(&x->f.arena, &x->f.graph, &x->f.err))
        printf("# %s\n", x->f.err.text);
}

/* Sets limits of at least one microbatch on all stages of a rank; nothing runs
 * in less. */
static void roll_room(struct instance *x, struct dice *d)
{
    static const struct pp_load loads[] = {{0, 1, 0, 0}, {0, 1, 0, 0},
                                           {4, 3, 0, 0}, {2, 3, 1, 1},
                                           {1, 2, 2, 2}, {57, 43, 0, 0}};
    int n = x->f.graph.n_stages, kind = roll(d, 6);
    for (int s = 0; s < n; s++) {
        struct pp_load l = loads[kind];
        int scale = 1 + (kind > 1 ? roll(d, 2) : 0);
        x->load[s] = (struct pp_load){scale * l.f_to_i, scale * l.f_to_w,
                                      scale * l.i_to_w, scale * l.in_b};
        if (!x->f.graph.stages[s].input_grad)
            x->load[s] = (struct pp_load){0, scale * (l.f_to_i + l.f_to_w), 0};
        x->limit[x->f.graph.stages[s].row] +=
            x->load[s].f_to_i + x->load[s].f_to_w + x->load[s].i_to_w;
    }
    for (int r = 0; r < x->f.graph.n_rows; r++)
        x->limit[r] *= 1 + roll(d, 5) / 2.0;
    x->room = (struct pp_memory_limit){x->limit, x->load};
}

static void roll_instance(struct instance *x, struct dice *d)
{
    *x = (struct instance){0};
    roll_graph(x, d);
    x->split = roll(d, 3) > 0;
    x->alike = roll(d, 3) > 0;
    int range = 1 + roll(d, 10), comm = roll(d, 3), unit = roll(d, 2);
    for (int s = 0; s < x->f.graph.n_stages; s++)
        for (int k = 0; k < x->m; k++)
            for (int op = 0; op < PP_N_OPS; op++) {
                double *t = &x->time[op][s][k];
                *t = x->alike && k           ? t[-1]
                     : unit && s && x->alike ? x->time[op][s - 1][k]
                     : op < PP_SEND_F        ? 1 + roll(d, range)
                                             : roll(d, 1 + comm);
            }
    for (int s = 0; s < x->f.graph.n_stages; s++)
        for (int k = 0; k < x->m; k++) {
            bool source = !x->f.graph.stages[s].input_grad && comm;
            double *i = &x->time[PP_I][s][k], *w = &x->time[PP_W][s][k];
            *w += source ? *i : 0;
            *i = source ? 0 : *i;
            x->time[PP_B][s][k] = *i + *w;
        }
    roll_room(x, d);
}

struct counts {
    int decided, above, equal, memory, unlike, raised;
    double gap;
};

static void compare(struct instance *x, bool limited, struct counts *n)
{
    struct pp_costs costs = {.time = instance_time, .ctx = x};
    const struct pp_memory_limit *room = limited ? &x->room : NULL;
    struct pp_bound b;
    if (pp_bound(&x->f.graph, x->m, x->split, &costs, room, &b, &x->f.err)) {
        printf("# %s\n", x->f.err.text);
        n->above++;
        return;
    }
    double without = b.makespan;
    n->above += pp_bound_by_refuting(&x->f.graph, x->m, x->split, &costs, room,
                                     INFINITY, 1, &b, &x->f.err) != 0;
    n->raised += b.makespan > without * (1 + 1e-9);
    struct optimum o = {.g = &x->f.graph,
                        .costs = &costs,
                        .room = room,
                        .m = x->m,
                        .split = x->split,
                        .in_order = x->alike,
                        .best = b.makespan,
                        .nodes = 200000};
    bool decided = optimum_find(&o);
    if (o.best < b.makespan - 1e-9) {
        n->above++;
        printf("# bound %g (%s) above the optimum %g: %d ranks, %d stages, "
               "%d microbatches, split %d, limited %d, alike %d\n",
               b.makespan, b.rule, o.best, x->f.graph.n_rows,
               x->f.graph.n_stages, x->m, x->split, limited, x->alike);
        return;
    }
    if (!decided)
        return;
    o.best = 2 * b.makespan;
    o.nodes = 400000;
    if (!optimum_find(&o) && o.best > b.makespan + 1e-9)
        return;
    n->decided++;
    n->memory += limited;
    n->unlike += !x->alike;
    n->equal += o.best < b.makespan * (1 + 1e-9);
    n->gap = fmax(n->gap, o.best / b.makespan - 1);
}

static void test_optimum(int n_instances)
{
    struct dice d = {.key = pp_rng_key(1, "bound")};
    struct counts n = {0};
    for (int i = 0; i < n_instances; i++) {
        struct instance x;
        roll_instance(&x, &d);
        compare(&x, i % 2 == 1, &n);
        drop(&x.f);
    }
    is_int(n.above, 0, "no bound is above the optimum");
    printf("# %d decided, %d with a limit, %d with unequal microbatches: %d "
           "bounds equal the optimum, the worst is %.1f %% below\n",
           n.decided, n.memory, n.unlike, n.equal, 100 * n.gap);
    ok(n.decided > n_instances * 8 / 10, "most optima were found");
    ok(n.raised > n_instances / 100, "refuting raises %d bounds", n.raised);
    ok(n.equal > n.decided * 7 / 10, "most bounds are the optimum");
}

/* I leaves more to W than a microbatch keeps, and B needs a part of that at a
 * time: the bound must not charge I and W where B may run. */
static void test_whole_needs_less(void)
{
    struct instance x = {.m = 4, .split = true, .alike = true};
    struct pp_costs costs = {.time = instance_time, .ctx = &x};
    struct pp_bound b;
    chain(&x.f, 2, 1, PP_PLACEMENT_LOOP);
    for (int s = 0; s < 2; s++) {
        x.load[s] = (struct pp_load){1, 1, 8, 1};
        x.limit[s] = 11;
        for (int k = 0; k < x.m; k++) {
            x.time[PP_F][s][k] = x.time[PP_I][s][k] = x.time[PP_W][s][k] = 1;
            x.time[PP_B][s][k] = 2;
        }
    }
    x.room = (struct pp_memory_limit){x.limit, x.load};
    struct optimum o = {.g = &x.f.graph,
                        .costs = &costs,
                        .room = &x.room,
                        .m = x.m,
                        .split = true,
                        .whole = ~0u,
                        .in_order = true,
                        .best = 1000,
                        .nodes = 400000};
    bool holds = !pp_bound_by_refuting(&x.f.graph, x.m, true, &costs, &x.room,
                                       INFINITY, 1, &b, &x.f.err) &&
                 optimum_find(&o) && b.makespan <= o.best;
    ok(holds, "B keeps less than I and W: the bound %g, the optimum %g",
       b.makespan, o.best);
    drop(&x.f);
}

/* I frees 57 parts of 100 and W the rest, as in a transformer's layers, and as
 * many microbatches fit as there are ranks. The bound is then the optimum, the
 * same as if W freed everything. */
static void test_freed_by_both(void)
{
    static const struct {
        int p, m;
        double f, i, w, comm, want;
    } cases[] = {{2, 4, 10, 10, 8, 1, 128},
                 {2, 5, 10, 10, 8, 1, 156},
                 {2, 4, 18.522, 18.086, 9.337, 0.601, 213.455},
                 {3, 4, 10, 10, 8, 1, 144},
                 {3, 5, 10, 10, 8, 1, 172}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        struct instance x = {.m = cases[n].m, .split = true, .alike = true};
        struct pp_costs costs = {.time = instance_time, .ctx = &x};
        struct pp_bound b = {0};
        chain(&x.f, cases[n].p, 1, PP_PLACEMENT_LOOP);
        x.room = (struct pp_memory_limit){x.limit, x.load};
        for (int s = 0; s < cases[n].p; s++) {
            x.limit[s] = 100 * cases[n].p;
            x.load[s] = (struct pp_load){57, 43, 0};
            for (int k = 0; k < x.m; k++) {
                x.time[PP_F][s][k] = cases[n].f;
                x.time[PP_I][s][k] = cases[n].i;
                x.time[PP_W][s][k] = cases[n].w;
                x.time[PP_B][s][k] = cases[n].i + cases[n].w;
                x.time[PP_SEND_F][s][k] = cases[n].comm;
                x.time[PP_SEND_B][s][k] = cases[n].comm;
            }
        }
        if (pp_bound(&x.f.graph, x.m, true, &costs, &x.room, &b, &x.f.err))
            printf("# %s\n", x.f.err.text);
        is_near(b.makespan, cases[n].want, 1e-9,
                "W frees 43 of 100: the bound");
        struct optimum o = {.g = &x.f.graph,
                            .costs = &costs,
                            .room = &x.room,
                            .m = x.m,
                            .split = true,
                            .in_order = true,
                            .best = b.makespan + 1e-6,
                            .nodes = 4000000};
        optimum_find(&o);
        is_near(o.best, cases[n].want, 1e-9, "and an order that reaches it");
        drop(&x.f);
    }
}

/* Two ranks hold two microbatches, and W is ten times as long as F and I. Rank
 * 0 frees memory for a third forward by two I (F0 F1 I0 I1 F2, the last at 6),
 * as I0 and W0 would take until 14. */
static void test_choice_of_room(void)
{
    struct fixture f;
    double limit[2] = {200, 200};
    struct pp_load load[2] = {{57, 43, 0}, {57, 43, 0}};
    struct pp_memory_limit room = {limit, load};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    struct pp_literal_costs literal = {&f.graph, 1, 1, 10, 0, true};
    struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
    struct pp_bound_case c = {.g = &f.graph, .n = 4};
    double head = NAN;
    int rc = pp_bound_read(&c, true, &costs, &room, &f.err);
    pp_bound_path(&c);
    if (!rc && !pp_bound_events(&c, &f.err))
        head = c.head[PP_BOUND_F][2];
    is_near(head, 6, 1e-12, "two I free memory sooner than I and W");
    pp_bound_finish(&c);
    drop(&f);
}

/* Returns the bound for p ranks in a line or a V. cost is F, I, W and message;
 * slots is the limit, 0 for none. Makespans below `reached` are refuted. */
static double find_bound(int p, int c, int m, enum pp_placement placement,
                         bool split, const double *cost, double limit,
                         double reached)
{
    struct fixture f;
    struct pp_bound b = {0};
    double limits[64];
    struct pp_load load[128];
    chain(&f, p, c, placement);
    struct pp_literal_costs literal = {&f.graph, cost[0], cost[1],
                                       cost[2],  cost[3], true};
    struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
    struct pp_memory_limit room = {limits, load};
    for (int i = 0; i < p; i++)
        limits[i] = limit;
    for (int i = 0; i < p * c; i++)
        load[i] = (struct pp_load){.f_to_w = 1};
    if (pp_bound_by_refuting(&f.graph, m, split, &costs,
                             limit > 0 ? &room : NULL, reached, 1, &b,
                             &f.err)) {
        printf("# %s\n", f.err.text);
        b.makespan = -(int)f.err.code;
    }
    drop(&f);
    return b.makespan;
}

static double bound_of(int p, int c, int m, enum pp_placement placement,
                       bool split, const double *cost, double limit)
{
    return find_bound(p, c, m, placement, split, cost, limit, 0);
}

/* On its way down a V, a microbatch must leave memory for those before it on
 * their way up. A constraint solver has found the optima, and proved them. */
static void test_v(void)
{
    static const double cost[] = {10, 10, 8, 0};
    static const struct {
        int p, m, limit;
        double optimum, want;
    } cases[] = {{2, 5, 2, 392, 392}, {2, 5, 3, 316, 316}, {3, 5, 2, 512, 512},
                 {3, 5, 3, 430, 422}, {3, 5, 4, 336, 336}, {3, 6, 3, 508, 492},
                 {4, 6, 4, 460, 460}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += (size_t)fewer()) {
        double b = find_bound(cases[i].p, 2, cases[i].m, PP_PLACEMENT_V, true,
                              cost, cases[i].limit, INFINITY);
        ok(b >= cases[i].want && b <= cases[i].optimum,
           "a V of %d ranks with %d slots: %g, the optimum is %g", cases[i].p,
           cases[i].limit, b, cases[i].optimum);
    }
    is_near(find_bound(2, 2, 5, PP_PLACEMENT_V, true, cost, 3, 300), 300, 1e-12,
            "no makespan from 300 on is refuted");
}

/* schedules-theory: K < p, eight ranks in line, 24 microbatches. */
static void test_table(void)
{
    static const double unit[] = {1, 1, 1, 0}, even[] = {10, 10, 8, 1},
                        model[] = {29.718, 29.444, 19.927, 0.527};
    static const struct {
        const double *cost;
        int limit, want;
    } cases[] = {{unit, 3, 142},   {unit, 4, 111},  {unit, 5, 94},
                 {unit, 6, 85},    {unit, 7, 82},   {unit, 8, 79},
                 {even, 4, 1176},  {even, 6, 868},  {even, 7, 812},
                 {even, 8, 784},   {even, 10, 754}, {model, 4, 3241},
                 {model, 6, 2398}, {model, 7, 2267}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double b = bound_of(8, 1, 24, PP_PLACEMENT_LOOP, true, cases[i].cost,
                            cases[i].limit);
        ok(round(b) >= cases[i].want, "F %g, %d slots: no less than %d",
           cases[i].cost[0], cases[i].limit, cases[i].want);
    }
    is_int((int)bound_of(2, 1, 3, PP_PLACEMENT_LOOP, true, unit, 0.5),
           -PP_EXIT_NO, "half a slot is too little for one microbatch");
}

/* With one slot on every rank of a chain, microbatches run one by one. */
static void test_alone(void)
{
    static const double cost[] = {3, 4, 2, 1};
    double once = 5 * (3 + 4) + 2 * 4 * 1 + 2;
    is_near(bound_of(5, 1, 7, PP_PLACEMENT_LOOP, true, cost, 1), 7 * once,
            1e-12, "with one slot the bound is m round trips");
}

/* Closed forms of the bound, and kinds that reach them. */
static void test_closed_forms(void)
{
    static const struct {
        const char *kind;
        int p, c, m;
        double cost[4];
        bool v, split;
    } cases[] = {
        {"gpipe", 4, 1, 6, {3, 2, 2, 0.5}, false, false},
        {"eager-1f1b", 4, 1, 9, {3, 2, 2, 0.5}, false, false},
        {"zb-h2", 4, 1, 9, {3, 3, 3, 0.25}, false, true},
        {"zb-h2", 8, 1, 24, {10, 10, 8, 1}, false, true},
        {"looped-bfs", 4, 2, 8, {1, 1, 1, 0}, false, false},
        {"looped-bfs", 4, 3, 8, {1, 1, 1, 0}, false, false},
        {"zbv", 4, 2, 16, {1, 1, 1, 0}, true, true},
        {"interleaved", 4, 2, 8, {1, 1, 1, 0}, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int p = cases[i].p, c = cases[i].c, m = cases[i].m;
        const double *cost = cases[i].cost;
        enum pp_placement placement =
            cases[i].v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP;
        double b = bound_of(p, c, m, placement, cases[i].split, cost, 0);
        double once = cost[0] + cost[1] + cost[2];
        double ends = cases[i].split ? cost[0] + cost[3] : once + 2 * cost[3];
        is_near(b, m * c * once + (p - 1) * ends, 1e-12,
                "the bound is the closed form");
        struct fixture f;
        struct pp_sim sim = {0};
        chain(&f, p, c, placement);
        struct pp_literal_costs literal = {&f.graph, cost[0], cost[1],
                                           cost[2],  cost[3], true};
        struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
        if (emit(&f, cases[i].kind, m, 0) || pp_lower(&f.s, &f.err) ||
            pp_simulate(&f.s, &costs, INT_MAX, &sim, &f.err))
            printf("# %s\n", f.err.text);
        is_near(sim.makespan, b, 1e-12, cases[i].kind);
        pp_sim_finish(&sim);
        drop(&f);
    }
}

/* More memory never raises the bound; more microbatches never lower it. */
static void test_monotone(void)
{
    static const double cost[] = {1, 1, 1, 0.125};
    bool room = true, work = true;
    for (int v = 0; v < 2; v++)
        for (int limit = 2; limit < 18; limit++)
            for (int m = 1; m < 20; m++) {
                enum pp_placement at = v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP;
                double b = bound_of(4, 2, m, at, true, cost, limit);
                double more = bound_of(4, 2, m, at, true, cost, limit + 1);
                double next = bound_of(4, 2, m + 1, at, true, cost, limit);
                room &= more <= b + 1e-9;
                work &= next >= b;
            }
    ok(room, "more memory never raises the bound");
    ok(work, "more microbatches never lower it");
}

int main(int argc, char **argv)
{
    test_table();
    test_alone();
    test_v();
    test_closed_forms();
    test_monotone();
    test_freed_by_both();
    test_whole_needs_less();
    test_choice_of_room();
    test_optimum(argc > 1 ? atoi(argv[1]) : 400 / fewer());
    return done();
}
