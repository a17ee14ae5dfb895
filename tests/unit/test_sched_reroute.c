/* SPDX-License-Identifier: MIT */
/* Tests meshes that have lost ranks: the routes, orders of the work that is
 * left, the bound against all orders of small cases, and plans that are wrong.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "schedule/bound/bound.h"
#include "schedule/reroute/reroute.h"
#include "schedule/search/search.h"
#include "sched_fixture.h"

enum { MOST_RANKS = 16 };

/* Routes a chain of p ranks with c stages each. lost: places row dp + lane. */
static int route(struct fixture *f, int p, int c, int dp, int m,
                 const bool *lost, struct pp_reroute *r)
{
    chain(f, p, c, PP_PLACEMENT_LOOP);
    return pp_reroute(&f->arena, &f->graph, dp, m, lost, r, &f->err);
}

static void test_routes(void)
{
    struct fixture f;
    struct pp_reroute r;
    bool lost[8] = {[5] = true}, as_said = true;
    static const int rows[] = {0, 0, 0, 0, 1, 1, 1},
                     lanes[] = {0, 1, 2, 3, 0, 2, 3};
    ok(!route(&f, 2, 1, 4, 6, lost, &r), "rank 5 of 2 x 4 is lost");
    is_int(r.graph.n_rows, 7, "7 ranks are left");
    is_int(r.graph.n_copies, 6, "3 whole lanes, 3 ways around the rank");
    is_int(r.n_microbatches, 24, "all lanes' microbatches");
    for (int i = 0; i < 7; i++)
        as_said &= r.row[i] == rows[i] && r.lane[i] == lanes[i];
    ok(as_said, "ranks keep their order");
    as_said = true;
    for (int m = 0, turn = 0; m < 24; m++) {
        int first = r.graph.stages[2 * r.copy[m]].row;
        int second = r.graph.stages[2 * r.copy[m] + 1].row;
        bool own = lanes[second] == m % 4;
        as_said &= lanes[first] == m % 4;
        as_said &= m % 4 == 1 ? second == 4 + turn++ % 3 : own;
    }
    ok(as_said, "its peers take its microbatches in turn");
    drop(&f);
    lost[1] = lost[4] = lost[6] = lost[7] = true;
    ok(route(&f, 2, 1, 4, 6, lost, &r) && f.err.code == PP_EXIT_NO &&
           strstr(f.err.text, "row 1 has lost all 4"),
       "a row without ranks is refused");
    drop(&f);
}

/* --- all orders of small cases --- */

/* A schedule that is being made, op by op in order of their starts. */
struct brute {
    const struct pp_graph *g;
    int n, halves, slots; /* microbatches; ops of a backward; most alive */
    const double *time;   /* F, I or B, W, message */
    const int *copy;
    double end[3][4][MOST_RANKS]; /* by op, stage of a copy, microbatch; -1 */
    double free[MOST_RANKS];
    int alive[MOST_RANKS];
    double work[MOST_RANKS]; /* left */
    double below;            /* look for a makespan less than this */
};

static int at_stage(const struct brute *b, int m, int s)
{
    return b->copy[m] * (b->g->n_stages / b->g->n_copies) + s;
}

/* Returns when an op can start, or infinity if it waits for one that has not
 * been placed. */
static double ready(const struct brute *b, int op, int s, int m)
{
    int n = b->g->n_stages / b->g->n_copies;
    int from = op == 0 ? s - 1 : op == 1 ? s + 1 : s;
    int row = b->g->stages[at_stage(b, m, s)].row;
    double t = b->free[row];
    if ((op > 0 && b->end[op - 1][s][m] < 0) ||
        (op == 0 && b->alive[row] == b->slots))
        return INFINITY;
    if (op > 0)
        t = fmax(t, b->end[op - 1][s][m]);
    if (op == 2 || from < 0 || from == n)
        return t;
    if (b->end[op][from][m] < 0)
        return INFINITY;
    bool far = b->g->stages[at_stage(b, m, from)].row != row;
    return fmax(t, b->end[op][from][m] + (far ? b->time[3] : 0));
}

/* Reports if the rest can still end in time, as far as each rank's work says.
 */
static bool hopeful(const struct brute *b)
{
    for (int r = 0; r < b->g->n_rows; r++)
        if (b->free[r] + b->work[r] >= b->below)
            return false;
    return true;
}

