/* SPDX-License-Identifier: MIT */
#include "split/recompute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Limits: stages of a group whose choices are enumerated, combinations of
 * groups that are simulated, and rounds of the local search. */
enum { MAX_STAGES = 6, MAX_COMBINED = 512, MAX_ROUNDS = 8 };

/* Stages that share ranks, and their minimal choices. */
struct group {
    int *stages; /* (n), sorted */
    size_t n;
    int *choices; /* (n_choices, n) */
    size_t n_choices, capacity;
    size_t best; /* index of the choice in use */
    bool all;    /* choices has all minimal choices */
};

struct chooser {
    const struct pp_split_recompute *p;
    size_t n_stages; /* one copy of the weights */
    struct group *groups;
    size_t n_groups;
    int *stages;        /* the stages of all groups */
    int *group_of_rank; /* (n_ranks) */
    int *trial;         /* (n_stages) */
};

/* --- groups --- */

/* Returns the first rank of r's group, as joined so far. */
static int root(const int *first, int r)
{
    while (first[r] != r)
        r = first[r];
    return r;
}

/* Joins ranks that hold copies of the same stage. */
static void join_ranks(const struct pp_graph *g, int *first)
{
    for (int r = 0; r < g->n_rows; r++)
        first[r] = r;
    for (int s = 0; s < g->n_stages; s++) {
        int a = root(first, g->stages[pp_original(g, s)].row);
        int b = root(first, g->stages[s].row);
        first[a > b ? a : b] = a > b ? b : a;
    }
}

/* Numbers the groups and lists their stages. */
static void list_groups(struct chooser *c, const int *first)
{
    const struct pp_graph *g = c->p->graph;
    int *at = c->stages;
    for (int r = 0; r < g->n_rows; r++) {
        int of = root(first, r);
        if (of != r) {
            c->group_of_rank[r] = c->group_of_rank[of];
            continue;
        }
        struct group *z = &c->groups[c->n_groups];
        c->group_of_rank[r] = (int)c->n_groups;
        z->stages = at;
        for (int s = 0; s < (int)c->n_stages; s++)
            if (root(first, g->stages[s].row) == r)
                *at++ = s;
        z->n = (size_t)(at - z->stages);
        c->n_groups += z->n > 0;
    }
}

static struct chooser make_groups(const struct pp_split_recompute *p)
{
    const struct pp_graph *g = p->graph;
    size_t ranks = (size_t)g->n_rows;
    size_t n_stages = (size_t)(g->n_stages / g->n_copies);
    struct chooser c = {.p = p,
                        .n_stages = n_stages,
                        .groups = pp_calloc(ranks, sizeof *c.groups),
                        .stages = pp_calloc(n_stages, sizeof *c.stages),
                        .group_of_rank =
                            pp_calloc(ranks, sizeof *c.group_of_rank),
                        .trial = pp_calloc(n_stages, sizeof *c.trial)};
    int *first = pp_calloc(ranks, sizeof *first);
    join_ranks(g, first);
    list_groups(&c, first);
    free(first);
    return c;
}

/* --- choices of a group --- */

static void set(int *modes, const struct group *z, const int *choice)
{
    for (size_t i = 0; i < z->n; i++)
        modes[z->stages[i]] = choice[i];
}

/* Returns true if all ranks of the group fit with the choice. */
static bool group_fits(struct chooser *c, size_t group, const int *choice)
{
    set(c->trial, &c->groups[group], choice);
    for (int r = 0; r < c->p->graph->n_rows; r++)
        if (c->group_of_rank[r] == (int)group &&
            !c->p->fits(c->p->ctx, c->trial, r))
            return false;
    return true;
}

/* Returns true if a known choice recomputes no more on any stage. */
static bool is_dominated(const struct group *z, const int *choice)
{
    for (size_t k = 0; k < z->n_choices; k++) {
        const int *other = &z->choices[k * z->n];
        size_t i = 0;
        while (i < z->n && other[i] <= choice[i])
            i++;
        if (i == z->n)
            return true;
    }
    return false;
}

static void add_choice(struct group *z, const int *choice)
{
    pp_array_reserve(&z->choices, &z->capacity, (z->n_choices + 1) * z->n,
                     sizeof *z->choices);
    memcpy(&z->choices[z->n_choices++ * z->n], choice, z->n * sizeof *choice);
}

/* Adds the choice if it fits and is not dominated. */
static void try_choice(struct chooser *c, size_t group, const int *choice)
{
    struct group *z = &c->groups[group];
    if (!is_dominated(z, choice) && group_fits(c, group, choice))
        add_choice(z, choice);
}

/* Tries all choices with a given sum of modes. Called for rising sums, so that
 * a choice comes after all that dominate it. */
static void try_sum(struct chooser *c, size_t group, int *choice, size_t at,
                    size_t left)
{
    const struct group *z = &c->groups[group];
    size_t most = c->p->n_modes - 1;
    if (left > most * (z->n - at))
        return;
    if (at == z->n) {
        try_choice(c, group, choice);
        return;
    }
    for (size_t m = 0; m <= most && m <= left; m++) {
        choice[at] = (int)m;
        try_sum(c, group, choice, at + 1, left - m);
    }
}

