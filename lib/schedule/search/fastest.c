/* SPDX-License-Identifier: MIT */
/* The named kinds against the order of a search, as runs at a channel depth. */
#include "schedule/search/fastest.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/search/problem.h"

/* Times that differ by less are equal. */
static const double equal = 1 + 1e-9;

struct contest {
    const struct pp_search_options *options;
    const struct pp_depth_options *run;
    struct pp_schedule *best;
    struct pp_depth_found found; /* of best */
};

static int most_slots(const struct pp_schedule *s)
{
    int most = 0;
    for (int r = 0; r < s->graph->n_rows; r++) {
        int slots = pp_row_slots(s, r);
        most = slots > most ? slots : most;
    }
    return most;
}

static bool wins(const struct contest *c, const struct pp_schedule *s,
                 const struct pp_depth_found *found)
{
    if (found->fits != c->found.fits)
        return found->fits;
    if (found->makespan * equal < c->found.makespan)
        return true;
    return found->makespan <= c->found.makespan * equal &&
           most_slots(s) < most_slots(c->best);
}

/* Lowers s, chooses its depth, and takes it if it wins. */
static int enter(struct contest *c, struct pp_schedule *s, struct pp_err *err)
{
    struct pp_depth_found found;
    if (pp_lower(s, err) || pp_depth_choose(s, c->run, &found, err))
        return -1;
    if (!wins(c, s, &found))
        return 0;
    struct pp_schedule loser = *c->best;
    *c->best = *s;
    *s = loser;
    c->found = found;
    return 0;
}

/* Enters every kind that fits, with backward as j has it. */
static int enter_kinds(struct contest *c, const struct pp_search_problem *j,
                       int32_t *order, struct pp_err *err)
{
    int rc = 0;
    for (const struct pp_kind *const *k = pp_kinds; *k && !rc; k++) {
        struct pp_schedule s;
        int made = pp_row_order_of_kind(j, *k, order, err);
        if (made < 0)
            return -1;
        if (made || !pp_row_order_fits(j, order))
            continue;
        pp_schedule_init(&s, j->graph, "auto", j->n_microbatches);
        pp_row_order_emit(j, order, &s);
        rc = enter(c, &s, err);
        pp_schedule_finish(&s);
    }
    return rc;
}

int pp_search_fastest(struct pp_schedule *s, const struct pp_search_options *o,
                      const struct pp_depth_options *run, struct pp_err *err)
{
    static const enum pp_backward all[] = {PP_BACKWARD_HALVES,
                                           PP_BACKWARD_WHOLE};
    struct contest c = {o, run, s, {0}};
    if (pp_depth_choose(s, run, &c.found, err))
        return -1;
    if (o->span ||
        (c.found.fits && c.found.makespan <= c.found.unbounded * equal))
        return 0;
    for (int i = o->split ? 0 : 1; i < 2; i++) {
        struct pp_search_problem j = {0};
        int rc = pp_search_problem_init(&j, s, all[i], o->costs, o->room,
                                        o->copy, err);
        int32_t *order = pp_calloc((size_t)j.ops.n + 1, sizeof *order);
        if (!rc)
            rc = enter_kinds(&c, &j, order, err);
        free(order);
        pp_search_problem_finish(&j);
        if (rc)
            return -1;
    }
    return 0;
}
