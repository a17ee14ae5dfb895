/* SPDX-License-Identifier: MIT */
/* ranks - balanced partitions for ranks with several stages.
 *
 * A greedy method cannot decide if a bound on ranks can be kept: the room of a
 * stage depends on the other stages of its rank. So a local search starts from
 * the balanced partition of stages. A step shifts all boundaries between two
 * stages by one, which moves one unit from one to the other, or it shifts one
 * boundary by any distance. If all layers cost the same, the first kind of step
 * reaches the optimum. Then a depth-first search goes through all partitions
 * until its limit of steps, and the local search continues from its result. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "split/split.h"
#include "split/costs.h"

/* Limit of stages that the depth-first search tries: some milliseconds. */
enum { MAX_TRIES = 1000000 };

struct ranks_search {
    const struct pp_split_costs *costs;
    size_t n_stages, n_ranks;
    const int *rank;
    size_t least;       /* units that a stage must keep */
    uint64_t *load;     /* scratch: cost of each rank */
    uint64_t *moved;    /* scratch: cost of each rank, then of each stage */
    size_t *last_stage; /* per rank */
    size_t *trial;      /* boundaries being tried */
    size_t tries;
};

/* The objective, most important first. */
struct score {
    uint64_t largest; /* cost of the most expensive rank */
    uint64_t ranks;   /* sum of squares */
    uint64_t stages;  /* sum of squares */
};

static bool better(struct score a, struct score b)
{
    if (a.largest != b.largest)
        return a.largest < b.largest;
    if (a.ranks != b.ranks)
        return a.ranks < b.ranks;
    return a.stages < b.stages;
}

static struct score score_of(const struct ranks_search *x, const size_t *bounds)
{
    struct score out = {0, 0, 0};
    memset(x->load, 0, x->n_ranks * sizeof *x->load);
    for (size_t s = 0; s < x->n_stages; s++) {
        uint64_t sum = pp_split_sum(x->costs, bounds[s], bounds[s + 1]);
        out.stages += sum * sum;
        x->load[x->rank[s]] += sum;
    }
    for (size_t r = 0; r < x->n_ranks; r++) {
        out.ranks += x->load[r] * x->load[r];
        if (x->load[r] > out.largest)
            out.largest = x->load[r];
    }
    return out;
}

/* Adds by to the boundaries first .. last. */
static void shift(size_t *bounds, size_t first, size_t last, long by)
{
    for (size_t b = first; b <= last; b++)
        bounds[b] += (size_t)by;
}

/* Returns true if stages first - 1 and last have enough units. A shift of the
 * boundaries first .. last changes only the size of these two. */
static bool is_legal_step(const struct ranks_search *x, const size_t *bounds,
                          size_t first, size_t last)
{
    return bounds[first] >= bounds[first - 1] + x->least &&
           bounds[last + 1] >= bounds[last] + x->least &&
           bounds[first] <= x->costs->n && bounds[last] <= x->costs->n;
}

struct step {
    size_t first, last; /* boundaries; first is 0 for no step */
    long by;
};

static void consider(struct score score, struct step step, struct step *best,
                     struct score *best_score)
{
    if (better(score, *best_score)) {
        *best_score = score;
        *best = step;
    }
}

/* Changes a sum, and the sum of squares that it is in. */
static void change(uint64_t *sum, uint64_t by, uint64_t *squares)
{
    *squares -= *sum * *sum;
    *sum += by;
    *squares += *sum * *sum;
}

/* Updates the sums for a shift of boundary b by one unit. */
static void move(const struct ranks_search *x, const size_t *bounds, size_t b,
                 long by, struct score *score)
{
    uint64_t *stage = x->moved + x->n_ranks;
    uint64_t unit = by > 0 ? pp_split_sum(x->costs, bounds[b], bounds[b] + 1)
                           : -pp_split_sum(x->costs, bounds[b] - 1, bounds[b]);
    change(&stage[b - 1], unit, &score->stages);
    change(&stage[b], -unit, &score->stages);
    change(&x->moved[x->rank[b - 1]], unit, &score->ranks);
    change(&x->moved[x->rank[b]], -unit, &score->ranks);
}

/* Considers all steps that shift boundaries first .. last by one, for any last.
 * Each score follows from the one before. base: the score without a step. */
static void consider_runs(const struct ranks_search *x, size_t *bounds,
                          struct step step, struct score base,
                          struct step *best, struct score *best_score)
{
    score_of(x, bounds);
    memcpy(x->moved, x->load, x->n_ranks * sizeof *x->moved);
    for (size_t s = 0; s < x->n_stages; s++)
        x->moved[x->n_ranks + s] =
            pp_split_sum(x->costs, bounds[s], bounds[s + 1]);
    for (; step.last < x->n_stages; step.last++) {
        size_t at = bounds[step.last];
        if (at == (step.by > 0 ? x->costs->n : 0))
            return;
        move(x, bounds, step.last, step.by, &base);
        shift(bounds, step.first, step.last, step.by);
        if (is_legal_step(x, bounds, step.first, step.last)) {
            base.largest = 0;
            for (size_t r = 0; r < x->n_ranks; r++)
                if (x->moved[r] > base.largest)
                    base.largest = x->moved[r];
            consider(base, step, best, best_score);
        }
        shift(bounds, step.first, step.last, -step.by);
    }
}

