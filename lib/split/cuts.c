/* SPDX-License-Identifier: MIT */
#include "split/cuts.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Needs of ranks that are known at a time. */
enum { N_NEEDS = 1 << 13 };

/* Allocates the known needs of ranks. */
static void init_needs(struct pp_cuts *x)
{
    const struct pp_split_memory *m = x->problem->memory;
    x->key_length = 1;
    if (!m || !x->problem->need)
        return;
    for (int r = 0; r < m->graph->n_rows; r++) {
        int n = m->first_stage[r + 1] - m->first_stage[r];
        if (1 + 2 * (size_t)n > x->key_length)
            x->key_length = 1 + 2 * (size_t)n;
    }
    x->keys = pp_calloc(N_NEEDS, x->key_length * sizeof *x->keys);
    x->trial_key = pp_calloc(x->key_length, sizeof *x->trial_key);
    x->needs = pp_calloc(N_NEEDS, sizeof *x->needs);
}

/* Fills the prefix sums of the units' times. */
static void init_units(struct pp_cuts *x)
{
    const struct pp_split_step *p = x->problem;
    size_t slices = x->width / PP_N_TIMES;
    for (size_t i = 0; i < x->n_units; i++) {
        for (size_t k = 0; k < x->width; k++) {
            double t = p->times[i * slices + k / PP_N_TIMES][k % PP_N_TIMES];
            assert(isfinite(t) && t >= 0);
            x->before[(i + 1) * x->width + k] = x->before[i * x->width + k] + t;
        }
        if (p->messages && i + 1 < x->n_units)
            x->message[i] = p->messages[i];
    }
}

void pp_cuts_init(struct pp_cuts *x, const struct pp_split_step *p, size_t most)
{
    const struct pp_graph *g = p->makespan->graph;
    size_t cells = (size_t)g->n_stages * (size_t)g->slices.n;
    *x = (struct pp_cuts){.problem = p,
                          .n_units = p->n_units,
                          .n_stages = (size_t)(g->n_stages / g->n_copies),
                          .width = PP_N_TIMES * (size_t)g->slices.n,
                          .most = most};
    x->before = pp_calloc(p->n_units + 1, x->width * sizeof *x->before);
    x->message = pp_calloc(p->n_units + 1, sizeof *x->message);
    x->weights =
        pp_calloc(most + 1, x->n_stages * (x->width + 1) * sizeof *x->weights);
    x->times.slice = pp_calloc(cells, sizeof *x->times.slice);
    x->times.message = pp_calloc(cells, sizeof *x->times.message);
    x->counts.slice = pp_calloc(cells, sizeof *x->counts.slice);
    x->counts.message = pp_calloc(cells, sizeof *x->counts.message);
    init_units(x);
    init_needs(x);
}

static double speed_of(const struct pp_cuts *x, int stage)
{
    const struct pp_split_step *p = x->problem;
    return p->speed ? p->speed[p->makespan->graph->stages[stage].row] : 1;
}

/* Sets times for a partition. */
static void set_stage_times(struct pp_cuts *x, const size_t *bounds)
{
    const struct pp_graph *g = x->problem->makespan->graph;
    size_t slices = (size_t)g->slices.n;
    for (int s = 0; s < g->n_stages; s++) {
        size_t o = (size_t)pp_original(g, s), at = (size_t)s * slices;
        const double *from = &x->before[bounds[o] * x->width];
        const double *to = &x->before[bounds[o + 1] * x->width];
        double speed = speed_of(x, s);
        for (size_t k = 0; k < x->width; k++)
            x->times.slice[at + k / PP_N_TIMES][k % PP_N_TIMES] =
                (to[k] - from[k]) / speed;
        /* An empty stage sends on the message of the stage before it. */
        for (size_t q = 0; q < slices; q++)
            x->times.message[at + q] =
                bounds[o + 1] > 0 ? x->message[bounds[o + 1] - 1] : 0;
    }
}

double pp_cuts_time(struct pp_cuts *x, const size_t *bounds)
{
    set_stage_times(x, bounds);
    x->n_pieces += x->problem->makespan->n_pieces;
    return pp_makespan(x->problem->makespan, &x->times);
}

