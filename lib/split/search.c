/* SPDX-License-Identifier: MIT */
/* search - branch and bound over all partitions, depth first. A branch is
 * pruned if some cut shows that all its partitions take at least as long as the
 * best one. */
#include <stdlib.h>

#include "base/alloc.h"
#include "split/cuts.h"

/* Limits of the tables, and of search steps and simulated pieces: some tenths
 * of a second. */
enum { MAX_CELLS = 1 << 22, MAX_WORK = 12000000, BRIEF_WORK = 2000000 };

/* Work for the plan of the buffers of a piece. */
enum { PLAN_WORK = 30 };

struct cuts_search {
    struct pp_cuts *cuts;
    size_t most;    /* cuts that fit in the tables */
    size_t n;       /* cuts in the tables */
    double *least;  /* per cut: see pp_cut_least */
    double *prefix; /* per stage and cut: cost of the stages before */
    size_t *trial;  /* boundaries so far */
    size_t *next;   /* per stage: the end to try next */
    size_t pruner;  /* the cut that pruned the last branch */
    size_t work, most_work;
    double *best;
    size_t *bounds;
};

/* Fills the tables of new cuts, with prefixes up to stage s. */
static void take_cuts(struct cuts_search *z, size_t s)
{
    struct pp_cuts *x = z->cuts;
    for (; z->n < x->n && z->n < z->most; z->n++) {
        size_t row = x->n_units + 1, c = z->n;
        pp_cut_least(x, pp_cut_weights(x, c, 0),
                     &z->least[c * (x->n_stages + 1) * row], NULL);
        z->prefix[c] = 0;
        for (size_t k = 0; k < s; k++)
            z->prefix[(k + 1) * z->most + c] =
                z->prefix[k * z->most + c] +
                pp_cut_stage(x, pp_cut_weights(x, c, k), z->trial[k],
                             z->trial[k + 1]);
    }
}

/* Returns true unless cut c excludes that stage s ends at j. */
static bool cut_allows(struct cuts_search *z, size_t s, size_t j, size_t c)
{
    const struct pp_cuts *x = z->cuts;
    size_t row = x->n_units + 1;
    double sum = z->prefix[s * z->most + c] +
                 pp_cut_stage(x, pp_cut_weights(x, c, s), z->trial[s], j);
    z->prefix[(s + 1) * z->most + c] = sum;
    z->work++;
    return pp_cuts_less(
        sum + z->least[(c * (x->n_stages + 1) + s + 1) * row + j], *z->best);
}

static bool cuts_allow(struct cuts_search *z, size_t s, size_t j)
{
    if (z->pruner < z->n && !cut_allows(z, s, j, z->pruner))
        return false;
    for (size_t c = 0; c < z->n; c++)
        if (!cut_allows(z, s, j, c)) {
            z->pruner = c;
            return false;
        }
    return true;
}

/* Returns true if the ranks of stage s may have memory for stages 0 .. s. If
 * not, they have none for a longer stage s either. */
static bool stage_has_room(struct cuts_search *z, size_t s)
{
    const struct pp_split_step *p = z->cuts->problem;
    const struct pp_split_memory *m = p->memory;
    for (size_t i = s; m && i < (size_t)m->graph->n_stages;
         i += z->cuts->n_stages) {
        int r = m->graph->stages[i].row;
        z->work += (m->first_peak[r + 1] - m->first_peak[r] + 1) *
                   (size_t)(m->first_stage[r + 1] - m->first_stage[r]);
        double least = pp_split_memory_least(m, z->trial, (int)s + 1, r);
        if (pp_split_memory_over(least, p->limit[r]))
            return false;
    }
    return true;
}

/* Simulates a complete partition that may fit. */
static void try_leaf(struct cuts_search *z)
{
    struct pp_cuts *x = z->cuts;
    const struct pp_split_step *p = x->problem;
    if (!pp_cuts_may_fit(x, z->trial))
        return;
    double time = pp_cuts_simulate(x, z->trial);
    z->work += p->makespan->n_pieces;
    take_cuts(z, x->n_stages - 1);
    if (!pp_cuts_less(time, *z->best))
        return;
    size_t planned = x->n_planned;
    bool fits = pp_cuts_fits(x, z->trial);
    z->work += (x->n_planned - planned) * PLAN_WORK * p->makespan->n_pieces /
               (size_t)p->makespan->graph->n_rows;
    if (!fits)
        return;
    *z->best = time;
    for (size_t s = 0; s <= x->n_stages; s++)
        z->bounds[s] = z->trial[s];
}

/* Returns true if the search completed, false if it reached its limit. */
static bool descend_stages(struct cuts_search *z)
{
    size_t n = z->cuts->n_units, last = z->cuts->n_stages - 1, s = 0;
    z->trial[0] = 0;
    z->trial[last + 1] = n;
    z->next[0] = last == 0 ? n : 1;
    for (;;) {
        size_t j = z->next[s]++;
        if (z->work > z->most_work)
            return false;
        if (j > n - (last - s)) {
            if (s-- == 0)
                return true;
            continue;
        }
        z->work++;
        if (!pp_split_may_begin(z->cuts->problem, s + 1, j) ||
            !cuts_allow(z, s, j))
            continue;
        z->trial[s + 1] = j;
        if (!stage_has_room(z, s)) {
            z->next[s] = n + 1;
            continue;
        }
        if (s == last) {
            try_leaf(z);
            continue;
        }
        s++;
        z->next[s] = s == last ? n : j + 1;
    }
}

bool pp_cuts_search(struct pp_cuts *x, size_t *bounds, double *best)
{
    size_t table = (x->n_stages + 1) * (x->n_units + 1);
    struct cuts_search z = {.cuts = x,
                            .most = MAX_CELLS / table,
                            .most_work =
                                x->problem->brief ? BRIEF_WORK : MAX_WORK,
                            .best = best,
                            .bounds = bounds};
    if (z.most > x->most)
        z.most = x->most;
    if (z.most < 2)
        return false;
    z.least = pp_realloc(NULL, z.most, table * sizeof *z.least);
    z.prefix = pp_calloc(x->n_stages + 1, z.most * sizeof *z.prefix);
    z.trial = pp_calloc(x->n_stages + 1, sizeof *z.trial);
    z.next = pp_calloc(x->n_stages + 1, sizeof *z.next);
    take_cuts(&z, 0);
    bool whole = descend_stages(&z);
    free(z.least);
    free(z.prefix);
    free(z.trial);
    free(z.next);
    return whole;
}
