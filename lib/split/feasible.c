/* SPDX-License-Identifier: MIT */
/* feasible - a search for a partition that may fit in memory.
 *
 * If every rank has one stage, only the number of units in the first stages
 * matters. If ranks hold only stages s and n - 1 - s of n (a V of two chunks,
 * or two copies both ways), these pairs of stages nest: only the numbers of
 * units at the front and at the back of the outer pairs matter. The search goes
 * through all possible numbers, stage by stage or pair by pair. */
#include "split/cuts.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Limits of the memory sums for pairs and of the table: 0.1 seconds. */
enum { MAX_TRIES = 500000, MAX_CELLS = 1 << 25 };

struct feasible_search {
    const struct pp_split_step *p;
    size_t n_units, n_stages; /* one copy of the weights */
    size_t *bounds;           /* n_stages + 1 */
    bool *reached;            /* a table for each stage or pair */
    size_t n_pairs, n_tries;
    int *ranks; /* sorted by pair */
    int *first; /* first rank of each pair; n_pairs + 1 */
};

static bool rank_fits(const struct feasible_search *z, int rank)
{
    const struct pp_split_step *p = z->p;
    return !pp_split_memory_over(
        pp_split_memory_small(p->memory, z->bounds, rank), p->limit[rank]);
}

/* --- one stage on each rank --- */

static bool stage_fits(struct feasible_search *z, size_t s, size_t from,
                       size_t end)
{
    z->bounds[s] = from;
    z->bounds[s + 1] = end;
    return rank_fits(z, z->p->memory->graph->stages[s].row);
}

/* Marks the boundaries at which stage s may end. The last one does not
 * decrease with the stage's first unit. */
static void add_stage(struct feasible_search *z, size_t s)
{
    size_t row = z->n_units + 1, high = z->n_units - (z->n_stages - 1 - s);
    const bool *from = &z->reached[s * row];
    bool *to = &z->reached[(s + 1) * row];
    size_t end = 0, marked = 0;
    for (size_t i = 0; i < high; i++) {
        if (!from[i])
            continue;
        end = end > i ? end : i;
        while (end < high && stage_fits(z, s, i, end + 1))
            end++;
        marked = marked > i ? marked : i;
        for (; marked < end; marked++)
            to[marked + 1] = pp_split_may_begin(z->p, s + 1, marked + 1);
    }
}

/* Sets bounds to a partition. Returns false if there is none. */
static bool fill_chain(struct feasible_search *z)
{
    size_t row = z->n_units + 1, end = z->n_units;
    z->reached[0] = true;
    for (size_t s = 0; s < z->n_stages; s++)
        add_stage(z, s);
    if (!z->reached[z->n_stages * row + end])
        return false;
    for (size_t s = z->n_stages; s-- > 0;) {
        size_t i = end - 1;
        while (!z->reached[s * row + i] || !stage_fits(z, s, i, end))
            i--;
        end = i;
    }
    return true;
}

/* --- nested pairs of stages --- */

/* Sorts the ranks by pair. Returns false if a rank has stages of two pairs. */
static bool list_ranks(struct feasible_search *z)
{
    const struct pp_split_memory *m = z->p->memory;
    int n = 0;
    for (size_t k = 0; k < z->n_pairs; k++) {
        z->first[k] = n;
        for (int r = 0; r < m->graph->n_rows; r++) {
            int inside = 0, of = m->first_stage[r + 1] - m->first_stage[r];
            for (int i = 0; i < of; i++) {
                size_t s = (size_t)pp_original(
                    m->graph, m->stages[m->first_stage[r] + i]);
                inside += s == k || s == z->n_stages - 1 - k;
            }
            if (inside > 0 && inside < of)
                return false;
            if (inside > 0)
                z->ranks[n++] = r;
        }
    }
    z->first[z->n_pairs] = n;
    return true;
}

/* The entry for units i .. j - 1 in the pair and the pairs inside it. */
static bool *at(const struct feasible_search *z, size_t pair, size_t i,
                size_t j)
{
    size_t row = z->n_units + 1;
    return &z->reached[(pair * row + i) * row + j];
}

/* Returns true if the pair fits with the units i .. i2 - 1 and j2 .. j - 1. */
static bool pair_fits(struct feasible_search *z, size_t pair, size_t i,
                      size_t i2, size_t j2, size_t j)
{
    size_t other = z->n_stages - 1 - pair;
    z->bounds[other] = j2;
    z->bounds[other + 1] = j;
    z->bounds[pair] = i;
    z->bounds[pair + 1] = i2;
    z->n_tries++;
    for (int r = z->first[pair]; r < z->first[pair + 1]; r++)
        if (!rank_fits(z, z->ranks[r]))
            return false;
    return true;
}

