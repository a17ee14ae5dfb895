/* SPDX-License-Identifier: MIT */
/* Tests UNSHARD and RESHARD: where lowering puts them and how few they are,
 * what the checker demands, which memory they take, and what they cost in the
 * simulation. */
#include "sched_fixture.h"

#include <string.h>

#include "schedule/memory/memory.h"

/* --- lowering --- */

enum { MOST_SETS = 1 << 6 }; /* sets of the stages of a row */

/* Returns the fewest gatherings of a row without pairs if at most k stages are
 * whole at once, by trying all sets of whole stages after every action. */
static int fewest(const struct pp_schedule *s, int row, int k)
{
    int place[MOST_SETS], n = 0, best = INT_MAX;
    int cost[MOST_SETS], next[MOST_SETS];
    for (int stage = 0; stage < s->graph->n_stages; stage++)
        place[stage] = s->graph->stages[stage].row == row ? n++ : 0;
    for (int set = 0; set < 1 << n; set++)
        cost[set] = set ? INT_MAX : 0;
    for (size_t i = 0; i < s->rows[row].n; i++) {
        struct pp_action a = s->rows[row].actions[i];
        if (!pp_is_compute(a.op))
            continue;
        int used = 1 << place[a.stage];
        for (int to = 0; to < 1 << n; to++) {
            next[to] = INT_MAX;
            for (int from = 0; from < 1 << n; from++) {
                int c = cost[from];
                if (c == INT_MAX || !(to & used) || to & ~(from | used) ||
                    __builtin_popcount((unsigned)to) > k)
                    continue;
                c += !(from & used);
                next[to] = c < next[to] ? c : next[to];
            }
        }
        memcpy(cost, next, sizeof cost);
    }
    for (int set = 0; set < 1 << n; set++)
        best = cost[set] < best ? cost[set] : best;
    return best;
}

/* Counts the gatherings of a row, and sets *whole to the most stages that are
 * whole at once. */
static int gatherings(const struct pp_row *row, int *whole)
{
    int n = 0, now = 0;
    *whole = 0;
    for (size_t i = 0; i < row->n; i++) {
        now += row->actions[i].op == PP_UNSHARD;
        now -= row->actions[i].op == PP_RESHARD;
        n += row->actions[i].op == PP_UNSHARD;
        *whole = now > *whole ? now : *whole;
    }
    return n;
}

static bool has_pairs(const struct pp_row *row)
{
    bool pairs = false;
    for (size_t i = 0; i < row->n; i++)
        pairs |= row->actions[i].overlap;
    return pairs;
}

/* Reports whether no row has more whole stages or gatherings than it must. */
static bool is_sparing(const struct pp_schedule *s, int k)
{
    for (int r = 0; r < s->graph->n_rows; r++) {
        bool pairs = has_pairs(&s->rows[r]);
        int whole, n = gatherings(&s->rows[r], &whole);
        if (whole > (pairs && k < 2 ? 2 : k) ||
            (!pairs && n != fewest(s, r, k))) {
            printf("# row %d: %d gatherings, %d whole\n", r, n, whole);
            return false;
        }
    }
    return true;
}

static void test_lowering(void)
{
    static const struct kind_case cases[] = {
        {"gpipe", 3, 1, 5, PP_PLACEMENT_LOOP},
        {"1f1b", 4, 1, 7, PP_PLACEMENT_LOOP},
        {"interleaved", 2, 3, 8, PP_PLACEMENT_LOOP},
        {"looped-bfs", 2, 4, 6, PP_PLACEMENT_LOOP},
        {"zb-interleaved", 2, 3, 6, PP_PLACEMENT_LOOP},
        {"zbv", 3, 2, 6, PP_PLACEMENT_V},
        {"hanayo", 2, 4, 4, PP_PLACEMENT_V},
        {"dualpipev", 3, 2, 7, PP_PLACEMENT_V},
        {"dualpipe", 4, 1, 8, PP_PLACEMENT_BOTH_WAYS},
    };
    const int limits[] = {1, 2, 3, INT_MAX};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            struct fixture f;
            chain(&f, cases[i].p, cases[i].c, cases[i].placement);
            f.graph.replicas = true;
            f.graph.resident = limits[k];
            bool made = !emit(&f, cases[i].kind, cases[i].m, 0) &&
                        !pp_lower(&f.s, &f.err) && !pp_check(&f.s, &f.err);
            ok(made && is_sparing(&f.s, limits[k]),
               "%s gathers as few weights as it can with %d whole: %s",
               cases[i].kind, limits[k], f.err.text);
            drop(&f);
        }
}

