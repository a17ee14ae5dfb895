/* SPDX-License-Identifier: MIT */
/* sched_fixture - chains, kinds and text rows for the schedule tests.
 *
 * A header with definitions, like tap.h: each test program includes it once. */
#ifndef PP_TESTS_SCHED_FIXTURE_H
#define PP_TESTS_SCHED_FIXTURE_H

#include <limits.h>

#include "schedule/check/check.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"
#include "schedule/simulate/sim.h"
#include "tap.h"

/* A kind on p rows of c stages each, with m microbatches. */
struct kind_case {
    const char *kind;
    int p, c, m;
    enum pp_placement placement;
};

struct fixture {
    struct pp_arena arena;
    struct pp_graph graph;
    struct pp_schedule s;
    struct pp_err err;
};

/* Makes a chain without a schedule. */
__attribute__((unused)) static void chain(struct fixture *f, int p, int c,
                                          enum pp_placement placement)
{
    *f = (struct fixture){0};
    if (pp_graph_chain(&f->arena, p, c, placement, &f->graph, &f->err))
        printf("# %s\n", f->err.text);
}

__attribute__((unused)) static int emit(struct fixture *f, const char *kind,
                                        int m, int group)
{
    struct pp_kind_options o = {m, group};
    const struct pp_kind *k = pp_kind_find(kind);
    pp_schedule_init(&f->s, &f->graph, k->name, m);
    return pp_kind_emit(k, &f->s, &o, &f->err);
}

/* Builds, lowers, checks and simulates a kind with unbounded channels. */
__attribute__((unused)) static bool plan_kind(struct fixture *f,
                                              const char *kind, int m,
                                              const double *cost,
                                              struct pp_sim *sim)
{
    struct pp_literal_costs literal = {.graph = &f->graph,
                                       .f = cost[0],
                                       .i = cost[1],
                                       .w = cost[2],
                                       .comm = cost[3],
                                       .textbook = true};
    struct pp_costs costs = {pp_literal_time, &literal};
    if (!emit(f, kind, m, 0) && !pp_lower(&f->s, &f->err) &&
        !pp_check(&f->s, &f->err) &&
        !pp_simulate(&f->s, &costs, INT_MAX, sim, &f->err))
        return true;
    printf("# %s\n", f->err.text);
    return false;
}

/* Makes a schedule of the given rows at channel depth 1. Returns 0 if all are
 * read. */
__attribute__((unused)) static int rows(struct fixture *f, int m,
                                        const char *const *text)
{
    pp_schedule_init(&f->s, &f->graph, "test", m);
    for (int r = 0; r < f->graph.n_rows; r++)
        if (pp_schedule_parse_row(&f->s, r, text[r], &f->err))
            return -1;
    return 0;
}

__attribute__((unused)) static void drop(struct fixture *f)
{
    pp_schedule_finish(&f->s);
    pp_arena_finish(&f->arena);
    *f = (struct fixture){0};
}

#endif
