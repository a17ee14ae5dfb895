/* SPDX-License-Identifier: MIT */
/* Several stages on a rank: the largest rank counts. Deciding a bound is then
 * no longer greedy (what one stage may take depends on the rank's others), so
 * this is a local search from the best split of stages. A step moves one
 * unit's worth from any stage to any other, by shifting all boundaries between
 * them by one, or one boundary by any distance; while layers cost the same,
 * no worse split can resist the first kind. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "plan/split.h"
#include "plan/split_costs.h"

struct search {
    const struct pp_split_costs *costs;
    size_t n_stages, n_ranks;
    const int *rank;
    size_t least;   /* units a stage must keep */
    uint64_t *load; /* scratch: of each rank */
};

/* What is minimised, most important first. */
struct score {
    uint64_t largest; /* rank */
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

static struct score score_of(const struct search *x, const size_t *bounds)
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

/* Whether stages first - 1 and last still have enough, the two that a shift of
 * the boundaries first .. last changes. */
static bool legal(const struct search *x, const size_t *bounds, size_t first,
                  size_t last)
{
    return bounds[first] >= bounds[first - 1] + x->least &&
           bounds[last + 1] >= bounds[last] + x->least &&
           bounds[first] <= x->costs->n && bounds[last] <= x->costs->n;
}

struct step {
    size_t first, last; /* boundaries; first 0: none */
    long by;
};

static void consider(const struct search *x, size_t *bounds, struct step step,
                     struct step *best, struct score *best_score)
{
    shift(bounds, step.first, step.last, step.by);
    if (legal(x, bounds, step.first, step.last)) {
        struct score score = score_of(x, bounds);
        if (better(score, *best_score)) {
            *best_score = score;
            *best = step;
        }
    }
    shift(bounds, step.first, step.last, -step.by);
}

/* The best step from here; best->first is 0 when none improves. */
static struct step best_step(const struct search *x, size_t *bounds,
                             struct score *score)
{
    struct step best = {0};
    for (size_t first = 1; first < x->n_stages; first++) {
        for (size_t last = first; last < x->n_stages; last++) {
            consider(x, bounds, (struct step){first, last, 1}, &best, score);
            consider(x, bounds, (struct step){first, last, -1}, &best, score);
        }
        long left = (long)(bounds[first] - bounds[first - 1]);
        long right = (long)(bounds[first + 1] - bounds[first]);
        for (long by = -left; by <= right; by++)
            if (by < -1 || by > 1)
                consider(x, bounds, (struct step){first, first, by}, &best,
                         score);
    }
    return best;
}

int pp_split_balanced_ranks(const double *costs, size_t n, size_t n_stages,
                            const int *rank, size_t n_ranks, size_t *bounds,
                            struct pp_err *err)
{
    struct pp_split_costs c = {0};
    int rc = -1;
    if (pp_split_balanced(costs, n, n_stages, bounds, err))
        return -1;
    if (n_ranks >= n_stages)
        return 0;
    struct search x = {.costs = &c,
                       .n_stages = n_stages,
                       .n_ranks = n_ranks,
                       .rank = rank,
                       .least = n >= n_stages,
                       .load = calloc(n_ranks, sizeof *x.load)};
    if (!x.load) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto out;
    }
    if (pp_split_costs_init(&c, costs, n, err))
        goto out;
    struct score score = score_of(&x, bounds);
    struct step step;
    while ((step = best_step(&x, bounds, &score)).first > 0)
        shift(bounds, step.first, step.last, step.by);
    rc = 0;
out:
    free(x.load);
    pp_split_costs_finish(&c);
    return rc;
}
