/* SPDX-License-Identifier: MIT */
/* Building blocks in a V, with real times, give orders that run, keep to the
 * limit, and have no bubble between microbatches. */
#include "sched_fixture.h"

#include "schedule/search/search_problem.h"
#include "schedule/search/search_methods.h"

struct outcome {
    double makespan;         /* the least of all settings */
    int offered, fit, sound; /* orders written; within the limit; that run */
};

/* Tries every setting on p ranks; the limit is in slots, 0 for none. */
static struct outcome try_all(int p, int m, const double t[4], double limit)
{
    struct fixture f;
    struct pp_search_problem j = {0};
    struct pp_paths e = {0};
    struct outcome o = {.makespan = INFINITY};
    double limits[8];
    struct pp_load load[16];
    struct pp_memory_limit room = {limits, load};
    chain(&f, p, 2, PP_PLACEMENT_V);
    struct pp_literal_costs literal = {&f.graph, t[0], t[1], t[2], t[3], true};
    struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
    for (int s = 0; s < 2 * p; s++) {
        limits[s / 2] = limit;
        load[s] = (struct pp_load){.f_to_w = 1};
    }
    int32_t *order = calloc((size_t)(6 * p * m), sizeof *order);
    if (order && !pp_schedule_init(&f.s, &f.graph, "blocks", m, &f.err) &&
        !pp_search_problem_init(&j, &f.s, true, &costs,
                                limit > 0 ? &room : NULL, &f.err) &&
        !pp_paths_init(&e, &j.ops, &f.err))
        for (int i = 0; i < PP_VBLOCK_SETTINGS; i++) {
            struct pp_vblock_knobs knobs = pp_vblock_setting(i);
            if (pp_vblocks_run(&j, &knobs, order, &f.err))
                continue;
            o.offered++;
            o.fit += pp_row_order_fits(&j, order);
            if (!pp_paths_heads(&e, order))
                continue;
            o.sound++;
            o.makespan = fmin(o.makespan, pp_row_order_makespan(&e, order));
        }
    free(order);
    pp_paths_finish(&e);
    pp_search_problem_finish(&j);
    pp_schedule_finish(&f.s);
    drop(&f);
    return o;
}

static const double times[][4] = {
    {1, 1, 1, 0}, {10, 10, 8, 0}, {5, 5, 4, 1}, {4, 6, 3, 0}, {2, 3, 1, 0.5}};

static void test_period(int p, const double t[4])
{
    struct outcome once = try_all(p, 4 * p, t, 0);
    struct outcome twice = try_all(p, 8 * p, t, 0);
    ok(once.sound == PP_VBLOCK_SETTINGS, "p=%d: each setting can run", p);
    double more = twice.makespan - once.makespan;
    double work = 4 * p * 2 * (t[0] + t[1] + t[2]);
    ok(more < (1 + 1e-9) * work,
       "p=%d %g,%g,%g,%g: more microbatches add no bubble (%g, %g)", p, t[0],
       t[1], t[2], t[3], more, work);
}

static void test_limit(int p, const double t[4])
{
    for (int slots = p; slots <= 2 * p; slots++) {
        struct outcome o = try_all(p, 3 * p, t, slots);
        ok(o.fit == o.offered, "p=%d, %d slots: all that is offered fits", p,
           slots);
    }
    ok(try_all(p, 3 * p, t, p + 2).sound > 0, "p=%d: %d slots will do", p,
       p + 2);
}

static void test_refusals(void)
{
    is_int(try_all(4, 8, times[0], 1).offered, 0,
           "memory for less than one microbatch is refused");
    struct fixture f;
    struct pp_search_problem j = {0};
    int32_t order[8 * 3 * 6];
    struct pp_vblock_knobs knobs = pp_vblock_setting(0);
    int rc = 0;
    chain(&f, 4, 2, PP_PLACEMENT_LOOP);
    struct pp_literal_costs literal = {&f.graph, 1, 1, 1, 0, true};
    struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
    if (!pp_schedule_init(&f.s, &f.graph, "blocks", 6, &f.err) &&
        !pp_search_problem_init(&j, &f.s, true, &costs, NULL, &f.err))
        rc = pp_vblocks_run(&j, &knobs, order, &f.err);
    is_int(rc, 1, "stages in a loop are refused");
    pp_search_problem_finish(&j);
    pp_schedule_finish(&f.s);
    drop(&f);
}

int main(void)
{
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        test_period(2, times[i]);
        test_period(4, times[i]);
        test_limit(4, times[i]);
    }
    /* v-half, which is planned for equal times, takes 249. */
    ok(try_all(4, 16, times[4], 6).makespan < 246,
       "a block of real times for six slots of eight");
    /* If slots overlapped it would be 105; without message times, 221. */
    ok(try_all(4, 16, times[0], 8).makespan < 104, "slots do not overlap");
    ok(try_all(4, 16, times[4], 8).makespan < 216, "messages take time");
    test_refusals();
    return done();
}