/* Reports if some order of what is left ends in time. Microbatches of one copy
 * are alike: their forwards of the first stage start in order. */
static bool find_shorter(struct brute *b, int left, double last)
{
    int n = b->g->n_stages / b->g->n_copies;
    if (left == 0)
        return true;
    for (int op = 0; op <= b->halves; op++)
        for (int s = 0; s < n; s++)
            for (int m = 0; m < b->n; m++) {
                int row = b->g->stages[at_stage(b, m, s)].row;
                double was = b->free[row], t;
                bool early = false;
                if (b->end[op][s][m] >= 0)
                    continue;
                for (int k = 0; op == 0 && s == 0 && k < m; k++)
                    early |= b->copy[k] == b->copy[m] && b->end[0][0][k] < 0;
                t = early ? INFINITY : ready(b, op, s, m);
                if (isinf(t) || t < last)
                    continue;
                b->end[op][s][m] = b->free[row] = t + b->time[op];
                b->alive[row] += (op == 0) - (op == b->halves);
                b->work[row] -= b->time[op];
                bool found = hopeful(b) && find_shorter(b, left - 1, t);
                b->work[row] += b->time[op];
                b->alive[row] -= (op == 0) - (op == b->halves);
                b->free[row] = was;
                b->end[op][s][m] = -1;
                if (found)
                    return true;
            }
    return false;
}

/* Reports if some choice of routes and some order ends before `below`. */
static bool any_shorter(const struct pp_graph *g, int n, bool split, int slots,
                        const double *time, double below)
{
    int copies = 1, copy[MOST_RANKS];
    int stages = g->n_stages / g->n_copies;
    for (int m = 0; m < n; m++)
        copies *= g->n_copies;
    for (int c = 0; c < copies; c++) {
        struct brute b = {.g = g,
                          .n = n,
                          .halves = split ? 2 : 1,
                          .slots = slots,
                          .time = time,
                          .copy = copy,
                          .below = below};
        bool sorted = true;
        for (int m = 0, k = c; m < n; m++, k /= g->n_copies) {
            copy[m] = k % g->n_copies;
            sorted &= m == 0 || copy[m - 1] <= copy[m];
        }
        for (int op = 0; op < 3; op++)
            for (int s = 0; s < stages; s++)
                for (int m = 0; m < n; m++) {
                    b.end[op][s][m] = -1;
                    if (op <= b.halves && sorted)
                        b.work[g->stages[at_stage(&b, m, s)].row] += time[op];
                }
        if (sorted && hopeful(&b) &&
            find_shorter(&b, n * stages * (b.halves + 1), 0))
            return true;
    }
    return false;
}

/* Searches an order of the routes. Returns its makespan, or 0 if it is not
 * valid. */
static double plan(struct fixture *f, const struct pp_reroute *r,
                   const struct pp_costs *costs, bool split,
                   const struct pp_memory_limit *room)
{
    const struct pp_search_options o = {.costs = costs,
                                        .room = room,
                                        .split = split,
                                        .copy = r->copy,
                                        .seed = 1,
                                        .seconds = 0.05};
    double makespan = 0;
    if (pp_search_lowered(&f->s, &r->graph, r->n_microbatches, -1, &o,
                          &f->err) ||
        pp_check(&f->s, &f->err) ||
        pp_run_time(&f->s, costs, f->s.channel_depth, false, &makespan,
                    &f->err)) {
        printf("# %s\n", f->err.text);
        return 0;
    }
    return makespan;
}

