/* SPDX-License-Identifier: MIT */
/* Tests kinds on graphs that are not chains: encoders of different depth before
 * one model, on their own ranks and on shared ranks, and the kinds that refuse
 * them. */
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

int main(void)
{
    const struct branches *const all[] = {&two,   &uneven, &uneven3, &uneven4,
                                          &three, &shared, &joined,  &crossing};
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
    return done();
}
