/* SPDX-License-Identifier: MIT */
/* Tests kinds on graphs that are not chains: encoders of different depth before
 * one model, on their own ranks and on shared ranks; a head of several stages;
 * and the kinds that refuse them. */
#include <math.h>

#include "sched_fixture.h"

#include "schedule/bound/bound.h"
#include "schedule/memory/memory.h"

enum { MAX_STAGES = 8 };

/* A graph: stages with their inputs, ended by -1. longest and depth count
 * ranks. */
struct branches {
    const char *name;
    int n_ranks, n_stages, longest;
    struct {
        int rank, inputs[4];
    } stages[MAX_STAGES];
    int depth[MAX_STAGES]; /* per rank */
};

static const struct branches two = {
    .name = "two encoders",
    .n_ranks = 4,
    .n_stages = 4,
    .longest = 3,
    .stages = {{0, {-1}}, {1, {-1}}, {2, {0, 1, -1}}, {3, {2, -1}}},
    .depth = {2, 2, 1, 0}};
static const struct branches diamond = {
    .name = "a diamond",
    .n_ranks = 4,
    .n_stages = 4,
    .longest = 3,
    .stages = {{0, {-1}}, {1, {0, -1}}, {2, {0, -1}}, {3, {1, 2, -1}}},
    .depth = {2, 1, 1, 0}};
static const struct branches uneven = {.name = "image 1, audio 2, model 2",
                                       .n_ranks = 5,
                                       .n_stages = 5,
                                       .longest = 4,
                                       .stages = {{0, {-1}},
                                                  {1, {-1}},
                                                  {2, {1, -1}},
                                                  {3, {0, 2, -1}},
                                                  {4, {3, -1}}},
                                       .depth = {2, 3, 2, 1, 0}};
static const struct branches uneven3 = {.name = "image 1, audio 2, model 3",
                                        .n_ranks = 6,
                                        .n_stages = 6,
                                        .longest = 5,
                                        .stages = {{0, {-1}},
                                                   {1, {-1}},
                                                   {2, {1, -1}},
                                                   {3, {0, 2, -1}},
                                                   {4, {3, -1}},
                                                   {5, {4, -1}}},
                                        .depth = {3, 4, 3, 2, 1, 0}};
static const struct branches uneven4 = {.name = "image 1, audio 2, model 4",
                                        .n_ranks = 7,
                                        .n_stages = 7,
                                        .longest = 6,
                                        .stages = {{0, {-1}},
                                                   {1, {-1}},
                                                   {2, {1, -1}},
                                                   {3, {0, 2, -1}},
                                                   {4, {3, -1}},
                                                   {5, {4, -1}},
                                                   {6, {5, -1}}},
                                        .depth = {4, 5, 4, 3, 2, 1, 0}};
static const struct branches three = {.name = "encoders of 1, 2 and 3",
                                      .n_ranks = 8,
                                      .n_stages = 8,
                                      .longest = 5,
                                      .stages = {{0, {-1}},
                                                 {1, {-1}},
                                                 {2, {1, -1}},
                                                 {3, {-1}},
                                                 {4, {3, -1}},
                                                 {5, {4, -1}},
                                                 {6, {0, 2, 5, -1}},
                                                 {7, {6, -1}}},
                                      .depth = {2, 3, 2, 4, 3, 2, 1, 0}};
static const struct branches shared = {
    .name = "two encoders on one rank",
    .n_ranks = 3,
    .n_stages = 4,
    .longest = 3,
    .stages = {{0, {-1}}, {0, {-1}}, {1, {0, 1, -1}}, {2, {2, -1}}},
    .depth = {2, 1, 0}};
static const struct branches joined = {
    .name = "an encoder on the model's first rank",
    .n_ranks = 3,
    .n_stages = 4,
    .longest = 3,
    .stages = {{0, {-1}}, {1, {-1}}, {1, {0, 1, -1}}, {2, {2, -1}}},
    .depth = {2, 1, 0}};
static const struct branches crossing = {
    .name = "a stage that feeds the last one too",
    .n_ranks = 4,
    .n_stages = 4,
    .longest = 4,
    .stages = {{0, {-1}}, {1, {0, -1}}, {2, {1, -1}}, {3, {0, 2, -1}}},
    .depth = {3, 2, 1, 0}};
