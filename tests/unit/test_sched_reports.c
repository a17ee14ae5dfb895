/* SPDX-License-Identifier: MIT */
/* Tests the figures of a simulated run: idle times, memory peaks, traffic of
 * channels, and the saving of overlap pairs. */
#include "sched_fixture.h"

#include <limits.h>

#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"

struct run {
    struct fixture f;
    struct pp_literal_costs literal;
    struct pp_costs costs;
    struct pp_sim sim;
};

static bool simulate(struct run *x, const char *kind, int p, int c, int m,
                     enum pp_placement placement, const double *cost,
                     double pair_saving)
{
    *x = (struct run){0};
    chain(&x->f, p, c, placement);
    x->literal = (struct pp_literal_costs){&x->f.graph, cost[0], cost[1],
                                           cost[2],     cost[3], true};
    x->costs = (struct pp_costs){pp_literal_time, &x->literal, pair_saving};
    if (!emit(&x->f, kind, m, 0) && !pp_lower(&x->f.s, &x->f.err) &&
        !pp_simulate(&x->f.s, &x->costs, INT_MAX, &x->sim, &x->f.err))
        return true;
    printf("# %s: %s\n", kind, x->f.err.text);
    return false;
}

static void finish(struct run *x)
{
    pp_sim_finish(&x->sim);
    drop(&x->f);
}

static const double unit[] = {1, 1, 1, 0};

/* Busy and idle times add up to the makespan on every rank of every kind. */
static void test_sum(void)
{
    static const struct {
        const char *kind;
        int c;
        enum pp_placement placement;
    } kinds[] = {
        {"gpipe", 1, PP_PLACEMENT_LOOP}, {"1f1b", 1, PP_PLACEMENT_LOOP},
        {"zb-h1", 1, PP_PLACEMENT_LOOP}, {"interleaved", 2, PP_PLACEMENT_LOOP},
        {"zbv", 2, PP_PLACEMENT_V},      {"dualpipev", 2, PP_PLACEMENT_V}};
    static const double cost[] = {3, 2.5, 1.25, 0.5};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct run x;
        bool same = simulate(&x, kinds[i].kind, 4, kinds[i].c, 8,
                             kinds[i].placement, cost, 0.25);
        for (int r = 0; same && r < 4; r++) {
            struct pp_idle d = pp_idle_of(&x.sim, r);
            double sum = x.sim.rows[r].busy + d.fill + d.wait_forward +
                         d.wait_backward + d.drain;
            same &= fabs(sum - x.sim.makespan) < 1e-9 && d.fill >= 0 &&
                    d.wait_forward >= 0 && d.wait_backward >= 0 && d.drain >= 0;
        }
        ok(same, "%s: busy and idle times add up to the makespan",
           kinds[i].kind);
        finish(&x);
    }
}

static void is_idle(const struct pp_sim *sim, int rank, struct pp_idle want)
{
    struct pp_idle got = pp_idle_of(sim, rank);
    if (!ok(got.fill == want.fill && got.wait_forward == want.wait_forward &&
                got.wait_backward == want.wait_backward &&
                got.drain == want.drain,
            "rank %d: the four idle times", rank))
        printf("# got %g %g %g %g\n", got.fill, got.wait_forward,
               got.wait_backward, got.drain);
}

/* Worked out by hand: GPipe on three ranks, two microbatches, whole backwards
 * of two. */
static void test_by_hand(void)
{
    struct run x;
    if (simulate(&x, "gpipe", 3, 1, 2, PP_PLACEMENT_LOOP, unit, 0)) {
        is_idle(&x.sim, 0, (struct pp_idle){0, 0, 6, 0});
        is_idle(&x.sim, 1, (struct pp_idle){1, 0, 3, 2});
        is_idle(&x.sim, 2, (struct pp_idle){2, 0, 0, 4});
    }
    finish(&x);
    /* 1F1B: rank 0 waits for gradients, rank 1 for its third activation. */
    static const double slow[] = {1, 1, 1, 2};
    if (simulate(&x, "1f1b", 2, 1, 3, PP_PLACEMENT_LOOP, slow, 0)) {
        struct pp_idle last = pp_idle_of(&x.sim, 1);
        is_near(last.fill, 3, 0, "the first activation takes 1 + 2");
        ok(last.wait_forward > 0 && last.wait_backward == 0,
           "the last rank waits for activations only");
    }
    finish(&x);
}

/* The rank that idles most follows DeepSeek's formula, (p - 1)(FB + B - 3W). */
static void test_pairs(void)
{
    static const double savings[] = {0, 0.1, 0.25};
    for (int i = 0; i < 3; i++)
        for (int p = 2; p <= 8; p += 3) {
            struct run x;
            double idle = 0, pair = 3 * (1 - savings[i]);
            if (simulate(&x, "dualpipev", p, 2, 2 * p + 4, PP_PLACEMENT_V, unit,
                         savings[i]))
                for (int r = 0; r < p; r++)
                    idle = fmax(idle, x.sim.makespan - x.sim.rows[r].busy);
            is_near(idle, (p - 1) * (pair + 2 - 3), 1e-9,
                    "dualpipev idles as in its paper");
            finish(&x);
        }
}

static void test_peak(void)
{
    struct fixture f;
    static const char *const text[] = {"0F0 0F1 0B0 0F2 0F3 0F4 0B1 0B2 0B3 "
                                       "0B4"};
    size_t place;
    chain(&f, 1, 1, PP_PLACEMENT_LOOP);
    if (rows(&f, 5, text))
        printf("# %s\n", f.err.text);
    is_int(pp_row_peak(&f.s, 0, &place), 4, "four slots are open");
    is_int((int)place, 5, "  from 0F4 on");
    struct pp_stage_bytes sizes = {.act_i = 100, .act_w = 50};
    struct pp_memory m;
    if (pp_memory_plan(&f.s, 0, &sizes, &m, &f.err))
        printf("# %s\n", f.err.text);
    is_int((int)m.peak_bytes, 600, "the peak in bytes");
    is_int((int)m.peak_place, 5, "  is at the same action");
    pp_memory_finish(&m);
    drop(&f);
}

static void test_traffic(void)
{
    struct run x;
    static const double cost[] = {1, 1, 1, 0.5};
    struct pp_channel_traffic *at = NULL;
    size_t n = 0, sum = 0;
    if (simulate(&x, "zbv", 4, 2, 8, PP_PLACEMENT_V, cost, 0))
        pp_traffic(&x.f.s, &x.costs, &at, &n);
    is_int((int)n, 12, "three boundaries, down and up, forward and backward");
    for (size_t i = 0; i < n; i++) {
        bool down = at[i].to == at[i].from + 1, up = at[i].to + 1 == at[i].from;
        ok((down || up) && at[i].messages == 8 && at[i].time == 4,
           "%d to %d, %s: 8 messages", at[i].from, at[i].to,
           at[i].backward ? "backward" : "forward");
        sum += at[i].messages;
    }
    is_int((int)sum, (int)pp_schedule_count(&x.f.s, PP_SEND_OPS),
           "the messages add up to the schedule's");
    free(at);
    finish(&x);
}

int main(void)
{
    test_sum();
    test_by_hand();
    test_pairs();
    test_peak();
    test_traffic();
    return done();
}
