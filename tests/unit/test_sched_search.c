/* SPDX-License-Identifier: MIT */
/* auto finds the optimum of tiny pipelines, is never worse than a named kind or
 * above the limit, and reaches the figures of other searches. */
#include "sched_fixture.h"

#include <limits.h>

#include "base/rng.h"
#include "optimum.h"
#include "schedule/bound/bound.h"
#include "schedule/memory/memory.h"
#include "schedule/search/search.h"

/* The input of a search and its result. */
struct problem {
    struct fixture f;
    int m;
    double slots;        /* 0: no limit */
    struct pp_load each; /* by default a slot */
    struct pp_literal_costs costs;
    double saved; /* by B of the last stage, of its I and W */
    struct pp_search_options o;
    double limit[32];
    struct pp_load load[64];
    struct pp_memory_limit room;
    double makespan, span;
    int peak;
};

static void set(struct problem *j, int p, int c, enum pp_placement placement,
                int m, double slots)
{
    static const struct pp_search_options options = {
        .split = true, .seed = 1, .seconds = 0.5};
    *j = (struct problem){
        .m = m, .slots = slots, .each = {.f_to_w = 1}, .o = options};
    j->o.seconds /= fewer();
    chain(&j->f, p, c, placement);
    j->costs = (struct pp_literal_costs){.f = 1, .i = 1, .w = 1};
    j->costs.textbook = true;
}

static void cost(struct problem *j, double f, double i, double w, double comm)
{
    j->costs.f = f;
    j->costs.i = i;
    j->costs.w = w;
    j->costs.comm = comm;
}

static double job_time(const void *ctx, struct pp_action a)
{
    const struct problem *j = ctx;
    bool saves = a.op == PP_B && a.stage == j->f.graph.n_stages - 1;
    return pp_literal_time(&j->costs, a) - (saves ? j->saved : 0);
}

/* Searches, simulates, lowers and checks. Returns false if any of it fails. */
static bool run(struct problem *j, const struct pp_costs *costs)
{
    struct pp_costs literal = {.time = job_time, .ctx = j};
    struct fixture *f = &j->f;
    struct pp_sim sim;
    j->costs.graph = &f->graph;
    j->o.costs = costs ? costs : &literal;
    for (int r = 0; r < f->graph.n_rows; r++)
        j->limit[r] = j->slots;
    for (int s = 0; s < f->graph.n_stages; s++)
        j->load[s] = j->each;
    j->room = (struct pp_memory_limit){j->limit, j->load};
    j->o.room = j->slots > 0 ? &j->room : NULL;
    pp_schedule_init(&f->s, &f->graph, "auto", j->m);
    if (pp_search(&f->s, &j->o, &f->err) ||
        pp_simulate(&f->s, j->o.costs, INT_MAX, &sim, &f->err))
        return false;
    j->makespan = sim.makespan;
    j->span = sim.span;
    pp_sim_finish(&sim);
    for (int r = 0; r < f->graph.n_rows; r++)
        if (pp_row_slots(&f->s, r) > j->peak)
            j->peak = pp_row_slots(&f->s, r);
    if (j->slots > 0 && j->peak > j->slots)
        pp_fail(&f->err, PP_EXIT_NO, "%d slots", j->peak);
    return f->err.code == PP_EXIT_OK && !pp_lower(&f->s, &f->err) &&
           !pp_check(&f->s, &f->err);
}

struct dice {
    uint64_t key, at;
};

static int roll(struct dice *d, int n)
{
    return (int)(pp_rng_bits(d->key, d->at++) % (uint64_t)n);
}

/* Times by stage and op, the same for every microbatch. */
struct table {
    double time[PP_N_OPS][OPT_STAGES];
};

static double table_time(const void *ctx, struct pp_action a)
{
    const struct table *t = ctx;
    return t->time[a.op][a.stage];
}

static void roll_times(struct table *t, struct dice *d)
{
    int range = 1 + roll(d, 10), comm = roll(d, 3);
    for (int s = 0; s < OPT_STAGES; s++) {
        for (int op = 0; op < PP_N_OPS; op++)
            t->time[op][s] =
                op < PP_SEND_F ? 1 + roll(d, range) : roll(d, 1 + comm);
        t->time[PP_B][s] = t->time[PP_I][s] + t->time[PP_W][s];
    }
}