/* Marks the units that may be left inside a pair that gets i .. j - 1, with at
 * least one unit for each stage. j2 does not decrease with i2: the more
 * units come before the pair, the fewer can come after it. */
static void fill_pair(struct feasible_search *z, size_t pair, size_t i,
                      size_t j)
{
    size_t left = z->n_stages - 2 * (pair + 1), j2 = j;
    while (j2 > i + 1 + left && pair_fits(z, pair, i, i + 1, j2 - 1, j))
        j2--;
    for (size_t i2 = i + 1; i2 + left < j; i2++) {
        while (j2 < j && (j2 < i2 + left || !pair_fits(z, pair, i, i2, j2, j)))
            j2++;
        if (j2 == j)
            return;
        for (size_t k = j2; k < j; k++)
            *at(z, pair + 1, i2, k) |=
                pp_split_may_begin(z->p, pair + 1, i2) &&
                pp_split_may_begin(z->p, z->n_stages - 1 - pair, k);
    }
}

/* Returns true if the innermost pair can hold i .. j - 1. */
static bool innermost_fits(struct feasible_search *z, size_t i, size_t j)
{
    size_t pair = z->n_pairs - 1;
    for (size_t m = i + 1; m < j; m++)
        if (pp_split_may_begin(z->p, pair + 1, m) &&
            pair_fits(z, pair, i, m, m, j))
            return true;
    return false;
}

/* Sets the bounds of the pairs around i .. j - 1. */
static void trace_pairs(struct feasible_search *z, size_t i, size_t j)
{
    for (size_t k = z->n_pairs - 1; k-- > 0;) {
        size_t i0 = i - 1, j0 = j + 1;
        while (!*at(z, k, i0, j0) || !pair_fits(z, k, i0, i, j, j0))
            if (++j0 > z->n_units) {
                j0 = j + 1;
                i0--;
            }
        i = i0;
        j = j0;
    }
}

/* Fills the pair for all units that the outer pairs may leave. Returns false
 * if it takes too long. */
static bool fill_pair_everywhere(struct feasible_search *z, size_t pair)
{
    for (size_t i = 0; i < z->n_units; i++)
        for (size_t j = i + 1; j <= z->n_units; j++) {
            if (*at(z, pair, i, j))
                fill_pair(z, pair, i, j);
            if (z->n_tries > MAX_TRIES)
                return false;
        }
    return true;
}

static enum pp_feasibility fill_nested(struct feasible_search *z)
{
    *at(z, 0, 0, z->n_units) = true;
    for (size_t k = 0; k + 1 < z->n_pairs; k++)
        if (!fill_pair_everywhere(z, k))
            return PP_FEASIBLE_UNKNOWN;
    for (size_t i = 0; i < z->n_units; i++)
        for (size_t j = i + 1; j <= z->n_units; j++)
            if (*at(z, z->n_pairs - 1, i, j) && innermost_fits(z, i, j)) {
                trace_pairs(z, i, j);
                return PP_FEASIBLE_FOUND;
            }
    return PP_FEASIBLE_NONE;
}

/* --- both placements --- */

static enum pp_feasibility search_feasible(struct feasible_search *z)
{
    const struct pp_graph *g = z->p->memory->graph;
    bool chain = g->n_stages == g->n_rows && g->n_copies == 1;
    size_t row = z->n_units + 1, rows = chain ? z->n_stages + 1 : z->n_pairs;
    size_t row_cells = chain ? row : row * row;
    if (rows > MAX_CELLS / row_cells)
        return PP_FEASIBLE_UNKNOWN;
    z->reached = pp_calloc(rows, row_cells * sizeof *z->reached);
    if (chain)
        return fill_chain(z) ? PP_FEASIBLE_FOUND : PP_FEASIBLE_NONE;
    return z->n_stages % 2 == 0 && list_ranks(z) ? fill_nested(z)
                                                 : PP_FEASIBLE_UNKNOWN;
}

enum pp_feasibility pp_split_feasible(const struct pp_split_step *p,
                                      size_t *bounds)
{
    const struct pp_graph *g = p->memory->graph;
    size_t n = (size_t)(g->n_stages / g->n_copies);
    struct feasible_search z = {
        .p = p,
        .n_units = p->n_units,
        .n_stages = n,
        .n_pairs = n / 2,
        .bounds = pp_calloc(n + 1, sizeof *z.bounds),
        .ranks = pp_calloc((size_t)g->n_rows, sizeof *z.ranks),
        .first = pp_calloc(n / 2 + 1, sizeof *z.first)};
    enum pp_feasibility answer = search_feasible(&z);
    if (answer == PP_FEASIBLE_FOUND)
        memcpy(bounds, z.bounds, (n + 1) * sizeof *bounds);
    free(z.bounds);
    free(z.reached);
    free(z.ranks);
    free(z.first);
    return answer;
}
