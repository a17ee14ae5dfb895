/* SPDX-License-Identifier: MIT */
/* slices - the shortest longest slice, by bisection: slices of a given time are
 * as long as they can be, one after the other. */
#include "cost/slices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The mean microbatch: tokens and pairs before each cell. */
struct cells {
    const struct pp_stage_costs *costs;
    int n;
    double *tokens, *pairs; /* (n + 1) */
};

static void add_up(const struct pp_step *x, int n_microbatches, struct cells *c)
{
    for (int i = 0; i < c->n; i++) {
        double tokens = 0, pairs = 0;
        for (int k = 0; k < n_microbatches; k++) {
            const struct pp_workload *l = &x->loads[k * c->n + i];
            tokens += l->of[PP_LANGUAGE].tokens;
            pairs += l->of[PP_LANGUAGE].pairs;
        }
        c->tokens[i + 1] = c->tokens[i] + tokens / n_microbatches;
        c->pairs[i + 1] = c->pairs[i] + pairs / n_microbatches;
    }
}

/* Returns the time of a slice of the cells [from, to) on the stage where it
 * takes longest. */
static double time_of(const struct cells *c, int from, int to)
{
    const struct pp_workload l = pp_workload_of(c->tokens[to] - c->tokens[from],
                                                c->pairs[to] - c->pairs[from]);
    double longest = 0;
    for (int s = 0; s < c->costs->plan.graph->n_stages; s++) {
        struct pp_action a = {.op = PP_F, .stage = s, .peer = -1};
        double time = pp_stage_time(c->costs, a, l, PP_LOGITS_LEAST);
        a.op = PP_B;
        longest = fmax(longest,
                       time + pp_stage_time(c->costs, a, l, PP_LOGITS_LEAST));
    }
    return longest;
}

/* Cuts slices of at most `limit`, of at least a cell each. Returns whether they
 * have all cells. */
static bool cut(const struct cells *c, double limit, int n, int32_t *ends)
{
    int at = 0;
    for (int q = 0; q < n; q++) {
        int end = at + 1, most = c->n - (n - 1 - q);
        if (time_of(c, at, end) > limit)
            return false;
        while (end < most) {
            int middle = end + (most - end + 1) / 2;
            if (time_of(c, at, middle) > limit)
                most = middle - 1;
            else
                end = middle;
        }
        ends[q] = at = end;
    }
    return at == c->n;
}

static int32_t common_divisor(int32_t a, int32_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

struct pp_slices pp_slices_reduced(int n, int32_t *ends)
{
    int32_t by = 0;
    for (int q = 0; q < n; q++)
        by = common_divisor(ends[q], by);
    for (int q = 0; q < n; q++)
        ends[q] /= by;
    return (struct pp_slices){n, ends[n - 1] > n ? ends : NULL};
}

void pp_slices_balance(const struct pp_step *x, int n_microbatches, int n,
                       int32_t *ends)
{
    enum { HALVINGS = 40 };
    struct cells c = {.costs = &x->costs, .n = x->costs.plan.graph->slices.n};
    size_t room = (size_t)c.n + 1;
    c.tokens = pp_calloc(room, sizeof *c.tokens);
    c.pairs = pp_calloc(room, sizeof *c.pairs);
    int32_t *tried = pp_calloc((size_t)n, sizeof *tried);
    add_up(x, n_microbatches, &c);
    double least = 0, most = time_of(&c, 0, c.n);
    cut(&c, most, n, ends);
    for (int i = 0; i < HALVINGS; i++) {
        double limit = least + (most - least) / 2;
        bool fits = cut(&c, limit, n, tried);
        *(fits ? &most : &least) = limit;
        if (fits)
            memcpy(ends, tried, (size_t)n * sizeof *ends);
    }
    free(tried);
    free(c.pairs);
    free(c.tokens);
}