static void test_bound(void)
{
    static const struct {
        int p, dp, m, lost, slots; /* slots 0: as many as there are */
        bool split;
        double time[4]; /* F; I, or B; W; message */
    } cases[] = {
        {1, 2, 2, 0, 0, false, {1, 2, 0, 0}},
        {1, 3, 2, 1, 0, false, {1, 2, 0, 0}},
        {2, 2, 1, 0, 0, false, {1, 2, 0, 0}},
        {2, 2, 1, 2, 0, false, {1, 2, 0, 0.5}},
        {2, 2, 2, 0, 0, false, {1, 2, 0, 0}},
        {2, 2, 2, 3, 0, false, {1, 2, 0, 0}},
        {2, 2, 2, 0, 1, false, {1, 2, 0, 0}},
        {2, 2, 2, 0, 2, false, {2, 3, 0, 1}},
        {2, 2, 2, 3, 2, false, {1, 1, 0, 0}},
        {2, 3, 1, 1, 0, false, {1, 2, 0, 0.25}},
        {2, 2, 1, 0, 0, true, {1, 1, 1, 0}},
        {2, 2, 1, 3, 1, true, {1, 1, 1, 0.5}},
        {2, 2, 2, 0, 2, true, {1, 1, 1, 0}},
        {2, 2, 2, 3, 2, true, {1, 1, 1, 0}},
        {3, 2, 1, 2, 0, false, {1, 2, 0, 0}},
        {3, 2, 1, 0, 1, true, {1, 1, 1, 0}},
    };
    int tight = 0, n = sizeof cases / sizeof *cases;
    for (int i = 0; i < n; i++) {
        struct fixture f;
        struct pp_reroute r;
        struct pp_bound b = {0};
        bool lost[MOST_RANKS] = {false};
        double limit[MOST_RANKS];
        struct pp_load load[64];
        const double *t = cases[i].time;
        lost[cases[i].lost] = true;
        ok(!route(&f, cases[i].p, 1, cases[i].dp, cases[i].m, lost, &r),
           "%d x %d without rank %d, %d microbatches, %d slots", cases[i].p,
           cases[i].dp, cases[i].lost, cases[i].m, cases[i].slots);
        struct pp_literal_costs literal = {
            .graph = &r.graph, .f = t[0], .comm = t[3], .textbook = true};
        literal.i = cases[i].split ? t[1] : t[1] / 2;
        literal.w = cases[i].split ? t[2] : t[1] / 2;
        const struct pp_costs costs = {pp_literal_time, &literal};
        const struct pp_memory_limit room = {limit, load};
        for (int k = 0; k < r.graph.n_rows; k++)
            limit[k] = cases[i].slots;
        for (int k = 0; k < r.graph.n_stages; k++)
            load[k] = (struct pp_load){.f_to_w = 1};
        const struct pp_memory_limit *at = cases[i].slots ? &room : NULL;
        int rc = pp_bound(&r.graph, r.n_microbatches, cases[i].split, &costs,
                          at, &b, &f.err);
        double found = plan(&f, &r, &costs, cases[i].split, at);
        int slots = cases[i].slots ? cases[i].slots : r.n_microbatches;
        ok(!rc && found >= b.makespan * (1 - 1e-9),
           "  an order takes %g, the bound is %g by %s", found, b.makespan,
           b.rule);
        ok(!any_shorter(&r.graph, r.n_microbatches, cases[i].split, slots, t,
                        b.makespan * (1 - 1e-9)),
           "  no order of all takes less");
        tight += found <= b.makespan * (1 + 1e-9);
        drop(&f);
    }
    ok(tight >= n - 1, "%d of %d bounds are reached", tight, n);
}

/* --- random meshes --- */

static int roll(uint64_t key, uint64_t *at, int n)
{
    return (int)(pp_rng_bits(key, (*at)++) % (uint64_t)n);
}

static size_t find(const struct pp_row *row, enum pp_op op)
{
    size_t i = 0;
    while (i < row->n && row->actions[i].op != op)
        i++;
    return i;
}

/* Adds an action behind all work of a row. */
static void add_late(struct pp_schedule *s, int row, struct pp_action a)
{
    struct pp_row *list = &s->rows[row];
    struct pp_action sync = list->actions[--list->n];
    pp_schedule_add(s, row, a);
    pp_schedule_add(s, row, sync);
}

static void erase(struct pp_row *row, size_t at)
{
    row->n--;
    memmove(row->actions + at, row->actions + at + 1,
            (row->n - at) * sizeof *row->actions);
}

/* Checks that a row with a change is refused, with a text. */
static bool is_refused(const struct pp_schedule *s, const char *text)
{
    struct pp_err err = {0};
    if (pp_check(s, &err) && err.code == PP_EXIT_NO && strstr(err.text, text))
        return true;
    printf("# '%s' for '%s'\n", err.text, text);
    return false;
}

