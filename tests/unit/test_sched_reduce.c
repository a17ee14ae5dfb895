/* SPDX-License-Identifier: MIT */
/* Tests REDUCE_GRAD: where lowering puts it, what the checker demands of it,
 * and what it costs in the simulation. */
#include "sched_fixture.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

/* --- lowering --- */

/* Returns the place of the last weight gradient of the stage, or of its
 * reduction; SIZE_MAX if there is none. */
static size_t last_place(const struct pp_row *row, int stage, bool reduction)
{
    size_t at = SIZE_MAX;
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        bool gradient = a.op == PP_B || a.op == PP_W;
        if (a.stage == stage && (reduction ? a.op == PP_REDUCE_GRAD : gradient))
            at = i;
    }
    return at;
}

/* Reports whether each stage has one reduction, with messages alone between its
 * last weight gradient and it. */
static bool reduces_in_time(const struct pp_schedule *s)
{
    size_t n = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            n += s->rows[r].actions[i].op == PP_REDUCE_GRAD;
    if (n != (size_t)s->graph->n_stages)
        return false;
    for (int stage = 0; stage < s->graph->n_stages; stage++) {
        const struct pp_row *row = &s->rows[s->graph->stages[stage].row];
        size_t from = last_place(row, stage, false);
        size_t to = last_place(row, stage, true);
        if (from == SIZE_MAX || to == SIZE_MAX || to < from)
            return false;
        for (size_t i = from + 1; i < to; i++) {
            enum pp_op op = row->actions[i].op;
            if (!pp_is_send(op) && !pp_is_recv(op) && op != PP_REDUCE_GRAD)
                return false;
        }
    }
    return true;
}

static double unit_time(const void *ctx, struct pp_action a)
{
    (void)ctx;
    return pp_is_compute(a.op);
}

/* Reports whether both have the same rows but for reductions. */
static bool same_without(const struct pp_schedule *a,
                         const struct pp_schedule *b)
{
    bool same = true;
    for (int r = 0; r < a->graph->n_rows; r++) {
        size_t i = 0;
        for (size_t k = 0; k < a->rows[r].n; k++) {
            struct pp_action x = a->rows[r].actions[k];
            if (x.op == PP_REDUCE_GRAD)
                continue;
            same &= i < b->rows[r].n &&
                    !memcmp(&x, &b->rows[r].actions[i], sizeof x);
            i++;
        }
        same &= i == b->rows[r].n;
    }
    return same;
}

static void test_lowering(void)
{
    static const struct kind_case cases[] = {
        {"gpipe", 3, 1, 5, PP_PLACEMENT_LOOP},
        {"1f1b", 4, 1, 7, PP_PLACEMENT_LOOP},
        {"interleaved", 2, 3, 4, PP_PLACEMENT_LOOP},
        {"zb-h1", 4, 1, 6, PP_PLACEMENT_LOOP},
        {"zbv", 3, 2, 6, PP_PLACEMENT_V},
        {"dualpipev", 3, 2, 7, PP_PLACEMENT_V},
        {"dualpipe", 4, 1, 8, PP_PLACEMENT_BOTH_WAYS},
        {"seq1f1b", 2, 1, 3, PP_PLACEMENT_LOOP},
    };
    const struct pp_costs unit = {.time = unit_time};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f, plain;
        chain(&f, cases[i].p, cases[i].c, cases[i].placement);
        chain(&plain, cases[i].p, cases[i].c, cases[i].placement);
        f.graph.replicas = true;
        if (!strcmp(cases[i].kind, "seq1f1b"))
            f.graph.slices.n = plain.graph.slices.n = 2;
        bool made = !emit(&f, cases[i].kind, cases[i].m, 0) &&
                    !pp_lower(&f.s, &f.err) &&
                    !emit(&plain, cases[i].kind, cases[i].m, 0) &&
                    !pp_lower(&plain.s, &plain.err);
        ok(made && reduces_in_time(&f.s) && !pp_check(&f.s, &f.err),
           "%s reduces every stage in time", cases[i].kind);
        ok(same_without(&f.s, &plain.s) &&
               pp_schedule_is_canonical(&f.s) ==
                   pp_schedule_is_canonical(&plain.s),
           "  and is the same otherwise");
        ok(!pp_lower_again(&f.s, &unit, &f.err) && reduces_in_time(&f.s) &&
               !pp_check(&f.s, &f.err),
           "  also lowered again");
        drop(&f);
        drop(&plain);
    }
}