/* Returns 1 if no order is better, 0 if one is, -1 if that took too long. */
static int is_optimal(struct problem *j, const struct pp_costs *costs)
{
    struct pp_bound b;
    struct optimum o = {.g = &j->f.graph,
                        .costs = costs,
                        .room = j->o.room,
                        .m = j->m,
                        .split = j->o.split,
                        .in_order = true,
                        .best = j->makespan,
                        .nodes = 300000};
    if (pp_bound(&j->f.graph, j->m, o.split, costs, o.room, &b, &j->f.err))
        return -1;
    if (j->makespan <= b.makespan * (1 + 1e-9))
        return 1;
    bool whole = optimum_find(&o);
    if (o.best < j->makespan - 1e-9) {
        printf("# %g, but %g is possible: %d ranks, %d stages, %d "
               "microbatches, %g slots, split %d\n",
               j->makespan, o.best, j->f.graph.n_rows, j->f.graph.n_stages,
               j->m, j->slots, o.split);
        return 0;
    }
    return whole ? 1 : -1;
}

static void test_optimum(int n)
{
    static const int shapes[][3] = {/* ranks, chunks, most microbatches */
                                    {2, 1, 5},
                                    {3, 1, 4},
                                    {2, 2, 3},
                                    {2, 3, 2}};
    struct dice d = {.key = pp_rng_key(1, "search")};
    int count[3] = {0}, *decided = count + 1, failed = 0;
    for (int i = 0; i < n; i++) {
        const int *shape = shapes[roll(&d, 4)];
        struct problem j;
        struct table t;
        struct pp_costs costs = {.time = table_time, .ctx = &t};
        bool v = roll(&d, 2);
        set(&j, shape[0], shape[1], v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP,
            1 + roll(&d, shape[2]), 0);
        j.slots = roll(&d, 4) ? shape[1] + roll(&d, 2 * shape[1]) : 0;
        j.o.split = roll(&d, 3) > 0;
        j.o.seconds = 0.2;
        roll_times(&t, &d);
        bool valid = run(&j, &costs);
        int verdict = valid ? is_optimal(&j, &costs) : -1;
        if (valid && verdict == 0) { /* others may have had the processor */
            pp_schedule_finish(&j.f.s);
            j.o.seconds = 20;
            valid = run(&j, &costs);
            verdict = valid ? is_optimal(&j, &costs) : -1;
        }
        if (valid)
            decided[verdict]++;
        else
            printf("# %s\n", j.f.err.text);
        failed += !valid;
        drop(&j.f);
    }
    is_int(failed, 0, "tiny pipelines: every search ends in a valid schedule");
    is_int(decided[0], 0, "and no order is better");
    printf("# %d are optimal, %d were not decided\n", decided[1], decided[-1]);
    ok(decided[1] >= n * 9 / 10, "most were decided");
}

/* auto is at least as good as each kind in that kind's memory. */
static void compare_kind(const struct pp_kind *kind, int p, int c, bool v,
                         int m, const double *costs, int *n, int *worse)
{
    struct pp_kind_options ko = {.n_microbatches = m};
    struct problem j;
    struct pp_sim sim;
    set(&j, p, c, v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP, m, 0);
    cost(&j, costs[0], costs[1], costs[2], costs[3]);
    j.saved = costs[4];
    j.o.seconds = 0; /* even with no time at all */
    j.costs.graph = &j.f.graph;
    struct pp_costs literal = {.time = job_time, .ctx = &j};
    pp_schedule_init(&j.f.s, &j.f.graph, kind->name, m);
    if (!pp_kind_emit(kind, &j.f.s, &ko, &j.f.err) &&
        !pp_simulate(&j.f.s, &literal, INT_MAX, &sim, &j.f.err)) {
        for (int r = 0; r < p; r++)
            j.slots = fmax(j.slots, pp_row_slots(&j.f.s, r));
        pp_schedule_finish(&j.f.s);
        bool good = run(&j, NULL) && j.makespan <= sim.makespan * (1 + 1e-9);
        if (!good)
            printf("# %s, p=%d c=%d m=%d: %g, not %g; %s\n", kind->name, p, c,
                   m, sim.makespan, j.makespan, j.f.err.text);
        *n += 1;
        *worse += !good;
        pp_sim_finish(&sim);
    }
    drop(&j.f);
}