/* Spoils a valid schedule in four ways. */
static bool refuses_faults(const struct pp_schedule *s,
                           const struct pp_reroute *r)
{
    int last = s->graph->n_rows - 1, n = s->graph->n_stages / r->graph.n_copies;
    struct pp_schedule bad;
    char text[PP_ACTION_TEXT];
    bool all = true;
    pp_schedule_copy(s, &bad); /* two ranks do a microbatch */
    struct pp_row *row = &bad.rows[last];
    struct pp_action f = row->actions[find(row, PP_F)];
    for (int c = 0; c < r->graph.n_copies; c++) {
        struct pp_action other = f;
        other.stage = pp_original(s->graph, f.stage) + c * n;
        int to = s->graph->stages[other.stage].row;
        if (to == last)
            continue;
        add_late(&bad, to, other);
        all &= is_refused(&bad, "passes through another copy");
        break;
    }
    pp_schedule_finish(&bad);
    pp_schedule_copy(s, &bad); /* one rank does it twice */
    add_late(&bad, last, f);
    all &= is_refused(&bad, "appears a second time");
    pp_schedule_finish(&bad);
    pp_schedule_copy(s, &bad); /* a gradient is not computed */
    row = &bad.rows[last];
    size_t at = find(row, find(row, PP_W) < row->n ? PP_W : PP_B);
    pp_action_format(row->actions[at], false, text);
    erase(row, at);
    all &= is_refused(&bad, text);
    pp_schedule_finish(&bad);
    pp_schedule_copy(s, &bad); /* a rank's gradients are not added */
    erase(&bad.rows[0], find(&bad.rows[0], PP_SYNC_COPIES));
    all &= is_refused(&bad, "rank 0: 'SYNC_COPIES' is missing");
    pp_schedule_finish(&bad);
    return all;
}

/* A message goes to the lane's own rank, which is lost, or to none. */
static void test_dead_rank(void)
{
    struct fixture f;
    struct pp_reroute r;
    bool lost[4] = {[2] = true};
    route(&f, 2, 1, 2, 2, lost, &r);
    struct pp_literal_costs literal = {&r.graph, 1, 1, 1, 0, true};
    const struct pp_costs costs = {pp_literal_time, &literal};
    ok(plan(&f, &r, &costs, true, NULL) > 0, "2 x 2 without rank 2");
    struct pp_action *send =
        &f.s.rows[0].actions[find(&f.s.rows[0], PP_SEND_F)];
    send->peer = r.graph.n_stages;
    ok(is_refused(&f.s, "has a peer that does not exist"),
       "a message to a stage that no rank has is refused");
    send->peer = 3 - send->stage;
    ok(is_refused(&f.s, "has a peer that is not its neighbour"),
       "a message to a stage of another route is refused");
    drop(&f);
}

static void test_random(void)
{
    uint64_t key = pp_rng_key(1, "lost ranks"), at = 0;
    int valid = 0, bounded = 0, refused = 0, n = 0;
    while (n < 60) {
        struct fixture f;
        struct pp_reroute r;
        bool lost[MOST_RANKS] = {false};
        int p = 1 + roll(key, &at, 4), dp = 2 + roll(key, &at, 3);
        int c = 1 + roll(key, &at, 2), m = 1 + roll(key, &at, 5);
        for (int i = 1 + roll(key, &at, 3); i > 0; i--)
            lost[roll(key, &at, p * dp)] = true;
        if (route(&f, p, c, dp, m, lost, &r)) {
            drop(&f);
            continue;
        }
        struct pp_literal_costs literal = {
            &r.graph,          1 + roll(key, &at, 3),   1 + roll(key, &at, 3),
            roll(key, &at, 3), 0.5 * roll(key, &at, 3), true};
        const struct pp_costs costs = {pp_literal_time, &literal};
        struct pp_bound b = {0};
        bool split = roll(key, &at, 2);
        double found = plan(&f, &r, &costs, split, NULL);
        valid += found > 0;
        bounded += !pp_bound(&r.graph, r.n_microbatches, split, &costs, NULL,
                             &b, &f.err) &&
                   found >= b.makespan * (1 - 1e-9);
        refused += refuses_faults(&f.s, &r);
        drop(&f);
        n++;
    }
    is_int(valid, n, "random meshes without up to three ranks are planned");
    is_int(bounded, n, "  no order is below the bound");
    is_int(refused, n, "  faults are refused");
}

int main(void)
{
    test_routes();
    test_bound();
    test_dead_rank();
    test_random();
    return done();
}