/* The weights of a stage go right after its last use. */
static void test_text(void)
{
    static const char *const text[] = {"0F0 1F0 1B0 0B0"};
    static const struct {
        int resident;
        const char *row;
    } cases[] = {
        {0, "0F0 1F0 1B0 0B0"},
        {1, "0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 1B0 1RESHARD 0UNSHARD 0B0 "
            "0RESHARD"},
        {2, "0UNSHARD 0F0 1UNSHARD 1F0 1B0 1RESHARD 0B0 0RESHARD"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        chain(&f, 1, 2, PP_PLACEMENT_LOOP);
        f.graph.resident = cases[i].resident;
        char *row = NULL;
        if (!rows(&f, 1, text) && !pp_lower(&f.s, &f.err))
            row = pp_schedule_format_row(&f.s, 0);
        is_str(row ? row : f.err.text, cases[i].row, "weights come and go");
        free(row);
        pp_schedule_drop_sharding(&f.s);
        row = pp_schedule_format_row(&f.s, 0);
        is_str(row, text[0], "  and without");
        free(row);
        drop(&f);
    }
}

/* --- the checker --- */

static void check(const char *what, const char *row, const char *says)
{
    struct fixture f;
    const char *const text[] = {row};
    chain(&f, 1, 2, PP_PLACEMENT_LOOP);
    f.graph.resident = 1;
    int rc = rows(&f, 1, text) ? -2 : pp_check(&f.s, &f.err);
    ok(says ? rc == -1 && f.err.code == PP_EXIT_NO && strstr(f.err.text, says)
            : rc == 0,
       "%s: %s", what, f.err.text);
    drop(&f);
}

static void test_checker(void)
{
    check("all whole", "0UNSHARD 1UNSHARD 0F0 1F0 1B0 0B0 0RESHARD 1RESHARD",
          NULL);
    check("never whole", "0F0 1F0 1B0 0B0",
          "rank 0, action 0: '0F0' comes before UNSHARD of its stage");
    check("one never whole", "0UNSHARD 0F0 1F0 1B0 0B0 0RESHARD",
          "rank 0, action 2: '1F0' comes before UNSHARD of its stage");
    check("used after RESHARD",
          "0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 1B0 1RESHARD 0B0",
          "rank 0, action 7: '0B0' comes after RESHARD of its stage");
}

/* --- memory --- */

static void test_memory(void)
{
    static const char *const text[] = {
        /* 0        1   2        3        4   5   6        7        8   9 */
        "0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 1B0 1RESHARD 0UNSHARD 0B0 "
        "0RESHARD"};
    static const size_t lives[][4] = {{0, 0, 0, 2}, {1, 0, 3, 6}, {0, 1, 7, 9}};
    struct pp_stage_bytes sizes[2] = {{.weights = 640}, {.weights = 6400}};
    struct fixture f;
    struct pp_memory m;
    chain(&f, 1, 2, PP_PLACEMENT_LOOP);
    f.graph.resident = 1;
    ok(!rows(&f, 1, text) && !pp_check(&f.s, &f.err) &&
           !pp_memory_plan(&f.s, 0, sizes, &m, &f.err),
       "a row is planned: %s", f.err.text);
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        int stage = (int)lives[i][0];
        const struct pp_buffer *b =
            pp_memory_find(&m, PP_BUF_WEIGHTS, stage, (int)lives[i][1], 0, -1);
        ok(b && b->first == lives[i][2] && b->last == lives[i][3] &&
               b->bytes == sizes[stage].weights,
           "weights of stage %d live from %zu to %zu", stage, lives[i][2],
           lives[i][3]);
        ok(pp_memory_weights(&m, &f.s.rows[0], lives[i][2], stage) == b &&
               pp_memory_weights(&m, &f.s.rows[0], lives[i][3], stage) == b,
           "  and are found at both ends");
    }
    ok(m.peak_by_kind[PP_BUF_WEIGHTS] == 6400 && m.arena_bytes == 6400,
       "only the larger are there at once");
    pp_memory_finish(&m);
    drop(&f);
}

/* --- the simulation --- */

/* Simulates two stages of one rank, whose F and B take 1 and 2 and whose
 * UNSHARD takes 3. */
static double simulate(const char *row, bool beside, int depth)
{
    const char *const text[] = {row};
    struct fixture f;
    struct pp_sim sim = {0};
    chain(&f, 1, 2, PP_PLACEMENT_LOOP);
    f.graph.resident = 2;
    const struct pp_literal_costs literal = {.graph = &f.graph,
                                             .f = 1,
                                             .i = 1,
                                             .w = 1,
                                             .textbook = true,
                                             .unshard = 3};
    const struct pp_costs costs = {.time = pp_literal_time,
                                   .ctx = &literal,
                                   .beside = beside ? 1u << PP_UNSHARD : 0};
    double makespan = -1;
    if (!rows(&f, 1, text) && !pp_check(&f.s, &f.err) &&
        !pp_simulate(&f.s, &costs, depth, &sim, &f.err))
        makespan = sim.makespan;
    else
        printf("# %s\n", f.err.text);
    pp_sim_finish(&sim);
    drop(&f);
    return makespan;
}

static void test_simulation(void)
{
    static const char early[] = "0UNSHARD 1UNSHARD 0F0 1F0 1B0 0B0 0RESHARD "
                                "1RESHARD";
    static const char late[] = "0UNSHARD 0F0 1UNSHARD 1F0 1B0 0B0 0RESHARD "
                               "1RESHARD";
    static const int depths[] = {0, 1, INT_MAX};
    for (size_t i = 0; i < 3; i++) {
        /* 3 + 3 for weights, 1 + 1 + 2 + 2 for actions */
        ok(simulate(early, false, depths[i]) == 12 &&
               simulate(late, false, depths[i]) == 12,
           "gathering keeps a rank from computing");
        /* Weights 0-3 and 3-6; F 3-4; F 6-7, B 7-9, B 9-11. */
        ok(simulate(early, true, depths[i]) == 11,
           "  or runs beside the actions of other stages");
        /* Weights 0-3; F 3-4; weights 4-7; F 7-8, B 8-10, B 10-12. */
        ok(simulate(late, true, depths[i]) == 12,
           "  from its place in the row on");
    }
}

int main(void)
{
    test_lowering();
    test_text();
    test_checker();
    test_memory();
    test_simulation();
    return done();
}