/* Returns the time of a run at the schedule's depth. */
static double run_time(const struct pp_schedule *s,
                       const struct pp_costs *costs)
{
    struct pp_sim sim;
    struct pp_err err = {0};
    if (pp_simulate(s, costs, s->channel_depth, &sim, &err))
        return INFINITY;
    double makespan = sim.makespan;
    pp_sim_finish(&sim);
    return makespan;
}

static int most_slots(const struct pp_schedule *s)
{
    int most = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        most = pp_row_slots(s, r) > most ? pp_row_slots(s, r) : most;
    return most;
}

struct contest {
    int n, slower, heavier, faster, deeper, broken;
};

/* Compares auto's run at a depth (-1: chosen) with a kind's at that depth, or
 * at depth 1. */
static void compare_run(const struct pp_kind *kind, int p, int c, bool v, int m,
                        const double *costs, int depth, struct contest *t)
{
    struct pp_kind_options ko = {.n_microbatches = m};
    struct problem j;
    struct pp_schedule s = {0};
    set(&j, p, c, v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP, m, 0);
    cost(&j, costs[0], costs[1], costs[2], costs[3]);
    j.saved = costs[4];
    j.o.seconds = 0;
    j.costs.graph = &j.f.graph;
    struct pp_costs literal = {.time = job_time, .ctx = &j};
    j.o.costs = &literal;
    pp_schedule_init(&s, &j.f.graph, kind->name, m);
    if (!pp_kind_emit(kind, &s, &ko, &j.f.err) && !pp_lower(&s, &j.f.err)) {
        s.channel_depth = depth < 0 ? 1 : depth;
        double want = run_time(&s, &literal), got = INFINITY;
        if (!pp_search_lowered(&j.f.s, &j.f.graph, m, depth, &j.o, &j.f.err) &&
            !pp_check(&j.f.s, &j.f.err))
            got = run_time(&j.f.s, &literal);
        t->broken += isinf(got);
        t->slower += got > want * (1 + 1e-9);
        t->faster += got < want * (1 - 1e-9);
        t->heavier +=
            got >= want * (1 - 1e-9) && most_slots(&j.f.s) > most_slots(&s);
        t->deeper += depth < 0 && j.f.s.channel_depth > 1;
        t->n++;
    }
    pp_schedule_finish(&s);
    drop(&j.f);
}

/* Messages of 9 fill a channel of depth 1. */
static void test_runs(void)
{
    static const double costs[][5] = {
        {5, 5, 4, 9, 0}, {1, 2, 0.5, 0, 0}, {10, 10, 8, 3, 0}, {7, 9, 8, 1, 6}};
    struct contest t = {0};
    for (const struct pp_kind *const *k = pp_kinds; *k; k++)
        for (int p = 3; p <= 4; p++)
            for (int c = 1; c <= 2; c++)
                for (int v = 0; v < c; v++)
                    for (int i = 0; i < 4; i += fewer())
                        for (int depth = -1; depth < 2; depth++)
                            compare_run(*k, p, c, v, 2 * p, costs[i], depth,
                                        &t);
    printf("# %d runs, %d faster than the kind, %d deeper than 1\n", t.n,
           t.faster, t.deeper);
    ok(t.n > 200 / fewer() && t.faster > 50 / fewer() && t.deeper > 0,
       "there are runs to compare");
    is_int(t.broken, 0, "every order is valid");
    is_int(t.slower, 0, "no run of a named kind is faster at the same depth");
    is_int(t.heavier, 0, "none as fast needs less memory");
}

static void test_kinds(void)
{
    static const double costs[][5] = {
        {1, 1, 1, 0, 0}, {10, 10, 8, 1, 0}, {7, 11, 5, 3, 0}, {7, 9, 8, 1, 6}};
    int n = 0, worse = 0;
    for (const struct pp_kind *const *k = pp_kinds; *k; k++)
        for (int p = 2; p <= 4; p++)
            for (int c = 1; c <= 2; c++)
                for (int v = 0; v < c; v++)
                    for (int m = 1; m <= 3 * p; m += p)
                        for (int i = 0; i < 4; i += fewer())
                            compare_kind(*k, p, c, v, m, costs[i], &n, &worse);
    printf("# %d kinds compared\n", n);
    ok(n > 200 / fewer(), "there are kinds to compare with");
    is_int(worse, 0, "never worse than a named kind at its own memory");
}