/* Passes both ranks twice. */
static const struct branches twice = {
    .name = "encoders on all of the model's ranks",
    .n_ranks = 2,
    .n_stages = 4,
    .stages = {{0, {-1}}, {1, {-1}}, {0, {0, 1, -1}}, {1, {2, -1}}}};

static void build(struct fixture *f, const struct branches *b)
{
    *f = (struct fixture){.graph = {.n_rows = b->n_ranks,
                                    .n_stages = b->n_stages,
                                    .tied = {-1, -1}}};
    f->graph.stages =
        pp_arena_alloc(&f->arena, MAX_STAGES, sizeof(*f->graph.stages));
    for (int s = 0; s < b->n_stages; s++) {
        int n = 0;
        while (b->stages[s].inputs[n] >= 0)
            n++;
        f->graph.stages[s] =
            (struct pp_stage_node){.row = b->stages[s].rank,
                                   .n_inputs = n,
                                   .inputs = b->stages[s].inputs};
    }
    if (pp_graph_connect(&f->arena, &f->graph, &f->err))
        printf("# %s\n", f->err.text);
}

/* Emits and lowers a kind, and checks it with rendezvous and at every depth up
 * to more messages than a channel ever has.
 */
static bool runs(struct fixture *f, const char *kind, int m)
{
    int rc = emit(f, kind, m, 0) || pp_lower(&f->s, &f->err);
    for (int depth = 0; !rc && depth <= m + 1; depth++) {
        f->s.channel_depth = depth;
        rc = pp_check(&f->s, &f->err);
    }
    if (rc)
        printf("# %s, m=%d: %s\n", kind, m, f->err.text);
    return !rc;
}

static const char *const takers[] = {"gpipe",      "looped-bfs", "1f1b",
                                     "eager-1f1b", "zb-h1",      "zb-h2"};
enum { N_TAKERS = sizeof takers / sizeof *takers };

static void test_runs(const struct branches *b)
{
    for (size_t k = 0; k < N_TAKERS; k++) {
        bool all = true;
        for (int m = 1; m <= 9; m++) {
            struct fixture f;
            build(&f, b);
            all &= runs(&f, takers[k], m);
            drop(&f);
        }
        ok(all, "%s runs on %s", takers[k], b->name);
    }
}

/* A rank runs as many warmup microbatches as there are ranks between it and the
 * loss, plus one, however long its own branch is. */
static void test_warmup(const struct branches *b)
{
    struct fixture f;
    build(&f, b);
    bool same = !emit(&f, "1f1b", 9, 0);
    for (int r = 0; same && r < b->n_ranks; r++) {
        int held = 0;
        for (int s = 0; s < b->n_stages; s++)
            held += b->stages[s].rank == r;
        same = pp_row_slots(&f.s, r) == held * (b->depth[r] + 1);
    }
    ok(same, "1f1b warms up by the longest path to the loss: %s", b->name);
    drop(&f);
}