/* Returns the best step; its first is 0 if no step improves the score. */
static struct step best_step(const struct ranks_search *x, size_t *bounds,
                             struct score *score)
{
    struct step best = {0};
    struct score base = *score;
    for (size_t first = 1; first < x->n_stages; first++) {
        long left = (long)(bounds[first] - bounds[first - 1]);
        long right = (long)(bounds[first + 1] - bounds[first]);
        for (long by = -1; by <= 1; by += 2)
            consider_runs(x, bounds, (struct step){first, first, by}, base,
                          &best, score);
        for (long by = -left; by <= right; by++) {
            struct step step = {first, first, by};
            if (by >= -1 && by <= 1)
                continue;
            shift(bounds, first, first, by);
            if (is_legal_step(x, bounds, first, first))
                consider(score_of(x, bounds), step, &best, score);
            shift(bounds, first, first, -by);
        }
    }
    return best;
}

static void improve_locally(const struct ranks_search *x, size_t *bounds,
                            struct score *score)
{
    struct step step;
    while ((step = best_step(x, bounds, score)).first > 0)
        shift(bounds, step.first, step.last, step.by);
}

/* Returns true if the ranks of stages from s on can take the rest and stay
 * below bound. */
static bool ranks_have_room(const struct ranks_search *x, size_t s,
                            uint64_t bound, uint64_t left)
{
    uint64_t room = 0;
    for (size_t r = 0; r < x->n_ranks && room < left; r++)
        if (x->last_stage[r] >= s)
            room += bound - 1 - x->load[r];
    return room >= left;
}

/* Searches partitions with every rank below *bound; stage s begins at trial[s].
 * Every result goes to bounds and lowers *bound. */
static void descend_ranks(struct ranks_search *x, size_t s, uint64_t *bound,
                          size_t *bounds)
{
    size_t n = x->costs->n, i = x->trial[s];
    size_t most = n - x->least * (x->n_stages - 1 - s); /* for later stages */
    uint64_t *load = &x->load[x->rank[s]];
    uint64_t before = *load;
    bool last = s == x->n_stages - 1;
    for (size_t j = last ? n : i + x->least; j <= most; j++) {
        uint64_t sum = pp_split_sum(x->costs, i, j);
        if (before + sum >= *bound || x->tries == MAX_TRIES)
            break;
        x->tries++;
        *load = before + sum;
        x->trial[s + 1] = j;
        if (last) {
            memcpy(bounds, x->trial, (x->n_stages + 1) * sizeof *bounds);
            *bound = 0;
            for (size_t r = 0; r < x->n_ranks; r++)
                *bound = x->load[r] > *bound ? x->load[r] : *bound;
        } else if (ranks_have_room(x, s + 1, *bound,
                                   pp_split_sum(x->costs, j, n))) {
            descend_ranks(x, s + 1, bound, bounds);
        }
    }
    *load = before;
}

static void search_ranks(struct ranks_search *x, size_t *bounds)
{
    struct score score = score_of(x, bounds);
    improve_locally(x, bounds, &score);
    /* A gain below 1 % is not worth less even stages: for example, the norm can
     * change ranks only if the head stays alone on its stage. */
    uint64_t bound = score.largest - score.largest / 100;
    memset(x->load, 0, x->n_ranks * sizeof *x->load);
    descend_ranks(x, 0, &bound, bounds);
    score = score_of(x, bounds);
    improve_locally(x, bounds, &score);
}

void pp_split_balanced_ranks(const double *costs, size_t n, size_t n_stages,
                             const int *rank, size_t n_ranks, size_t *bounds)
{
    struct pp_split_costs c;
    pp_split_balanced(costs, n, n_stages, bounds);
    if (n_ranks >= n_stages)
        return;
    struct ranks_search x = {
        .costs = &c,
        .n_stages = n_stages,
        .n_ranks = n_ranks,
        .rank = rank,
        .least = n >= n_stages,
        .load = pp_calloc(n_ranks, sizeof *x.load),
        .moved = pp_calloc(n_ranks + n_stages, sizeof *x.moved),
        .last_stage = pp_calloc(n_ranks, sizeof *x.last_stage),
        .trial = pp_calloc(n_stages + 1, sizeof *x.trial)};
    for (size_t s = 0; s < n_stages; s++)
        x.last_stage[rank[s]] = s;
    pp_split_costs_init(&c, costs, n);
    search_ranks(&x, bounds);
    free(x.load);
    free(x.moved);
    free(x.last_stage);
    free(x.trial);
    pp_split_costs_finish(&c);
}
