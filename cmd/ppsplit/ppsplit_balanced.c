/* SPDX-License-Identifier: MIT */
/* The method balanced: which units a boundary may part, where the search for
 * the shortest step begins, and the smallest costliest rank where no step is
 * asked for. */
#include <string.h>

#include "split/split.h"
#include "ppsplit.h"

/* Whether --export has no way to say that units i - 1 and i are on different
 * stages: who asks for a form gets the best plan that can be said in it.
 *
 * A layout's E is all in front of the layers and its L all behind them. With
 * multi-token prediction the norm goes with the last layer, all m are in one
 * stage, the last chunk of a rank that is not the first, and L is behind them:
 * with one or two ranks no other stage than the last is left for an m. */
static bool inseparable(const struct split_job *j, size_t i)
{
    const struct pp_model *m = &j->model;
    size_t first = pp_model_n_first(m), norm = first + m->n_layers;
    if (j->export != SPLIT_EXPORT_MEGATRON)
        return false;
    if (i < first)
        return true;
    if (m->n_mtp == 0)
        return i > norm;
    bool head = i == j->n_units - 1;
    return i == norm || (i > norm + 1 && (!head || j->n_ranks <= 2));
}

static int make_atoms(struct split_job *j, struct split_atoms *a)
{
    a->first = pp_arena_alloc(&j->arena, j->n_units + 1, sizeof *a->first);
    a->n = 0;
    if (!a->first)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < j->n_units; i++)
        if (i == 0 || !inseparable(j, i))
            a->first[a->n++] = i;
    a->first[a->n] = j->n_units;
    if (a->n < (size_t)j->graph.n_stages)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%d stages are too many for %zu layers: a layout keeps "
                       "%s together",
                       j->graph.n_stages, j->model.n_layers,
                       j->model.n_mtp   ? "norm and last layer"
                       : j->model.table ? "what comes behind the layers"
                                        : "norm and head");
    return 0;
}

/* Whether no stage is empty and no boundary is within an atom. */
static bool can_be(const struct split_job *j, const struct split_atoms *a)
{
    size_t k = 0;
    for (int s = 0; s < j->graph.n_stages; s++) {
        while (a->first[k] < j->bounds[s])
            k++;
        if (a->first[k] != j->bounds[s] || j->bounds[s] >= j->bounds[s + 1])
            return false;
    }
    return true;
}

/* The split that some other method makes, where it makes one that can be, and
 * whose step is shorter than that of bounds. */
static int try_rule(struct split_job *j, const struct split_atoms *a,
                    enum split_method method, double *shortest)
{
    struct split_job other = *j;
    size_t n = (size_t)j->graph.n_stages;
    double makespan;
    other.method = method;
    other.bounds = pp_arena_alloc(&j->arena, n + 1, sizeof *other.bounds);
    if (!other.bounds)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    int rc = method == SPLIT_PARAMETERS ? split_rule_units(&other)
                                        : split_by_layers(&other);
    j->arena = other.arena;
    if (rc || !can_be(&other, a)) /* a rule that cannot is no failure */
        return 0;
    if (pp_split_step_time(&j->run.step, other.bounds, &makespan, &j->t.err))
        return -1;
    if (makespan < *shortest) {
        *shortest = makespan;
        memcpy(j->bounds, other.bounds, (n + 1) * sizeof *j->bounds);
    }
    return 0;
}

/* Where the search for the shortest step begins: at the best of what the rules
 * make, so that none of them is better in the end. */
static int try_rules(struct split_job *j, const struct split_atoms *a)
{
    /* DeepSpeed's rule takes time with the square of these. */
    enum { MAX_UNITS = 256 };
    static const enum split_method rules[] = {
        SPLIT_UNIFORM, SPLIT_WEIGHTS, SPLIT_COLOSSALAI, SPLIT_PARAMETERS};
    double shortest;
    if (!j->shorten)
        return 0;
    if (pp_split_step_time(&j->run.step, j->bounds, &shortest, &j->t.err))
        return -1;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if ((rules[i] != SPLIT_PARAMETERS || j->n_units <= MAX_UNITS) &&
            try_rule(j, a, rules[i], &shortest))
            return -1;
    return 0;
}

/* The smallest costliest rank. */
static int balance(struct split_job *j, const struct split_atoms *a)
{
    size_t n = (size_t)j->graph.n_stages;
    int *rank = pp_arena_alloc(&j->arena, n, sizeof *rank);
    double *costs = pp_arena_alloc(&j->arena, a->n, sizeof *costs);
    if (!rank || !costs)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    /* Both ways, rank r does for one copy what rank n - 1 - r does for the
     * other: the two are as full. */
    bool both = j->placement == PP_PLACEMENT_BOTH_WAYS;
    for (size_t s = 0; s < n; s++)
        rank[s] =
            both && s >= n / 2 ? (int)(n - 1 - s) : j->graph.stages[s].row;
    for (size_t k = 0; k < a->n; k++)
        for (size_t i = a->first[k]; i < a->first[k + 1]; i++)
            costs[k] += j->costs[i];
    size_t n_ranks = (size_t)j->graph.n_rows / (both ? 2 : 1);
    if (j->fit_only) /* where the search begins is not worth one */
        n_ranks = n;
    if (pp_split_balanced_ranks(costs, a->n, n, rank, n_ranks, j->bounds,
                                &j->t.err))
        return -1;
    for (size_t s = 0; s <= n; s++)
        j->bounds[s] = a->first[j->bounds[s]];
    return 0;
}

int split_balanced_from(struct split_job *j)
{
    struct split_atoms a;
    return make_atoms(j, &a) ? -1 : split_shorten(j, &a);
}

int split_balanced(struct split_job *j)
{
    struct split_atoms a;
    if (make_atoms(j, &a))
        return -1;
    int rc =
        j->encoder_ranks ? split_apart(j) : balance(j, &a) || try_rules(j, &a);
    return rc ? -1 : split_shorten(j, &a);
}
