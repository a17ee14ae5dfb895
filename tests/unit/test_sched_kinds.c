/* SPDX-License-Identifier: MIT */
/* Tests kinds against the orders that Megatron-LM runs, the makespans and peaks
 * of an independent model, and the sizes that each kind accepts. */
#include <time.h>

#include "sched_fixture.h"

#include "schedule/memory/memory.h"

/* Writes a rank's compute actions as Megatron-LM names them:
 * F<chunk>.<microbatch>. */
static void program(const struct fixture *f, int rank, char *buf, size_t size)
{
    const struct pp_row *row = &f->s.rows[rank];
    for (size_t i = 0, at = 0; i < row->n; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%c%d.%d", i ? " " : "",
                               row->actions[i].op == PP_F ? 'F' : 'B',
                               row->actions[i].stage / f->graph.n_rows,
                               row->actions[i].microbatch);
}

static void test_programs(void)
{
    static const struct {
        const char *kind;
        int p, c, m, g;
        const char *rows[4];
    } cases[] = {
        {"1f1b",
         2,
         1,
         4,
         0,
         {"F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3",
          "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3"}},
        {"1f1b",
         4,
         1,
         2,
         0,
         {"F0.0 F0.1 B0.0 B0.1", "F0.0 F0.1 B0.0 B0.1", "F0.0 F0.1 B0.0 B0.1",
          "F0.0 B0.0 F0.1 B0.1"}},
        {"interleaved",
         4,
         2,
         8,
         4,
         {"F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 F1.3 F0.4 F0.5 F0.6 B1.0 F0.7 "
          "B1.1 F1.4 B1.2 F1.5 B1.3 F1.6 B0.0 F1.7 B0.1 B0.2 B0.3 B1.4 B1.5 "
          "B1.6 B1.7 B0.4 B0.5 B0.6 B0.7",
          "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 F1.3 F0.4 B1.0 F0.5 B1.1 F0.6 "
          "B1.2 F0.7 B1.3 F1.4 B0.0 F1.5 B0.1 F1.6 B0.2 F1.7 B0.3 B1.4 B1.5 "
          "B1.6 B1.7 B0.4 B0.5 B0.6 B0.7",
          "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 B1.0 F1.3 B1.1 F0.4 B1.2 F0.5 "
          "B1.3 F0.6 B0.0 F0.7 B0.1 F1.4 B0.2 F1.5 B0.3 F1.6 B1.4 F1.7 B1.5 "
          "B1.6 B1.7 B0.4 B0.5 B0.6 B0.7",
          "F0.0 F0.1 F0.2 F0.3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F0.4 "
          "B0.0 F0.5 B0.1 F0.6 B0.2 F0.7 B0.3 F1.4 B1.4 F1.5 B1.5 F1.6 B1.6 "
          "F1.7 B1.7 B0.4 B0.5 B0.6 B0.7"}},
        {"interleaved",
         2,
         2,
         5,
         3,
         {"F0.0 F0.1 F0.2 F1.0 F1.1 F1.2 B1.0 F0.3 B1.1 F0.4 B1.2 F1.3 B0.0 "
          "F1.4 B0.1 B0.2 B1.3 B1.4 B0.3 B0.4",
          "F0.0 F0.1 F0.2 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F0.3 B0.0 F0.4 B0.1 "
          "F1.3 B0.2 F1.4 B1.3 B1.4 B0.3 B0.4"}},
        {"interleaved",
         4,
         2,
         9,
         5,
         {"F0.0 F0.1 F0.2 F0.3 F0.4 F1.0 F1.1 F1.2 F1.3 F1.4 F0.5 F0.6 B1.0 "
          "F0.7 B1.1 F0.8 B1.2 F1.5 B1.3 F1.6 B1.4 F1.7 B0.0 F1.8 B0.1 B0.2 "
          "B0.3 B0.4 B1.5 B1.6 B1.7 B1.8 B0.5 B0.6 B0.7 B0.8",
          "F0.0 F0.1 F0.2 F0.3 F0.4 F1.0 F1.1 F1.2 F1.3 F1.4 B1.0 F0.5 B1.1 "
          "F0.6 B1.2 F0.7 B1.3 F0.8 B1.4 F1.5 B0.0 F1.6 B0.1 F1.7 B0.2 F1.8 "
          "B0.3 B0.4 B1.5 B1.6 B1.7 B1.8 B0.5 B0.6 B0.7 B0.8",
          "F0.0 F0.1 F0.2 F0.3 F0.4 F1.0 F1.1 F1.2 B1.0 F1.3 B1.1 F1.4 B1.2 "
          "F0.5 B1.3 F0.6 B1.4 F0.7 B0.0 F0.8 B0.1 F1.5 B0.2 F1.6 B0.3 F1.7 "
          "B0.4 F1.8 B1.5 B1.6 B1.7 B1.8 B0.5 B0.6 B0.7 B0.8",
          "F0.0 F0.1 F0.2 F0.3 F0.4 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 "
          "F1.4 B1.4 F0.5 B0.0 F0.6 B0.1 F0.7 B0.2 F0.8 B0.3 F1.5 B0.4 F1.6 "
          "B1.5 F1.7 B1.6 F1.8 B1.7 B1.8 B0.5 B0.6 B0.7 B0.8"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        char got[2000];
        chain(&f, cases[i].p, cases[i].c, PP_PLACEMENT_LOOP);
        ok(!emit(&f, cases[i].kind, cases[i].m, cases[i].g),
           "%s fits p=%d c=%d m=%d group %d", cases[i].kind, cases[i].p,
           cases[i].c, cases[i].m, cases[i].g);
        for (int r = 0; r < cases[i].p; r++) {
            program(&f, r, got, sizeof got);
            is_str(got, cases[i].rows[r], "  a rank has Megatron-LM's order");
        }
        drop(&f);
    }
}

static void test_warmup(void)
{
    static const struct {
        int p, c, m, g, warmup[8];
    } cases[] = {
        {4, 1, 8, 0, {3, 2, 1, 0}},
        {8, 1, 8, 0, {7, 6, 5, 4, 3, 2, 1, 0}},
        {2, 2, 5, 3, {5, 3}},
        {4, 2, 4, 4, {8, 8, 6, 4}},
        {4, 2, 10, 5, {11, 9, 7, 5}},
        {8, 2, 16, 8, {22, 20, 18, 16, 14, 12, 10, 8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        bool same = true;
        chain(&f, cases[i].p, cases[i].c, PP_PLACEMENT_LOOP);
        same &= !emit(&f, cases[i].c > 1 ? "interleaved" : "1f1b", cases[i].m,
                      cases[i].g);
        for (int r = 0; same && r < cases[i].p; r++) {
            int n = 0, want = cases[i].warmup[r];
            while (f.s.rows[r].actions[n].op == PP_F)
                n++;
            /* The steady phase, if there is one, starts with a forward. */
            want += want < cases[i].m * cases[i].c;
            same &= n == want;
        }
        ok(same, "warmup of p=%d c=%d m=%d group %d", cases[i].p, cases[i].c,
           cases[i].m, cases[i].g);
        drop(&f);
    }
}

static void test_figures(void)
{
    static const struct {
        const char *kind;
        int p, c, m, g;
        double makespan, bubble;
        int peak[8];
    } cases[] = {
        {"gpipe", 4, 1, 8, 0, 33, .2727, {8, 8, 8, 8}},
        {"1f1b", 4, 1, 8, 0, 33, .2727, {4, 3, 2, 1}},
        {"1f1b", 2, 1, 4, 0, 15, .2, {2, 1}},
        {"1f1b", 8, 1, 16, 0, 69, .3043, {8, 7, 6, 5, 4, 3, 2, 1}},
        {"interleaved", 2, 2, 4, 2, 27, .1111, {5, 3}},
        {"interleaved", 4, 2, 8, 4, 57, .1579, {11, 9, 7, 5}},
        {"interleaved", 4, 2, 8, 0, 57, .1579, {11, 9, 7, 5}},
        {"interleaved", 4, 4, 16, 4, 201, .0448, {19, 17, 15, 13}},
        {"interleaved", 4, 2, 9, 5, 63, .1429, {12, 10, 8, 6}},
        {"interleaved",
         8,
         4,
         16,
         8,
         213,
         .0986,
         {39, 37, 35, 33, 31, 29, 27, 25}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct pp_sim sim;
        struct pp_literal_costs literal = {.f = 1, .i = 1, .w = 1};
        struct pp_costs costs = {pp_literal_time, &literal};
        struct pp_stage_bytes none[32] = {0};
        chain(&f, cases[i].p, cases[i].c, PP_PLACEMENT_LOOP);
        literal.graph = &f.graph;
        ok(!emit(&f, cases[i].kind, cases[i].m, cases[i].g) &&
               !pp_lower(&f.s, &f.err) && !pp_check(&f.s, &f.err) &&
               !pp_simulate(&f.s, &costs, INT_MAX, &sim, &f.err),
           "%s p=%d c=%d m=%d runs", cases[i].kind, cases[i].p, cases[i].c,
           cases[i].m);
        if (f.err.code) {
            printf("# %s\n", f.err.text);
            drop(&f);
            continue;
        }
        is_near(sim.makespan, cases[i].makespan, 0, "  its makespan");
        ok(fabs(sim.bubble - cases[i].bubble) < 5e-5, "  its bubble");
        for (int r = 0; r < cases[i].p; r++) {
            struct pp_memory m;
            if (!pp_memory_plan(&f.s, r, none, &m, &f.err))
                is_int(m.peak_slots, cases[i].peak[r], "  a rank's peak");
            pp_memory_finish(&m);
        }
        pp_sim_finish(&sim);
        drop(&f);
    }
}

static int refused(int p, int c, int m, const char *kind, int group,
                   enum pp_placement placement, const char *says)
{
    struct fixture f;
    chain(&f, p, c, placement);
    int rc = emit(&f, kind, m, group) == -1 && f.err.code == PP_EXIT_INPUT &&
             strstr(f.err.text, says);
    if (!rc)
        printf("# '%s' lacks '%s'\n", f.err.text, says);
    drop(&f);
    return rc;
}

static void test_admissible(void)
{
    static const int bad8[] = {17, 19, 21, 23, 25, 26, 28, 29};
    static const struct {
        int c, m, p;
    } good[] = {{2, 3, 4},   {2, 10, 4}, {2, 15, 4}, {4, 6, 3}, {4, 10, 5},
                {2, 2, 2},   {2, 8, 2},  {2, 8, 8},  {4, 8, 4}, {4, 64, 4},
                {4, 32, 32}, {3, 2, 2},  {3, 12, 4}, {2, 4, 4}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct fixture f;
        chain(&f, good[i].p, good[i].c, PP_PLACEMENT_LOOP);
        ok(!emit(&f, "interleaved", good[i].m, 0) && !pp_lower(&f.s, &f.err) &&
               !pp_check(&f.s, &f.err),
           "interleaved takes c=%d m=%d p=%d", good[i].c, good[i].m, good[i].p);
        drop(&f);
    }
    bool all = true;
    for (int m = 1, i = 0; m <= 30; m++) {
        struct fixture f;
        chain(&f, 8, 2, PP_PLACEMENT_LOOP);
        bool bad = i < 8 && bad8[i] == m;
        i += bad;
        all &= (emit(&f, "interleaved", m, 0) != 0) == bad;
        drop(&f);
    }
    ok(all, "interleaved refuses exactly 17 19 21 23 25 26 28 29 on 8 ranks");
    enum pp_placement loop = PP_PLACEMENT_LOOP;
    ok(refused(8, 2, 17, "interleaved", 0, loop, "no default group") &&
           refused(8, 2, 17, "interleaved", 0, loop, "groups of 9 or 17 fit"),
       "the refusal lists values that work");
    ok(refused(4, 2, 7, "interleaved", 4, loop, "do not fit 7"),
       "4,2,7 group 4");
    ok(refused(4, 2, 3, "interleaved", 4, loop, "there are only 3"),
       "4,2,3 group 4");
    ok(refused(3, 2, 8, "interleaved", 6, loop, "do not fit 8"),
       "3,2,8 group 6");
    ok(refused(4, 2, 8, "interleaved", 0, PP_PLACEMENT_V, "placement loop"),
       "interleaved on V placement names the placement it needs");
    ok(refused(4, 2, 8, "1f1b", 0, loop, "1 chunk per rank"),
       "1f1b on two chunks names the chunks it needs");
}

/* Every kind of any small size is valid at every depth and canonical. */
static void test_sweep(void)
{
    int n = 0, bad = 0;
    for (int p = 1; p <= 5; p++)
        for (int c = 1; c <= 3; c++)
            for (int m = 1; m <= 9; m++)
                for (int k = 0; k < 4; k++) {
                    static const char *const kind[] = {"gpipe", "gpipe", "1f1b",
                                                       "interleaved"};
                    struct fixture f;
                    chain(&f, p, c,
                          k == 0 ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP);
                    if (emit(&f, kind[k], m, 0)) {
                        drop(&f);
                        continue;
                    }
                    n++;
                    int rc = pp_lower(&f.s, &f.err);
                    for (int d = 0; d < 3 && !rc; d++) {
                        f.s.channel_depth = d;
                        rc = pp_check(&f.s, &f.err);
                    }
                    if (rc || !pp_schedule_is_canonical(&f.s)) {
                        bad++;
                        printf("# %s p=%d c=%d m=%d: %s\n", kind[k], p, c, m,
                               f.err.text);
                    }
                    drop(&f);
                }
    ok(bad == 0, "all of %d small schedules pass at depths 0, 1 and 2", n);
}

static void test_dag(void)
{
    /* Image (0) and audio (1 -> 2) encoders feed a model of two stages. */
    static const int in2[] = {1}, in3[] = {0, 2}, in4[] = {3};
    struct pp_stage_node nodes[] = {{.row = 0},
                                    {.row = 1},
                                    {.row = 2, .n_inputs = 1, .inputs = in2},
                                    {.row = 3, .n_inputs = 2, .inputs = in3},
                                    {.row = 4, .n_inputs = 1, .inputs = in4}};
    struct fixture f = {
        .graph = {
            .n_rows = 5, .n_stages = 5, .stages = nodes, .tied = {-1, -1}}};
    ok(!pp_graph_connect(&f.arena, &f.graph, &f.err) &&
           !emit(&f, "1f1b", 6, 0) && !pp_lower(&f.s, &f.err) &&
           !pp_check(&f.s, &f.err),
       "1f1b runs on two branches of unequal length");
    f.s.channel_depth = 0;
    ok(!pp_check(&f.s, &f.err), "  with rendezvous too");
    char *row = pp_schedule_format_row(&f.s, 3);
    ok(row && strstr(row, "3RECV_F0<0") && strstr(row, "3SEND_B5>2"),
       "a message names its peer if several are possible");
    free(row);
    drop(&f);
}

/* Puts two branches before a chain, of one row and of two, and `readers` rows
 * behind it. */
static bool put_beside(struct fixture *f, int readers)
{
    struct pp_graph *g = &f->graph;
    int last = 3 + g->n_stages;
    int *inputs = pp_arena_alloc(&f->arena, 4, sizeof *inputs);
    bool good = !pp_graph_precede(&f->arena, 3, g, &f->err);
    struct pp_stage_node *nodes =
        pp_arena_alloc(&f->arena, (size_t)(last + readers), sizeof *nodes);
    memcpy(nodes, g->stages, (size_t)last * sizeof *nodes);
    g->stages = nodes;
    nodes[1].n_inputs = 0;
    inputs[0] = 0;
    inputs[1] = 2;
    nodes[3].inputs = inputs;
    nodes[3].n_inputs = 2;
    for (int k = 0; k < readers; k++) {
        inputs[2 + k] = last + k - 1;
        nodes[last + k] = (struct pp_stage_node){
            .row = g->n_rows++, .n_inputs = 1, .inputs = &inputs[2 + k]};
    }
    g->n_stages += readers;
    return good && !pp_graph_connect(&f->arena, g, &f->err);
}

/* Returns the makespan of a kind, or -1. */
static double makespan(struct fixture *f, const char *kind, int m)
{
    struct pp_sim sim = {.makespan = 0};
    double got =
        plan_kind(f, kind, m, (double[]){1, 1, 1, 0}, &sim) ? sim.makespan : -1;
    pp_sim_finish(&sim);
    return got;
}

/* Rows of one stage beside chains of several stages on each row. */
static void test_beside(void)
{
    static const struct kind_case cases[] = {
        {"interleaved", 2, 2, 8, PP_PLACEMENT_LOOP},
        {"interleaved", 3, 3, 6, PP_PLACEMENT_LOOP},
        {"zb-interleaved", 3, 2, 6, PP_PLACEMENT_LOOP},
        {"zbv", 3, 2, 8, PP_PLACEMENT_V},
        {"v-half", 3, 2, 8, PP_PLACEMENT_V},
        {"v-min", 4, 2, 8, PP_PLACEMENT_V},
        {"hanayo", 2, 4, 6, PP_PLACEMENT_V},
        {"dualpipev", 3, 2, 8, PP_PLACEMENT_V}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int readers = 0; readers <= 2; readers++) {
            const struct kind_case *k = &cases[i];
            struct fixture alone, f;
            chain(&alone, k->p, k->c, k->placement);
            chain(&f, k->p, k->c, k->placement);
            double without = makespan(&alone, k->kind, k->m), all = -1;
            if (put_beside(&f, readers))
                all = makespan(&f, k->kind, k->m);
            f.s.channel_depth = 0;
            ok(all > 0 && !pp_check(&f.s, &f.err) &&
                   pp_schedule_is_canonical(&f.s),
               "%s with three rows before its chain and %d behind it, with "
               "rendezvous too",
               k->kind, readers);
            /* The first microbatch goes there, the last one back. */
            ok(all <= without + 2 * 3 + readers * k->m * 3,
               "  it takes %g; %g without them", all, without);
            drop(&alone);
            drop(&f);
        }
}

/* One microbatch on as many ranks as the tools take: the time of a kind grows
 * with its actions, not with the square of the ranks. */
static void test_many_ranks(void)
{
    static const struct kind_case cases[] = {
        {"gpipe", 1 << 19, 1, 1, PP_PLACEMENT_LOOP},
        {"1f1b", 1 << 19, 1, 1, PP_PLACEMENT_LOOP},
        {"eager-1f1b", 1 << 19, 1, 1, PP_PLACEMENT_LOOP},
        {"interleaved", 1 << 18, 2, 1, PP_PLACEMENT_LOOP},
        {"looped-bfs", 1 << 18, 2, 1, PP_PLACEMENT_LOOP},
        {"hanayo", 1 << 18, 2, 1, PP_PLACEMENT_V},
        {"zb-h1", 1 << 19, 1, 1, PP_PLACEMENT_LOOP},
        {"zb-h2", 1 << 19, 1, 1, PP_PLACEMENT_LOOP},
        {"zb-interleaved", 1 << 18, 2, 1, PP_PLACEMENT_LOOP},
        {"zbv", 1 << 18, 2, 1, PP_PLACEMENT_V},
        {"seq1f1b", 1 << 19, 1, 1, PP_PLACEMENT_LOOP}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct kind_case *k = &cases[i];
        struct fixture f;
        chain(&f, k->p, k->c, k->placement);
        clock_t start = clock();
        bool emitted = !emit(&f, k->kind, k->m, 0);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        ok(emitted && seconds < 8, "%s takes little time on %d ranks", k->kind,
           k->p);
        drop(&f);
    }
    ok(refused(1025, 2, 1, "v-half", 0, PP_PLACEMENT_V, "at most 1024 ranks") &&
           refused(1025, 2, 1, "v-min", 0, PP_PLACEMENT_V, "use zbv"),
       "v-half and v-min name their limit");
}

int main(void)
{
    test_programs();
    test_warmup();
    test_figures();
    test_admissible();
    test_sweep();
    test_dag();
    test_beside();
    test_many_ranks();
    return done();
}