double *pp_cuts_next(struct pp_cuts *x)
{
    const struct pp_graph *g = x->problem->makespan->graph;
    size_t slices = (size_t)g->slices.n, row = x->width + 1;
    double *cut = &x->weights[x->n * x->n_stages * row];
    memset(cut, 0, x->n_stages * row * sizeof *cut);
    for (int s = 0; s < g->n_stages; s++) {
        double *to = &cut[(size_t)pp_original(g, s) * row];
        size_t at = (size_t)s * slices;
        double speed = speed_of(x, s);
        for (size_t k = 0; k < x->width; k++)
            to[k] +=
                x->counts.slice[at + k / PP_N_TIMES][k % PP_N_TIMES] / speed;
        for (size_t q = 0; q < slices; q++)
            to[x->width] += x->counts.message[at + q];
    }
    return cut;
}

void pp_cuts_add(struct pp_cuts *x)
{
    pp_cuts_next(x);
    x->n++;
}

double pp_cuts_simulate(struct pp_cuts *x, const size_t *bounds)
{
    double time = pp_cuts_time(x, bounds);
    if (x->n < x->most) {
        pp_makespan_path(x->problem->makespan, &x->times, &x->counts);
        pp_cuts_add(x);
    }
    return time;
}

double pp_cut_cost(const struct pp_cuts *x, size_t cut, const size_t *bounds)
{
    double sum = 0;
    for (size_t s = 0; s < x->n_stages; s++)
        sum += pp_cut_stage(x, pp_cut_weights(x, cut, s), bounds[s],
                            bounds[s + 1]);
    return sum;
}

void pp_cut_least(const struct pp_cuts *x, const double *weights, double *least,
                  uint32_t *end)
{
    size_t n = x->n_units, row = n + 1;
    for (size_t i = 0; i <= n; i++)
        least[x->n_stages * row + i] = i == n ? 0 : INFINITY;
    for (size_t s = x->n_stages; s-- > 0;) {
        const double *w = &weights[s * (x->width + 1)];
        const double *next = &least[(s + 1) * row];
        double best = INFINITY; /* counted from unit 0 on */
        uint32_t best_end = 0;
        least[s * row + n] = INFINITY;
        for (size_t i = n; i-- > 0;) {
            double to = pp_cut_stage(x, w, 0, i + 1) + next[i + 1];
            if (to < best) {
                best = to;
                best_end = (uint32_t)(i + 1);
            }
            least[s * row + i] = best - pp_cut_sum(x, w, 0, i);
            if (end)
                end[s * row + i] = best_end;
        }
    }
}

/* Fills trial_key and returns its entry. */
static size_t find_key(const struct pp_cuts *x, const size_t *bounds, int rank)
{
    const struct pp_split_memory *m = x->problem->memory;
    size_t *key = x->trial_key, n = 0;
    uint64_t hash = 0;
    memset(key, 0, x->key_length * sizeof *key);
    key[n++] = (size_t)rank + 1; /* so that an empty entry matches nothing */
    for (int i = m->first_stage[rank]; i < m->first_stage[rank + 1]; i++) {
        int s = pp_original(m->graph, m->stages[i]);
        key[n++] = bounds[s];
        key[n++] = bounds[s + 1];
    }
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ key[i]) * 0x9e3779b97f4a7c15u;
    return (size_t)(hash >> 32) % N_NEEDS;
}

double pp_cuts_need(struct pp_cuts *x, const size_t *bounds, int rank)
{
    const struct pp_split_step *p = x->problem;
    size_t at = find_key(x, bounds, rank);
    size_t *key = &x->keys[at * x->key_length];
    if (memcmp(key, x->trial_key, x->key_length * sizeof *key)) {
        x->needs[at] = p->need(p->ctx, bounds, rank);
        memcpy(key, x->trial_key, x->key_length * sizeof *key);
        x->n_planned++;
    }
    return x->needs[at];
}

bool pp_cuts_fits(struct pp_cuts *x, const size_t *bounds)
{
    const struct pp_split_step *p = x->problem;
    if (!pp_cuts_may_fit(x, bounds))
        return false;
    /* Neighbours of a partition often exceed the limit of the same rank. */
    int n = p->memory && p->need ? p->memory->graph->n_rows : 0;
    int first = x->refuser;
    for (int i = 0; i < n; i++) {
        int r = (first + i) % n;
        if (pp_cuts_need(x, bounds, r) > p->limit[r]) {
            x->refuser = r;
            return false;
        }
    }
    return true;
}

void pp_cuts_finish(struct pp_cuts *x)
{
    free(x->before);
    free(x->message);
    free(x->weights);
    free(x->times.slice);
    free(x->times.message);
    free(x->counts.slice);
    free(x->counts.message);
    free(x->keys);
    free(x->trial_key);
    free(x->needs);
    *x = (struct pp_cuts){0};
}
