/* SPDX-License-Identifier: MIT */
/* The rules of the lower bound, rank by rank, and the largest of them. */
#include "schedule/bound/bound.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/bound/parts.h"

static void take(struct pp_bound *b, double makespan, const char *rule, int row)
{
    /* A later rule must give more than rounding to be named. */
    if (makespan > b->makespan * (1 + 1e-12))
        *b = (struct pp_bound){makespan, rule, row};
}

/* Sorts stages by rank: rank r has sorted[first[r] .. first[r + 1]). */
static void sort_stages(const struct pp_graph *g, int **first, int **sorted)
{
    *first = pp_calloc((size_t)g->n_rows + 2, sizeof **first);
    *sorted = pp_calloc((size_t)g->n_stages, sizeof **sorted);
    for (int s = 0; s < g->n_stages; s++)
        ++(*first)[g->stages[s].row + 2];
    for (int r = 0; r < g->n_rows; r++)
        (*first)[r + 2] += (*first)[r + 1];
    for (int s = 0; s < g->n_stages; s++)
        (*sorted)[(*first)[g->stages[s].row + 1]++] = s;
}

static void bound_memory(const struct pp_bound_case *c, const int *first,
                         const int *sorted, struct pp_bound *b)
{
    double *hold = pp_bound_holds(c);
    for (int r = 0; r < c->g->n_rows; r++)
        if (first[r + 1] > first[r])
            take(b,
                 pp_bound_little(c, sorted + first[r], first[r + 1] - first[r],
                                 hold),
                 "Little's law", r);
    free(hold);
}

static void bound_unequal(struct pp_bound_case *c, const int *first,
                          const int *sorted, struct pp_bound *b)
{
    pp_bound_own_paths(c);
    for (int r = 0; r < c->g->n_rows; r++)
        take(b, pp_bound_unequal(c, sorted + first[r], first[r + 1] - first[r]),
             "unequal microbatches", r);
}

static void bound_rows(struct pp_bound_case *c, struct pp_bound *b)
{
    int *first = NULL, *sorted = NULL;
    sort_stages(c->g, &first, &sorted);
    for (int r = 0; r < c->g->n_rows; r++)
        if (first[r + 1] > first[r])
            take(b, c->row_head[r] + c->work[r] + c->row_tail[r], "rank work",
                 r);
    for (int r = 0; r < c->g->n_rows; r++)
        take(b, pp_bound_machine(c, sorted + first[r], first[r + 1] - first[r]),
             "event graph", r);
    if (c->limit)
        bound_memory(c, first, sorted, b);
    if (!c->uniform)
        bound_unequal(c, first, sorted, b);
    free(first);
    free(sorted);
}

static int raise_by_windows(const struct pp_bound_case *c, double reached,
                            double seconds, struct pp_bound *b,
                            struct pp_err *err)
{
    double windows = pp_bound_windows(c, b->makespan, reached, seconds, err);
    take(b, windows, "refuted windows", -1);
    return windows < 0 ? -1 : 0;
}

/* Raises the bound by the rule for copies to the host. */
static void raise_by_copies(const struct pp_bound_case *c,
                            const struct pp_memory_limit *memory,
                            struct pp_bound *b)
{
    double *hold = pp_bound_holds(c);
    for (int r = 0; r < c->g->n_rows; r++)
        take(b, pp_bound_offload(c, memory, r, hold), "copies", r);
    free(hold);
}

/* Refutes makespans below reached in so many seconds; 0: none. */
static int find_bound(struct pp_bound_case *c, int n_microbatches, bool split,
                      const struct pp_costs *costs,
                      const struct pp_memory_limit *memory, double reached,
                      double seconds, struct pp_bound *b, struct pp_err *err)
{
    const struct pp_graph *g = c->g;
    const struct pp_memory_limit *copied =
        memory && memory->copy ? memory : NULL;
    if (copied)
        memory = NULL;
    *b = (struct pp_bound){.row = -1, .rule = "critical path"};
    c->n = (size_t)n_microbatches * (size_t)g->slices.n;
    int rc = pp_bound_read(c, split, costs, memory, err);
    if (!rc)
        b->makespan = pp_bound_path(c);
    if (!rc && g->n_copies > 1) {
        take(b, pp_bound_copies(c), "shared work", -1);
    } else if (!rc) {
        rc = pp_bound_events(c, err);
        if (!rc)
            bound_rows(c, b);
    }
    if (!rc && copied && copied->limit && g->n_copies == 1 && c->uniform)
        raise_by_copies(c, copied, b);
    if (!rc && reached > b->makespan * (1 + 1e-9) && g->n_copies == 1 &&
        c->limit && c->uniform)
        rc = raise_by_windows(c, reached, seconds, b, err);
    pp_bound_finish(c);
    return rc;
}

int pp_bound(const struct pp_graph *g, int n_microbatches, bool split,
             const struct pp_costs *costs, const struct pp_memory_limit *memory,
             struct pp_bound *b, struct pp_err *err)
{
    struct pp_bound_case c = {.g = g};
    return find_bound(&c, n_microbatches, split, costs, memory, 0, 0, b, err);
}

int pp_bound_by_refuting(const struct pp_graph *g, int n_microbatches,
                         bool split, const struct pp_costs *costs,
                         const struct pp_memory_limit *memory, double reached,
                         double seconds, struct pp_bound *b, struct pp_err *err)
{
    struct pp_bound_case c = {.g = g};
    return find_bound(&c, n_microbatches, split, costs, memory, reached,
                      seconds, b, err);
}
