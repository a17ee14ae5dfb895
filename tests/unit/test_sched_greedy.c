/* SPDX-License-Identifier: MIT */
/* The greedy zero-bubble order gives the bubbles of its paper. */
#include "sched_fixture.h"

#include "schedule/search/search_problem.h"
#include "schedule/search/search_methods.h"

/* A row of table 5 of "Zero Bubble Pipeline Parallelism": a model, its measured
 * times, and the bubble that the authors' scheduler reached in the memory of p
 * and of 2p microbatches. */
struct row {
    int p, m, hidden, heads;
    double f, i, w, comm, bubble[2];
};

static const struct row table[] = {
    {8, 24, 2304, 24, 18.522, 18.086, 9.337, 0.601, {.1585, .0433}},
    {8, 32, 2304, 24, 18.513, 18.086, 9.331, 0.626, {.1242, .0039}},
    {8, 64, 2304, 24, 18.546, 18.097, 9.321, 0.762, {.0674, .0026}},
    {8, 24, 4096, 32, 29.718, 29.444, 19.927, 0.527, {.1323, .0029}},
    {8, 32, 4096, 32, 29.802, 29.428, 19.530, 0.577, {.1045, .0022}},
    {8, 64, 4096, 32, 29.935, 29.621, 19.388, 0.535, {.0554, .0010}},
    {16, 48, 5120, 40, 11.347, 11.248, 8.132, 0.377, {.1397, .0066}},
    {16, 64, 5120, 40, 11.307, 11.254, 8.101, 0.379, {.1088, .0054}},
    {16, 128, 5120, 40, 11.325, 11.308, 8.109, 0.378, {.0576, .0028}},
    {32, 96, 6144, 48, 10.419, 10.207, 7.715, 0.408, {.1421, .0038}},
    {32, 128, 6144, 48, 10.408, 10.204, 7.703, 0.408, {.1106, .0029}},
    {32, 256, 6144, 48, 10.402, 10.248, 7.698, 0.460, {.0594, .0018}},
};

/* Returns the least span of any setting of the knobs within the limit. */
static double least_span(const struct pp_search_problem *j, struct pp_err *err)
{
    int32_t *order = calloc((size_t)j->ops.n, sizeof *order);
    struct pp_paths e = {0};
    double least = INFINITY;
    if (order && !pp_paths_init(&e, &j->ops, err))
        for (int i = 0; i < PP_GREEDY_SETTINGS; i++)
            if (!pp_greedy_run(j, pp_greedy_setting(i), order, err) &&
                pp_row_order_fits(j, order) && pp_paths_heads(&e, order))
                least = fmin(least, pp_row_order_span(&e, order));
    pp_paths_finish(&e);
    free(order);
    return least;
}

static void test_row(const struct row *row)
{
    struct fixture f;
    double limit[32];
    struct pp_load load[32];
    struct pp_memory_limit room = {limit, load};
    /* Elements of a layer of 1024 positions that F keeps and that W frees. */
    double all = 34.0 * row->hidden + 5.0 * row->heads * 1024;
    double by_w = 32.0 * row->hidden;
    chain(&f, row->p, 1, PP_PLACEMENT_LOOP);
    struct pp_literal_costs literal = {&f.graph, row->f,    row->i,
                                       row->w,   row->comm, true};
    struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
    for (int times = 1; times <= 2; times++) {
        struct pp_search_problem j = {0};
        for (int s = 0; s < row->p; s++) {
            limit[s] = times * row->p * all;
            load[s] = (struct pp_load){all - by_w, by_w, 0};
        }
        double span = NAN;
        if (!pp_schedule_init(&f.s, &f.graph, "greedy", row->m, &f.err) &&
            !pp_search_problem_init(&j, &f.s, true, &costs, &room, &f.err))
            span = least_span(&j, &f.err);
        double work = row->m * (row->f + row->i + row->w);
        double bubble = 1 - work / span, want = row->bubble[times - 1];
        ok(fabs(bubble - want) < 0.00005 + 1e-9,
           "p=%d m=%d, room for %d p: %.4f is %.4f", row->p, row->m, times,
           bubble, want);
        pp_search_problem_finish(&j);
        pp_schedule_finish(&f.s);
    }
    drop(&f);
}

/* The method does not apply if a round does not fit, or if ranks hold two
 * stages. */
static void test_refusals(void)
{
    static const int chunks[] = {1, 2};
    for (int n = 0; n < 2; n++) {
        struct fixture f;
        double limit[4] = {1, 1, 1, 1};
        struct pp_load load[8];
        struct pp_memory_limit room = {limit, load};
        struct pp_search_problem j = {0};
        int32_t order[8 * 3 * 6];
        int rc = 0;
        chain(&f, 4, chunks[n], PP_PLACEMENT_LOOP);
        struct pp_literal_costs literal = {&f.graph, 1, 1, 1, 0, true};
        struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
        for (int s = 0; s < 8; s++)
            load[s] = (struct pp_load){.f_to_w = 1.5};
        if (!pp_schedule_init(&f.s, &f.graph, "greedy", 6, &f.err) &&
            !pp_search_problem_init(&j, &f.s, true, &costs, n ? NULL : &room,
                                    &f.err))
            rc = pp_greedy_run(&j, pp_greedy_setting(0), order, &f.err);
        is_int(rc, 1,
               n ? "two stages on a rank are refused"
                 : "memory for less than one is refused");
        pp_search_problem_finish(&j);
        pp_schedule_finish(&f.s);
        drop(&f);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        test_row(&table[i]);
    test_refusals();
    return done();
}
