/* SPDX-License-Identifier: MIT */
#include "split/split_recompute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

/* Limits: stages of a group whose choices are enumerated, combinations of
 * groups that are simulated, and rounds of the local search. */
enum { MAX_STAGES = 6, MAX_COMBINED = 512, MAX_ROUNDS = 8 };

/* Stages that share ranks, and their minimal choices. */
struct group {
    int *stages; /* (n), sorted */
    size_t n;
    enum pp_recompute *choices; /* (n_choices, n) */
    size_t n_choices, capacity;
    size_t best; /* index of the choice in use */
    bool all;    /* choices has all minimal choices */
};

struct chooser {
    const struct pp_split_recompute *p;
    size_t n_stages; /* one copy of the weights */
    struct group *groups;
    size_t n_groups;
    int *stages;              /* the stages of all groups */
    int *group_of_rank;       /* (n_ranks) */
    enum pp_recompute *trial; /* (n_stages) */
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

static int make_groups(struct chooser *c, struct pp_err *err)
{
    const struct pp_graph *g = c->p->graph;
    size_t ranks = (size_t)g->n_rows;
    c->n_stages = (size_t)(g->n_stages / g->n_copies);
    c->groups = calloc(ranks, sizeof *c->groups);
    c->stages = calloc(c->n_stages, sizeof *c->stages);
    c->group_of_rank = calloc(ranks, sizeof *c->group_of_rank);
    c->trial = calloc(c->n_stages, sizeof *c->trial);
    int *first = calloc(ranks, sizeof *first);
    bool done = c->groups && c->stages && c->group_of_rank && c->trial && first;
    if (done) {
        join_ranks(g, first);
        list_groups(c, first);
    }
    free(first);
    return done ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

/* --- choices of a group --- */

static void set(enum pp_recompute *modes, const struct group *z,
                const enum pp_recompute *choice)
{
    for (size_t i = 0; i < z->n; i++)
        modes[z->stages[i]] = choice[i];
}

/* Sets *yes if all ranks of the group fit with the choice. */
static int group_fits(struct chooser *c, size_t group,
                      const enum pp_recompute *choice, bool *yes,
                      struct pp_err *err)
{
    set(c->trial, &c->groups[group], choice);
    *yes = true;
    for (int r = 0; *yes && r < c->p->graph->n_rows; r++)
        if (c->group_of_rank[r] == (int)group &&
            c->p->fits(c->p->ctx, c->trial, r, yes, err))
            return -1;
    return 0;
}

/* Returns true if a known choice recomputes no more on any stage. */
static bool is_dominated(const struct group *z, const enum pp_recompute *choice)
{
    for (size_t k = 0; k < z->n_choices; k++) {
        const enum pp_recompute *other = &z->choices[k * z->n];
        size_t i = 0;
        while (i < z->n && other[i] <= choice[i])
            i++;
        if (i == z->n)
            return true;
    }
    return false;
}

static int add_choice(struct group *z, const enum pp_recompute *choice,
                      struct pp_err *err)
{
    if (z->n_choices == z->capacity) {
        size_t n = z->capacity ? 2 * z->capacity : 4, bytes;
        if (pp_mul(n * z->n, sizeof *z->choices, &bytes, err))
            return -1;
        enum pp_recompute *grown = realloc(z->choices, bytes);
        if (!grown)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        z->choices = grown;
        z->capacity = n;
    }
    memcpy(&z->choices[z->n_choices++ * z->n], choice, z->n * sizeof *choice);
    return 0;
}

/* Adds the choice if it fits and is not dominated. */
static int try_choice(struct chooser *c, size_t group,
                      const enum pp_recompute *choice, struct pp_err *err)
{
    struct group *z = &c->groups[group];
    bool yes;
    if (is_dominated(z, choice))
        return 0;
    if (group_fits(c, group, choice, &yes, err))
        return -1;
    return yes ? add_choice(z, choice, err) : 0;
}

/* Tries all choices with a given sum of modes. Called for rising sums, so that
 * a choice comes after all that dominate it. */
static int try_sum(struct chooser *c, size_t group, enum pp_recompute *choice,
                   size_t at, size_t left, struct pp_err *err)
{
    const struct group *z = &c->groups[group];
    size_t most = c->p->n_modes - 1;
    if (left > most * (z->n - at))
        return 0;
    if (at == z->n)
        return try_choice(c, group, choice, err);
    for (size_t m = 0; m <= most && m <= left; m++) {
        choice[at] = (enum pp_recompute)m;
        if (try_sum(c, group, choice, at + 1, left - m, err))
            return -1;
    }
    return 0;
}

/* Finds one choice for a group with too many stages to enumerate. Raises one
 * stage after the other until the group fits, from the first stage on, which
 * has most microbatches in flight. */
static int try_chain(struct chooser *c, size_t group, enum pp_recompute *choice,
                     struct pp_err *err)
{
    struct group *z = &c->groups[group];
    memset(choice, 0, z->n * sizeof *choice);
    if (try_choice(c, group, choice, err))
        return -1;
    for (size_t m = 1; m < c->p->n_modes; m++)
        for (size_t i = 0; i < z->n && z->n_choices == 0; i++) {
            choice[i] = (enum pp_recompute)m;
            if (try_choice(c, group, choice, err))
                return -1;
        }
    return 0;
}

static int find_choices(struct chooser *c, size_t group,
                        struct pp_recompute_found *found, struct pp_err *err)
{
    struct group *z = &c->groups[group];
    size_t most = c->p->n_modes - 1;
    enum pp_recompute *choice = calloc(z->n, sizeof *choice);
    if (!choice)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    z->all = z->n <= MAX_STAGES;
    int rc = z->all ? 0 : try_chain(c, group, choice, err);
    for (size_t sum = 0; z->all && sum <= most * z->n && !rc; sum++)
        rc = try_sum(c, group, choice, 0, sum, err);
    if (!rc && z->n_choices == 0) {
        found->fits = false;
        for (size_t i = 0; i < z->n; i++)
            choice[i] = (enum pp_recompute)most;
        rc = add_choice(z, choice, err);
    }
    free(choice);
    return rc;
}

/* --- all groups together --- */

static void set_all(const struct chooser *c, enum pp_recompute *modes)
{
    for (size_t k = 0; k < c->n_groups; k++)
        set(modes, &c->groups[k],
            &c->groups[k].choices[c->groups[k].best * c->groups[k].n]);
}

static int time_of(const struct chooser *c, double *time, struct pp_err *err)
{
    set_all(c, c->trial);
    return c->p->time(c->p->ctx, c->trial, time, err);
}

/* Finds a bound: the makespan if every stage has the least mode of any minimal
 * choice, or no recomputation if not all choices are known. */
static int find_choice_bound(const struct chooser *c, double *bound,
                             struct pp_err *err)
{
    for (size_t k = 0; k < c->n_groups; k++) {
        const struct group *z = &c->groups[k];
        for (size_t i = 0; i < z->n; i++) {
            enum pp_recompute least = z->all ? z->choices[i] : 0;
            for (size_t n = 1; n < z->n_choices; n++)
                if (z->choices[n * z->n + i] < least)
                    least = z->choices[n * z->n + i];
            c->trial[z->stages[i]] = least;
        }
    }
    return c->p->time(c->p->ctx, c->trial, bound, err);
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

static int search_all(struct chooser *c, size_t n,
                      struct pp_recompute_found *found, struct pp_err *err)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        double time;
        combine(c, i);
        if (time_of(c, &time, err))
            return -1;
        if (time < found->makespan) {
            found->makespan = time;
            best = i;
        }
    }
    combine(c, best);
    return 0;
}

static int improve_group(struct chooser *c, struct group *z, bool *better,
                         struct pp_recompute_found *found, struct pp_err *err)
{
    size_t best = z->best;
    for (size_t i = 0; i < z->n_choices; i++) {
        double time;
        z->best = i;
        if (time_of(c, &time, err))
            return -1;
        if (time < found->makespan) {
            found->makespan = time;
            best = i;
            *better = true;
        }
    }
    z->best = best;
    return 0;
}

static int search_choices(struct chooser *c, struct pp_recompute_found *found,
                          struct pp_err *err)
{
    size_t n = count_combined(c);
    bool better = true;
    if (n <= MAX_COMBINED)
        return search_all(c, n, found, err);
    for (int round = 0; better && round < MAX_ROUNDS; round++) {
        better = false;
        for (size_t k = 0; k < c->n_groups; k++)
            if (improve_group(c, &c->groups[k], &better, found, err))
                return -1;
    }
    return 0;
}

static int choose(struct chooser *c, enum pp_recompute *modes,
                  struct pp_recompute_found *found, struct pp_err *err)
{
    bool all = true;
    for (size_t k = 0; k < c->n_groups; k++) {
        if (find_choices(c, k, found, err))
            return -1;
        all &= c->groups[k].all;
    }
    if (!found->fits) {
        set_all(c, modes);
        return 0;
    }
    if (search_choices(c, found, err) ||
        find_choice_bound(c, &found->bound, err))
        return -1;
    found->proved = (all && count_combined(c) <= MAX_COMBINED) ||
                    found->makespan <= found->bound;
    if (found->proved)
        found->bound = found->makespan;
    set_all(c, modes);
    return 0;
}

int pp_split_recompute(const struct pp_split_recompute *p,
                       enum pp_recompute *modes,
                       struct pp_recompute_found *found, struct pp_err *err)
{
    struct chooser c = {.p = p};
    *found = (struct pp_recompute_found){true, INFINITY, 0, false};
    int rc = make_groups(&c, err) || choose(&c, modes, found, err) ? -1 : 0;
    for (size_t k = 0; c.groups && k < c.n_groups; k++)
        free(c.groups[k].choices);
    free(c.groups);
    free(c.stages);
    free(c.group_of_rank);
    free(c.trial);
    return rc;
}