/* --- the checker --- */

#define ROW0 "0F0 0SEND_F0 0RECV_B0 0B0"
#define ROW1 "1RECV_F0 1F0 1B0 1SEND_B0"

/* Checks two tied stages of replicas. NULL says means valid. */
static void check(const char *what, const char *row0, const char *row1,
                  const char *says)
{
    struct fixture f;
    const char *const text[] = {row0, row1};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    f.graph.replicas = true;
    f.graph.tied[0] = 0;
    f.graph.tied[1] = 1;
    int rc = rows(&f, 1, text) ? -2 : pp_check(&f.s, &f.err);
    bool as_said =
        says ? rc == -1 && f.err.code == PP_EXIT_NO && strstr(f.err.text, says)
             : rc == 0;
    ok(as_said, "%s: %s", what, says ? says : "valid");
    if (!as_said)
        printf("# %d '%s'\n", rc, f.err.text);
    drop(&f);
}

static void test_checker(void)
{
    check("all reductions", ROW0 " 0REDUCE_GRAD SYNC_TIED",
          ROW1 " 1REDUCE_GRAD SYNC_TIED", NULL);
    check("none, as in an old plan", ROW0 " SYNC_TIED", ROW1 " SYNC_TIED",
          NULL);
    check("one missing", ROW0 " 0REDUCE_GRAD SYNC_TIED", ROW1 " SYNC_TIED",
          "rank 1: '1REDUCE_GRAD' is missing");
    check("after SYNC_TIED", ROW0 " SYNC_TIED 0REDUCE_GRAD",
          ROW1 " 1REDUCE_GRAD SYNC_TIED",
          "rank 0, action 5: '0REDUCE_GRAD' comes after SYNC_TIED");
    check("twice", ROW0 " 0REDUCE_GRAD 0REDUCE_GRAD SYNC_TIED",
          ROW1 " 1REDUCE_GRAD SYNC_TIED",
          "rank 0, action 5: '0REDUCE_GRAD' appears a second time");
    check("before the backward",
          "0F0 0SEND_F0 0RECV_B0 0REDUCE_GRAD 0B0 SYNC_TIED",
          ROW1 " 1REDUCE_GRAD SYNC_TIED",
          "rank 0, action 3: '0REDUCE_GRAD' comes before the last backward");
    check("before W", ROW0 " 0REDUCE_GRAD SYNC_TIED",
          "1RECV_F0 1F0 1I0 1SEND_B0 1REDUCE_GRAD 1W0 SYNC_TIED",
          "rank 1, action 4: '1REDUCE_GRAD' comes before the last backward");
}

static void test_copies(void)
{
    struct fixture f;
    const struct pp_action late = {
        .stage = 0, .microbatch = -1, .peer = -1, .op = PP_REDUCE_GRAD};
    chain(&f, 2, 1, PP_PLACEMENT_BOTH_WAYS);
    int rc = emit(&f, "dualpipe", 4, 0) || pp_lower(&f.s, &f.err);
    if (!rc)
        pp_schedule_add(&f.s, 0, late);
    f.graph.replicas = true;
    ok(!rc && pp_check(&f.s, &f.err) &&
           strstr(f.err.text, "'SYNC_COPIES' comes before 0REDUCE_GRAD"),
       "after SYNC_COPIES: %s", f.err.text);
    drop(&f);
}

/* --- the simulation --- */

/* Simulates two stages of one rank, whose F and B take 1 and 2 and whose
 * reductions take 4, with gradients that B makes as said. Returns the makespan,
 * and where the last action starts. */