/* With one stage per rank only the longest branch decides the time. */
static void test_time(const struct branches *b)
{
    static const double cost[] = {1, 1, 1, 0};
    static const struct {
        const char *kind;
        int each; /* factor of p - 1 */
    } cases[] = {{"gpipe", 3}, {"1f1b", 3}, {"zb-h1", 1}, {"zb-h2", 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct fixture f;
        struct pp_sim sim = {0};
        build(&f, b);
        ok(plan_kind(&f, cases[k].kind, 9, cost, &sim), "%s: %s", cases[k].kind,
           b->name);
        is_near(sim.makespan, 3 * 9 + cases[k].each * (b->longest - 1), 0,
                "  takes as long as a chain of its longest branch");
        pp_sim_finish(&sim);
        drop(&f);
    }
}

/* Returns the least time of any order in which row r holds at most `slots`
 * microbatches, or with -1, any number. */
static double least_time(const struct fixture *f, int m, int r, int slots)
{
    struct pp_literal_costs literal = {
        .graph = &f->graph, .f = 1, .i = 1, .w = 1, .textbook = true};
    const struct pp_costs costs = {pp_literal_time, &literal};
    double limit[MAX_STAGES];
    struct pp_load load[MAX_STAGES];
    const struct pp_memory_limit room = {limit, load};
    struct pp_bound bound = {0};
    struct pp_err err = {0};
    for (int k = 0; k < MAX_STAGES; k++) {
        limit[k] = k == r && slots >= 0 ? slots : 1000;
        load[k] = (struct pp_load){0, 1, 0};
    }
    if (pp_bound_by_refuting(&f->graph, m, false, &costs, &room, INFINITY, 1,
                             &bound, &err))
        printf("# %s\n", err.text);
    return bound.makespan;
}

/* 1f1b takes the least time of any order, and with a slot less on any rank
 * every order takes longer. */
static void test_least(const struct branches *b)
{
    enum { M = 12 };
    static const double cost[] = {1, 1, 1, 0};
    struct fixture f;
    struct pp_sim sim = {0};
    build(&f, b);
    bool least = plan_kind(&f, "1f1b", M, cost, &sim);
    ok(least && fabs(sim.makespan - least_time(&f, M, 0, -1)) < 1e-9,
       "1f1b takes the least time: %s", b->name);
    for (int r = 0; least && r < b->n_ranks; r++) {
        int slots = pp_row_slots(&f.s, r);
        if (slots > 1)
            least = least_time(&f, M, r, slots - 1) > sim.makespan + 0.5;
        if (!least)
            printf("# rank %d: %d slots\n", r, slots);
    }
    ok(least, "  no order does so with a slot less on any rank");
    pp_sim_finish(&sim);
    drop(&f);
}

static void refuses(const struct branches *b, const char *kind,
                    const char *says)
{
    struct fixture f;
    build(&f, b);
    if (!ok(emit(&f, kind, 8, 0) && f.err.code == PP_EXIT_INPUT &&
                strstr(f.err.text, says),
            "%s refuses %s", kind, b->name))
        printf("# '%s'\n", f.err.text);
    drop(&f);
}

static void test_refusals(void)
{
    static const char *const chains[] = {
        "interleaved", "zb-interleaved", "hanayo",   "zbv",
        "v-half",      "v-min",          "dualpipev"};
    for (size_t k = 0; k < sizeof chains / sizeof *chains; k++)
        refuses(&uneven, chains[k],
                "stage 1 has other inputs than the previous stage: gpipe");
    for (size_t k = 2; k < N_TAKERS; k++)
        refuses(&twice, takers[k], "one rank is passed twice");
    for (size_t k = 0; k < 2; k++) {
        struct fixture f;
        build(&f, &twice);
        ok(runs(&f, takers[k], 8), "%s runs on %s", takers[k], twice.name);
        drop(&f);
    }
}

/* --- a head of several stages --- */

static bool build_head(struct fixture *f, int p, int n)
{
    chain(f, p, 1, PP_PLACEMENT_LOOP);
    return !pp_graph_add_head(&f->arena, n, &f->graph, &f->err);
}

/* Fails if an action of a row waits for one that comes later in it, at any
 * depth: the passes of a microbatch come in order on every row. */
static void test_head_runs(const char *kind, int p, int each)
{
    bool all = true;
    int n_slices = strcmp(kind, "looped-bfs") ? 2 : 1; /* it takes no slices */
    for (int m = 1; m <= 9; m++)
        for (int slices = 1; slices <= n_slices; slices++) {
            struct fixture f;
            all &= build_head(&f, p, p * each);
            all &= pp_graph_head(&f.graph) == p;
            for (int k = 0; k < p * each; k++)
                all &= f.graph.stages[p + k].row == k / each;
            f.graph.slices.n = slices;
            all &= runs(&f, kind, m);
            drop(&f);
        }
    ok(all, "%s runs a head of %d stages on %d ranks", kind, p * each, p);
}

static void test_head_rows(void)
{
    static const char *const want[] = {
        "0F0 0F1 0F2 2F0 2F1 2B0 2F2 2B1 0B0 2B2 0B1 0B2",
        "1F0 1F1 3F0 1F2 3F1 4F0 4B0 3B0 4F1 4B1 1B0 3F2 3B1 4F2 4B2 1B1 3B2 "
        "1B2",
    };
    struct fixture f;
    bool emitted = build_head(&f, 2, 2) && !emit(&f, "1f1b", 3, 0);
    ok(emitted, "1f1b runs a head of 2 stages");
    for (int r = 0; emitted && r < 2; r++) {
        char got[400] = "", *at = got;
        for (size_t i = 0; i < f.s.rows[r].n; i++) {
            *at = ' ';
            at += i > 0;
            at += pp_action_format(f.s.rows[r].actions[i], false, at);
        }
        is_str(got, want[r], "  in this order");
    }
    drop(&f);
}

/* The times of a stage of the chain, of the head and of the loss. */
static double head_time(const void *ctx, struct pp_action a)
{
    const struct pp_graph *g = ctx;
    int first = pp_graph_head(g);
    double unit = a.stage < first ? 1 : a.stage == g->n_stages - 1 ? 0 : 0.1;
    return !pp_is_compute(a.op) ? 0.01 : a.op == PP_B ? 2 * unit : unit;
}

/* A step takes as long as that of 1f1b if each rank had its part of the head in
 * its stage: passes fill no bubble and make none. A rank keeps two microbatches
 * more of its stage. */
static void test_head_time(int p)
{
    enum { M = 48 };
    struct fixture f;
    struct pp_sim sim = {0};
    build_head(&f, p, p);
    const struct pp_costs costs = {head_time, &f.graph};
    bool runs_it = !emit(&f, "1f1b", M, 0) && !pp_lower(&f.s, &f.err) &&
                   !pp_simulate(&f.s, &costs, 1, &sim, &f.err);
    double ideal = 3.3 * (M + p - 1);
    ok(runs_it && sim.makespan < 1.02 * ideal,
       "1f1b takes %g with a head over %d ranks, not more than 2 %% above %g",
       sim.makespan, p, ideal);
    for (int r = 0; r < p; r++) {
        int live = 0, most = 0;
        for (size_t i = 0; i < f.s.rows[r].n; i++) {
            struct pp_action a = f.s.rows[r].actions[i];
            live += a.stage == r && a.op == PP_F;
            most = live > most ? live : most;
            live -= a.stage == r && a.op == PP_B;
        }
        is_int(most, p - r + 2, "  a rank keeps two microbatches more");
    }
    pp_sim_finish(&sim);
    drop(&f);
}

static void refuses_head(const char *kind, int p, int c, int n,
                         const char *says)
{
    struct fixture f;
    chain(&f, p, c, PP_PLACEMENT_LOOP);
    bool fails = pp_graph_add_head(&f.arena, n, &f.graph, &f.err) ||
                 emit(&f, kind, 8, 0);
    ok(fails && f.err.code == PP_EXIT_INPUT && strstr(f.err.text, says),
       "%s refuses a head of %d stages on %d ranks of %d: %s", kind, n, p, c,
       f.err.text);
    drop(&f);
}

static void test_head(void)
{
    for (size_t k = 0; k < N_TAKERS; k++) {
        test_head_runs(takers[k], 1, 2);
        test_head_runs(takers[k], 2, 1);
        test_head_runs(takers[k], 3, 2);
        test_head_runs(takers[k], 4, 1);
    }
    test_head_rows();
    test_head_time(4);
    test_head_time(16);
    refuses_head("1f1b", 3, 1, 4, "4 stages does not divide evenly over 3");
    refuses_head("1f1b", 2, 2, 4, "needs one stage on each rank before it");
    refuses_head("interleaved", 2, 1, 2, "does not run a head of 2 stages");
    /* A chain, branches, and a head that leaves out a stage are no such head.
     */
    struct fixture f;
    chain(&f, 4, 1, PP_PLACEMENT_LOOP);
    is_int(pp_graph_head(&f.graph), -1, "a chain has no head of stages");
    drop(&f);
    build(&f, &two);
    is_int(pp_graph_head(&f.graph), -1, "nor have branches");
    drop(&f);
    build(&f, &diamond);
    is_int(pp_graph_head(&f.graph), -1, "nor a diamond on ranks of its own");
    drop(&f);
    build_head(&f, 2, 2);
    f.graph.stages[4].n_inputs = 1;
    is_int(pp_graph_head(&f.graph), -1, "nor stages without a loss of all");
    drop(&f);
}

int main(void)
{
    const struct branches *const all[] = {&two,     &diamond, &uneven,
                                          &uneven3, &uneven4, &three,
                                          &shared,  &joined,  &crossing};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        test_runs(all[i]);
        test_warmup(all[i]);
        if (all[i]->n_ranks == all[i]->n_stages) {
            test_time(all[i]);
            if (i == 0 || fewer() == 1)
                test_least(all[i]);
        }
    }
    test_refusals();
    test_head();
    return done();
}