/* A head of which B computes the logits once more, and I and W twice. */
static double head_time(const void *ctx, struct pp_action a)
{
    const struct problem *j = ctx;
    bool head = a.stage == j->f.graph.n_stages - 1;
    if (a.op == PP_B)
        return head ? 12 : 8;
    return !pp_is_compute(a.op) ? 0 : head && a.op != PP_F ? 8 : 4;
}

/* Returns the W on the last of c stages of each rank in an order for such a
 * head, and sets its makespan. */
static int head_weights(bool split, int c, double *makespan)
{
    struct problem j;
    const struct pp_costs costs = {head_time, &j, 0};
    int n = 0;
    set(&j, 4, c, PP_PLACEMENT_V, 16, 0);
    j.o.split = split;
    *makespan = run(&j, &costs) ? j.makespan : INFINITY;
    const struct pp_row *row = &j.f.s.rows[c == 1 ? 3 : 0];
    for (size_t i = 0; i < row->n; i++)
        n += row->actions[i].op == PP_W &&
             row->actions[i].stage == j.f.graph.n_stages - 1;
    drop(&j.f);
    return n;
}

static void test_head(void)
{
    double mixed, whole;
    int n = head_weights(true, 1, &mixed);
    is_int(head_weights(false, 1, &whole), 0, "without split there is no W");
    /* The forwards before, the head's 16 times F and B, and the gradients
     * after. Two W of 8 run meanwhile; each ends the head's gradients 4
     * earlier. */
    ok(mixed <= 12 + 16 * 16 + 16 - 2 * 4 + 1e-9,
       "a costly head runs B, and W at the end: %g, %g with B alone", mixed,
       whole);
    is_int(n, 2, "so only its last two microbatches have W");
    ok(mixed < whole, "which is shorter");
    /* In a V the first rank has the head, and other work for the end. */
    is_int(head_weights(true, 2, &mixed), 0, "in a V the head has no W");
    is_int((long)mixed, 16 * (12 + 16), "its rank is never idle");
}

/* Makespans at p = 8, m = 24 that an event-driven list scheduler reaches below
 * p slots, and the optimum from p on. */
static void test_few_slots(void)
{
    static const struct {
        double slots, f, i, w, comm, most;
    } want[] = {
        {3, 1, 1, 1, 0, 148},    {4, 1, 1, 1, 0, 116},
        {6, 1, 1, 1, 0, 87},     {8, 1, 1, 1, 0, 79},
        {4, 10, 10, 8, 1, 1238}, {6, 10, 10, 8, 1, 916},
        {7, 10, 10, 8, 1, 856},  {8, 10, 10, 8, 1, 784},
        {10, 10, 10, 8, 1, 759}, {6, 29.718, 29.444, 19.927, 0.527, 2480}};
    /* The quickest of each kind if there are to be fewer. */
    size_t by = fewer() > 1 ? 7 : 1;
    for (size_t i = 0; i < sizeof want / sizeof *want; i += by) {
        struct problem j;
        set(&j, 8, 1, PP_PLACEMENT_LOOP, 24, want[i].slots);
        cost(&j, want[i].f, want[i].i, want[i].w, want[i].comm);
        j.o.seconds = 1;
        bool valid = run(&j, NULL);
        if (valid && j.makespan > want[i].most + 1e-6) { /* likewise */
            pp_schedule_finish(&j.f.s);
            j.o.seconds = 40;
            valid = run(&j, NULL);
        }
        ok(valid && j.makespan <= want[i].most + 1e-6,
           "%g slots, F %g: %g is at most %g", want[i].slots, want[i].f,
           j.makespan, want[i].most);
        drop(&j.f);
    }
}

static void test_same_bytes(void)
{
    char *text[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        struct problem j;
        set(&j, 3, 2, PP_PLACEMENT_V, 7, 5);
        cost(&j, 5, 6, 4, 1);
        if (run(&j, NULL))
            text[i] = pp_schedule_format_row(&j.f.s, 1);
        drop(&j.f);
    }
    ok(text[0] && text[1] && !strcmp(text[0], text[1]),
       "the same seed finds the same order");
    free(text[0]);
    free(text[1]);
}