/* Finds one choice for a group with too many stages to enumerate. Raises one
 * stage after the other until the group fits, from the first stage on, which
 * has most microbatches in flight. */
static void try_chain(struct chooser *c, size_t group, int *choice)
{
    struct group *z = &c->groups[group];
    memset(choice, 0, z->n * sizeof *choice);
    try_choice(c, group, choice);
    for (size_t m = 1; m < c->p->n_modes; m++)
        for (size_t i = 0; i < z->n && z->n_choices == 0; i++) {
            choice[i] = (int)m;
            try_choice(c, group, choice);
        }
}

/* Returns false if no choice fits: then only the most recomputation is one. */
static bool find_choices(struct chooser *c, size_t group)
{
    struct group *z = &c->groups[group];
    size_t most = c->p->n_modes - 1;
    int *choice = pp_calloc(z->n, sizeof *choice);
    z->all = z->n <= MAX_STAGES;
    if (!z->all)
        try_chain(c, group, choice);
    for (size_t sum = 0; z->all && sum <= most * z->n; sum++)
        try_sum(c, group, choice, 0, sum);
    bool fits = z->n_choices > 0;
    if (!fits) {
        for (size_t i = 0; i < z->n; i++)
            choice[i] = (int)most;
        add_choice(z, choice);
    }
    free(choice);
    return fits;
}

/* --- all groups together --- */

static void set_all(const struct chooser *c, int *modes)
{
    for (size_t k = 0; k < c->n_groups; k++)
        set(modes, &c->groups[k],
            &c->groups[k].choices[c->groups[k].best * c->groups[k].n]);
}

static double time_of(const struct chooser *c)
{
    set_all(c, c->trial);
    return c->p->time(c->p->ctx, c->trial);
}

/* Returns a bound: the makespan if every stage has the least mode of any
 * minimal choice, or no recomputation if not all choices are known. */
static double choice_bound(const struct chooser *c)
{
    for (size_t k = 0; k < c->n_groups; k++) {
        const struct group *z = &c->groups[k];
        for (size_t i = 0; i < z->n; i++) {
            int least = z->all ? z->choices[i] : 0;
            for (size_t n = 1; n < z->n_choices; n++)
                if (z->choices[n * z->n + i] < least)
                    least = z->choices[n * z->n + i];
            c->trial[z->stages[i]] = least;
        }
    }
    return c->p->time(c->p->ctx, c->trial);
}

/* Returns the number of combinations, at most MAX_COMBINED + 1. */
static size_t count_combined(const struct chooser *c)
{
    size_t n = 1;
    for (size_t k = 0; k < c->n_groups && n <= MAX_COMBINED; k++)
        n *= c->groups[k].n_choices;
    return n <= MAX_COMBINED ? n : MAX_COMBINED + 1;
}

/* Selects combination number best: its digits are the groups' choices. */
static void combine(const struct chooser *c, size_t best)
{
    for (size_t k = 0; k < c->n_groups; k++) {
        c->groups[k].best = best % c->groups[k].n_choices;
        best /= c->groups[k].n_choices;
    }
}

static void search_all(struct chooser *c, size_t n,
                       struct pp_recompute_found *found)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        combine(c, i);
        double time = time_of(c);
        if (time < found->makespan) {
            found->makespan = time;
            best = i;
        }
    }
    combine(c, best);
}

/* Returns true if another choice of the group is better. */
static bool improve_group(struct chooser *c, struct group *z,
                          struct pp_recompute_found *found)
{
    size_t before = z->best, best = before;
    for (z->best = 0; z->best < z->n_choices; z->best++) {
        double time = time_of(c);
        if (time < found->makespan) {
            found->makespan = time;
            best = z->best;
        }
    }
    z->best = best;
    return best != before;
}

static void search_choices(struct chooser *c, struct pp_recompute_found *found)
{
    size_t n = count_combined(c);
    bool better = true;
    if (n <= MAX_COMBINED) {
        search_all(c, n, found);
        return;
    }
    for (int round = 0; better && round < MAX_ROUNDS; round++) {
        better = false;
        for (size_t k = 0; k < c->n_groups; k++)
            better |= improve_group(c, &c->groups[k], found);
    }
}

static struct pp_recompute_found choose(struct chooser *c, int *modes)
{
    struct pp_recompute_found found = {true, INFINITY, 0, false};
    bool all = true;
    for (size_t k = 0; k < c->n_groups; k++) {
        found.fits &= find_choices(c, k);
        all &= c->groups[k].all;
    }
    if (found.fits) {
        search_choices(c, &found);
        found.bound = choice_bound(c);
        found.proved = (all && count_combined(c) <= MAX_COMBINED) ||
                       found.makespan <= found.bound;
        if (found.proved)
            found.bound = found.makespan;
    }
    set_all(c, modes);
    return found;
}

struct pp_recompute_found pp_split_recompute(const struct pp_split_recompute *p,
                                             int *modes)
{
    struct chooser c = make_groups(p);
    const struct pp_recompute_found found = choose(&c, modes);
    for (size_t k = 0; k < c.n_groups; k++)
        free(c.groups[k].choices);
    free(c.groups);
    free(c.stages);
    free(c.group_of_rank);
    free(c.trial);
    return found;
}