static double simulate(bool beside, const struct pp_made *made, int depth,
                       double *last)
{
    static const char *const text[] = {
        "0F0 1F0 1B0 1REDUCE_GRAD 0B0 0REDUCE_GRAD SYNC_TIED"};
    struct fixture f;
    struct pp_sim sim = {0};
    chain(&f, 1, 2, PP_PLACEMENT_LOOP);
    f.graph.tied[0] = 0;
    f.graph.tied[1] = 1;
    const struct pp_literal_costs literal = {.graph = &f.graph,
                                             .f = 1,
                                             .i = 1,
                                             .w = 1,
                                             .textbook = true,
                                             .reduce = 4};
    const struct pp_costs costs = {.time = pp_literal_time,
                                   .ctx = &literal,
                                   .beside = beside ? 1u << PP_REDUCE_GRAD : 0,
                                   .made = made};
    double makespan = -1;
    if (!rows(&f, 1, text) && !pp_check(&f.s, &f.err) &&
        !pp_simulate(&f.s, &costs, depth, &sim, &f.err)) {
        makespan = sim.makespan;
        *last = sim.rows[0].spans[sim.rows[0].n - 1].start;
    }
    pp_sim_finish(&sim);
    drop(&f);
    return makespan;
}

static void test_simulation(void)
{
    static const int depths[] = {0, 1, INT_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct pp_made_left half[] = {{.5, 1}, {0, .5}};
        const struct pp_made two[] = {{half, 2}, {half, 2}}, none[2] = {{0}};
        double last;
        /* F 0-1, F 1-2, B 2-4, reduction 4-8, B 8-10, reduction 10-14 */
        double time = simulate(false, two, depths[i], &last);
        ok(time == 14 && last == 14, "a blocking reduction keeps its rank");
        /* Reductions 4-8 and 8-12 beside B 4-6; SYNC_TIED waits. */
        time = simulate(true, none, depths[i], &last);
        ok(time == 12 && last == 12, "  and one beside it only SYNC_TIED");
        /* B makes units at 3 and 4, 5 and 6; each takes 2 from 3 on. */
        time = simulate(true, two, depths[i], &last);
        ok(time == 11 && last == 11, "  or it begins inside B, with its units");
    }
}

/* Compares the end of a reduction with one of each gradient in turn, for random
 * gradients. */
static void test_made(void)
{
    enum { RUNS = 500, MOST = 6 };
    int wrong = 0, inside = 0;
    for (uint64_t run = 0; run < RUNS; run++) {
        int n = 1 + (int)(pp_rng_bits(run, 0) % MOST);
        struct pp_made_left left[MOST] = {{0}}, whole[] = {{0, 1}};
        double back[MOST], sum[MOST], all_back = 0, all_sum = 0, last;
        for (int i = 0; i < n; i++) {
            uint64_t bits = pp_rng_bits(run, 1 + (uint64_t)i);
            all_back += back[i] = (double)(bits % 8);
            all_sum += sum[i] = 1 + (double)(bits / 8 % 8);
        }
        if (!(all_back > 0))
            continue;
        /* F 0-1, F 1-2, then B 2-4, whose reduction takes 4. */
        double at = 2, end = 0;
        for (int i = 0; i < n; i++) {
            at += 2 * back[i] / all_back;
            end = fmax(end, at) + 4 * sum[i] / all_sum;
            for (int k = 0; k <= i; k++) {
                left[k].backward += k < i ? back[i] / all_back : 0;
                left[i].reduction += k < i ? -sum[k] / all_sum : 1;
            }
        }
        /* The reduction of the other stage begins at 6 or later. */
        const struct pp_made made[] = {{whole, 1}, {left, n}};
        double time = simulate(true, made, 1, &last);
        wrong += fabs(time - (fmax(end, 6) + 4)) > 1e-9;
        inside += end < 8;
    }
    ok(wrong == 0 && inside > RUNS / 2,
       "a reduction ends as if gradients were summed as they are made (%d)",
       inside);
}

int main(void)
{
    test_lowering();
    test_checker();
    test_copies();
    test_simulation();
    test_made();
    return done();
}
