/* SPDX-License-Identifier: MIT */
/* The rules of the lower bound, rank by rank, and the largest of them. */
#include "schedule/bound/bound.h"

#include <stdlib.h>

#include "base/num.h"
#include "schedule/bound/bound_parts.h"

static void take(struct pp_bound *b, double makespan, const char *rule, int row)
{
    /* A later rule must give more than rounding to be named. */
    if (makespan > b->makespan * (1 + 1e-12))
        *b = (struct pp_bound){makespan, rule, row};
}

/* Sorts stages by rank: rank r has sorted[first[r] .. first[r + 1]). */
static int sort_stages(const struct pp_graph *g, int **first, int **sorted,
                       struct pp_err *err)
{
    *first = calloc((size_t)g->n_rows + 2, sizeof **first);
    *sorted = calloc((size_t)g->n_stages, sizeof **sorted);
    if (!*first || !*sorted)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < g->n_stages; s++)
        ++(*first)[g->stages[s].row + 2];
    for (int r = 0; r < g->n_rows; r++)
        (*first)[r + 2] += (*first)[r + 1];
    for (int s = 0; s < g->n_stages; s++)
        (*sorted)[(*first)[g->stages[s].row + 1]++] = s;
    return 0;
}

static int bound_memory(const struct pp_bound_case *c, const int *first,
                        const int *sorted, struct pp_bound *b,
                        struct pp_err *err)
{
    if (!c->limit)
        return 0;
    double *hold = pp_bound_holds(c, err), little = hold ? 0 : -1;
    for (int r = 0; r < c->g->n_rows && little >= 0; r++) {
        if (first[r + 1] == first[r])
            continue;
        little = pp_bound_little(c, sorted + first[r], first[r + 1] - first[r],
                                 hold, err);
        take(b, little, "Little's law", r);
    }
    free(hold);
    return little < 0 ? -1 : 0;
}

static int bound_unequal(struct pp_bound_case *c, const int *first,
                         const int *sorted, struct pp_bound *b,
                         struct pp_err *err)
{
    pp_bound_own_paths(c);
    for (int r = 0; r < c->g->n_rows; r++) {
        double own = pp_bound_unequal(c, sorted + first[r],
                                      first[r + 1] - first[r], err);
        if (own < 0)
            return -1;
        take(b, own, "unequal microbatches", r);
    }
    return 0;
}

static int bound_rows(struct pp_bound_case *c, struct pp_bound *b,
                      struct pp_err *err)
{
    int *first = NULL, *sorted = NULL;
    int rc = sort_stages(c->g, &first, &sorted, err);
    for (int r = 0; r < c->g->n_rows && !rc; r++)
        if (first[r + 1] > first[r])
            take(b, c->row_head[r] + c->work[r] + c->row_tail[r], "rank work",
                 r);
    for (int r = 0; r < c->g->n_rows && !rc; r++) {
        double machine = pp_bound_machine(c, sorted + first[r],
                                          first[r + 1] - first[r], err);
        take(b, machine, "event graph", r);
        rc = machine < 0 ? -1 : 0;
    }
    if (!rc)
        rc = bound_memory(c, first, sorted, b, err);
    if (!rc && !c->uniform)
        rc = bound_unequal(c, first, sorted, b, err);
    free(first);
    free(sorted);
    return rc;
}

/* --- copies of the weights --- */

/* Returns the time of all work of microbatch k, each stage on its cheapest
 * copy. */
static double work_of(const struct pp_bound_case *c, size_t k)
{
    int n = c->g->n_stages / c->g->n_copies;
    double work = 0;
    for (int s = 0; s < n; s++) {
        double least = 0;
        for (int copy = 0; copy < c->g->n_copies; copy++) {
            size_t at = (size_t)(s + copy * n) * c->n + k;
            double time = c->times[PP_BOUND_F][at] + c->times[PP_BOUND_I][at] +
                          c->times[PP_BOUND_W][at];
            least = copy == 0 || time < least ? time : least;
        }
        work += least;
    }
    return work;
}

/* Reports if a rank has stages of every copy, so that every microbatch gives it
 * work. */
static bool has_all(const struct pp_graph *g, int row)
{
    unsigned seen = 0;
    for (int s = 0; s < g->n_stages; s++)
        if (g->stages[s].row == row)
            seen |= 1u << pp_copy_number(g, s);
    return seen == (1u << g->n_copies) - 1;
}

/* Returns all work, spread evenly over the ranks, each with its head and tail.
 * The work of one rank depends on the copy that each microbatch takes; the sum
 * over all ranks does not, if each stage counts its cheapest copy. */
static double bound_copies(const struct pp_bound_case *c)
{
    double sum = 0;
    for (size_t k = 0; k < c->n; k++)
        sum += work_of(c, k);
    for (int r = 0; r < c->g->n_rows; r++)
        if (has_all(c->g, r))
            sum += c->row_head[r] + c->row_tail[r];
    return sum / c->g->n_rows;
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
static int raise_by_copies(const struct pp_bound_case *c,
                           const struct pp_memory_limit *room,
                           struct pp_bound *b, struct pp_err *err)
{
    double *hold = pp_bound_holds(c, err), makespan = hold ? 0 : -1;
    for (int r = 0; r < c->g->n_rows && makespan >= 0; r++) {
        makespan = pp_bound_offload(c, room, r, hold, err);
        take(b, makespan, "copies", r);
    }
    free(hold);
    return makespan < 0 ? -1 : 0;
}

/* Refutes makespans below reached in so many seconds; 0: none. */
static int find_bound(struct pp_bound_case *c, int n_microbatches, bool split,
                      const struct pp_costs *costs,
                      const struct pp_memory_limit *room, double reached,
                      double seconds, struct pp_bound *b, struct pp_err *err)
{
    const struct pp_graph *g = c->g;
    const struct pp_memory_limit *copied = room && room->copy ? room : NULL;
    if (copied)
        room = NULL;
    *b = (struct pp_bound){.row = -1, .rule = "critical path"};
    int rc = pp_mul((size_t)n_microbatches, (size_t)g->n_slices, &c->n, err) ||
                     pp_bound_read(c, split, costs, room, err)
                 ? -1
                 : 0;
    if (!rc)
        b->makespan = pp_bound_path(c);
    if (!rc && g->n_copies > 1) {
        take(b, bound_copies(c), "total work", -1);
    } else if (!rc) {
        rc = pp_bound_events(c, err);
        rc = rc ? rc : bound_rows(c, b, err);
    }
    if (!rc && copied && copied->limit && g->n_copies == 1 && c->uniform)
        rc = raise_by_copies(c, copied, b, err);
    if (!rc && reached > b->makespan * (1 + 1e-9) && g->n_copies == 1 &&
        c->limit && c->uniform)
        rc = raise_by_windows(c, reached, seconds, b, err);
    pp_bound_finish(c);
    return rc;
}

int pp_bound(const struct pp_graph *g, int n_microbatches, bool split,
             const struct pp_costs *costs, const struct pp_memory_limit *room,
             struct pp_bound *b, struct pp_err *err)
{
    struct pp_bound_case c = {.g = g};
    return find_bound(&c, n_microbatches, split, costs, room, 0, 0, b, err);
}

int pp_bound_by_refuting(const struct pp_graph *g, int n_microbatches,
                         bool split, const struct pp_costs *costs,
                         const struct pp_memory_limit *room, double reached,
                         double seconds, struct pp_bound *b, struct pp_err *err)
{
    struct pp_bound_case c = {.g = g};
    return find_bound(&c, n_microbatches, split, costs, room, reached, seconds,
                      b, err);
}