static void test_refusal(void)
{
    struct problem j;
    set(&j, 3, 2, PP_PLACEMENT_V, 4, 1);
    ok(!run(&j, NULL) && j.f.err.code == PP_EXIT_NO,
       "one slot for two stages of a rank is too little");
    is_str(j.f.err.text,
           "rank 0 needs 2 for a single microbatch, more than its limit of "
           "'1'",
           "the error names the least that would do");
    drop(&j.f);
    set(&j, 3, 2, PP_PLACEMENT_V, 4, 2);
    ok(run(&j, NULL) && j.peak == 2, "two slots are enough");
    drop(&j.f);
}

/* Returns the actions of an operation in the schedule. */
static int count_ops(const struct problem *j, enum pp_op op)
{
    int n = 0;
    for (int r = 0; r < j->f.graph.n_rows; r++)
        for (size_t i = 0; i < j->f.s.rows[r].n; i++)
            n += j->f.s.rows[r].actions[i].op == op;
    return n;
}

static void test_whole(void)
{
    struct problem j;
    set(&j, 4, 1, PP_PLACEMENT_LOOP, 8, 0);
    cost(&j, 10, 10, 8, 1);
    j.o.split = false;
    ok(run(&j, NULL), "backward stays whole");
    is_int(count_ops(&j, PP_B), 4 * 8, "every backward is a B");
    is_near(j.makespan, (8 + 4 - 1) * 28 + 2 * 3 * 1, 1e-9,
            "auto reaches the closed form of the optimum");
    drop(&j.f);
}

/* I and W keep more than B: they run apart only if that fits, and late. */
static void test_less_memory(void)
{
    struct problem j;
    for (int saved = 0; saved < 2; saved++) {
        set(&j, 3, 1, PP_PLACEMENT_LOOP, 8, 7);
        j.each = (struct pp_load){1, 1, 8, 1};
        j.saved = 0.5 * saved;
        ok(run(&j, NULL) && j.peak == 3, "B fits where I and W do not");
        is_int(count_ops(&j, PP_B), 3 * 8, "  no backward is split");
        drop(&j.f);
        set(&j, 3, 1, PP_PLACEMENT_LOOP, 8, 100);
        j.each = (struct pp_load){1, 1, 8, 1};
        j.saved = 0.5 * saved;
        ok(run(&j, NULL) && count_ops(&j, PP_I) > 0, "  some are if they fit");
        drop(&j.f);
    }
}

/* Two sources on one rank: forwards of one branch must not fill the memory
 * that the other needs. */
static void test_branches(void)
{
    static const int both[] = {0, 1};
    struct problem j;
    for (int slots = 3; slots < 6; slots++) {
        set(&j, 2, 2, PP_PLACEMENT_LOOP, 6, slots);
        struct pp_stage_node *st = j.f.graph.stages;
        for (int s = 0; s < 4; s++)
            st[s].row = s == 3;
        st[1].n_inputs = 0;
        st[2].n_inputs = 2;
        st[2].inputs = both;
        bool valid = !pp_graph_connect(&j.f.arena, &j.f.graph, &j.f.err) &&
                     run(&j, NULL);
        ok(valid, "two branches in %d slots: %g", slots, j.makespan);
        drop(&j.f);
    }
}

static void test_span(void)
{
    struct problem j[2];
    for (int i = 0; i < 2; i++) {
        set(&j[i], 8, 1, PP_PLACEMENT_LOOP, 24, 16);
        cost(&j[i], 29.718, 29.444, 19.927, 0.527);
        j[i].o.span = i;
        bool valid = run(&j[i], NULL);
        ok(valid, "%s: makespan %g, span %g", i ? "span" : "makespan",
           j[i].makespan, j[i].span);
        drop(&j[i].f);
    }
    ok(j[1].span <= j[0].span && j[0].makespan <= j[1].makespan * (1 + 1e-9),
       "each is best at its own objective");
}

int main(int argc, char **argv)
{
    test_optimum(argc > 1 ? atoi(argv[1]) : 300 / fewer() / fewer());
    test_kinds();
    test_runs();
    test_head();
    test_few_slots();
    test_same_bytes();
    test_refusal();
    test_whole();
    test_less_memory();
    test_branches();
    test_span();
    return done();
}
