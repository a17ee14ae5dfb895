/* SPDX-License-Identifier: MIT */
/* Annealing of single moves. */
#include "schedule/search/methods.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "schedule/search/moves.h"

enum { MAX_SHIFT = 24, TRIES = 32 };

struct annealing {
    const struct pp_search_problem *problem;
    const struct pp_local_options *options;
    struct pp_moves moves;
    int32_t *order, *best;
    double *held; /* per place: memory before its op */
    double best_worst, mean, heat, eps;
    uint64_t n_random;
};

static uint64_t random_bits(struct annealing *l)
{
    return pp_rng_bits(l->options->key, l->n_random++);
}

/* Returns a number below n, which is far below 2^32. */
static int32_t random_below(struct annealing *l, int32_t n)
{
    return (int32_t)((random_bits(l) >> 32) * (uint64_t)n >> 32);
}

static double random_real(struct annealing *l)
{
    return (double)(random_bits(l) >> 11) * 0x1p-53;
}

static void fill_held(struct annealing *l)
{
    const struct pp_search_problem *j = l->problem;
    for (int r = 0; r < j->graph->n_rows; r++) {
        double held = 0;
        for (int32_t k = j->ops.first_order[r]; k < j->ops.first_order[r + 1];
             k++) {
            int32_t load = j->load[l->order[k]];
            l->held[k] = held;
            held += j->taken[load] - j->freed[load];
        }
    }
}

static bool has_edge(const struct pp_search_problem *j, int32_t from,
                     int32_t to)
{
    for (int32_t i = j->ops.in.first[to]; i < j->ops.in.first[to + 1]; i++)
        if (j->ops.in.op[i] == from)
            return true;
    return false;
}

/* Reports if two ops of a rank, a before b, may change places. */
static bool may_pass(const struct pp_search_problem *j, int32_t a, int32_t b)
{
    if (j->group[a] == j->group[b])
        return false;
    if (j->microbatch[a] != j->microbatch[b])
        return true;
    return pp_problem_stage(j, a) != pp_problem_stage(j, b) &&
           !has_edge(j, a, b);
}

/* Returns the number of places that the op at place k may move in a direction,
 * at most `most`, by order and memory. */
static int32_t reach(const struct annealing *l, int row, int32_t k,
                     int32_t most, bool left)
{
    const struct pp_search_problem *j = l->problem;
    int32_t x = l->order[k], d = 0;
    int32_t lx = j->load[x];
    double room = j->limit ? j->limit[row] + j->slack : INFINITY;
    double change = j->taken[lx] - j->freed[lx];
    for (; d < most; d++) {
        int32_t at = left ? k - d - 1 : k + d + 1;
        if (at < j->ops.first_order[row] || at >= j->ops.first_order[row + 1])
            break;
        int32_t y = l->order[at];
        if (!(left ? may_pass(j, y, x) : may_pass(j, x, y)))
            break;
        /* Going left, y then runs with x's change; going right, without. */
        double held = l->held[at] + (left ? change : -change);
        if (held + j->taken[j->load[y]] > room)
            break;
    }
    return d;
}

/* Reports if the moved op fits in memory at its new place. */
static bool fits_there(const struct annealing *l, int row, struct pp_move m)
{
    const struct pp_search_problem *j = l->problem;
    if (!j->limit)
        return true;
    int32_t lx = j->load[l->order[m.from]];
    double held = l->held[m.to];
    if (m.to > m.from) {
        int32_t ly = j->load[l->order[m.to]];
        held += j->taken[ly] - j->freed[ly] - j->taken[lx] + j->freed[lx];
    }
    return held + j->taken[lx] <= j->limit[row] + j->slack;
}

/* Draws a random move of an op on a longest path. Returns false if none was
 * found. */
static bool propose(struct annealing *l, struct pp_move *m)
{
    const struct pp_search_problem *j = l->problem;
    const struct pp_paths *e = &l->moves.at;
    for (int i = 0; i < TRIES; i++) {
        int32_t k = random_below(l, j->ops.n), op = l->order[k];
        if (e->start[op] + j->ops.time[op] + e->tail[op] < e->worst - l->eps)
            continue;
        uint64_t bits = random_bits(l);
        bool left = bits & 1;
        int32_t most = bits & 2 ? 2 : MAX_SHIFT;
        int row = j->ops.row[op];
        int32_t d = reach(l, row, k, most, left);
        if (d == 0)
            continue;
        d = 1 + random_below(l, d);
        *m = (struct pp_move){k, left ? k - d : k + d};
        if (fits_there(l, row, *m))
            return true;
    }
    return false;
}

/* Returns how many ops it looked at. */
static int32_t keep(struct annealing *l, struct pp_move m)
{
    const struct pp_search_problem *j = l->problem;
    int32_t low = m.from < m.to ? m.from : m.to;
    int32_t high = m.from < m.to ? m.to : m.from;
    double held = l->held[low];
    for (int32_t k = low; k <= high; k++) {
        int32_t load = j->load[l->order[k]];
        l->held[k] = held;
        held += j->taken[load] - j->freed[load];
    }
    int32_t n = pp_moves_keep(&l->moves);
    if (l->moves.at.worst < l->best_worst - l->eps) {
        l->best_worst = l->moves.at.worst;
        memcpy(l->best, l->order, (size_t)j->ops.n * sizeof *l->best);
    }
    return n;
}

/* Tries one move. Returns its cost in visits. */
static double step(struct annealing *l)
{
    struct pp_move m;
    if (!propose(l, &m))
        return 4 * TRIES;
    double bound = l->moves.at.worst - l->heat * log(1 - random_real(l));
    bool good = pp_moves_try(&l->moves, m) <= bound + l->eps;
    double visits = 2 * TRIES + 4 * l->moves.n_window;
    if (good)
        return visits + 2 * keep(l, m) + l->problem->ops.n / 16;
    pp_moves_undo(&l->moves);
    return visits;
}

static double anneal(struct annealing *l)
{
    const struct pp_local_options *o = l->options;
    double done = 0, ratio = log(o->heat[1] / o->heat[0]);
    while (done < o->steps && l->best_worst > o->goal + l->eps) {
        l->heat = l->mean * o->heat[0] * exp(ratio * done / o->steps);
        done += step(l);
    }
    return done;
}

static int init(struct annealing *l, struct pp_err *err)
{
    const struct pp_search_problem *j = l->problem;
    l->best = pp_calloc((size_t)j->ops.n, sizeof *l->best);
    l->held = pp_calloc((size_t)j->ops.n, sizeof *l->held);
    for (int32_t op = 0; op < j->ops.n; op++)
        l->mean += j->ops.time[op] / j->ops.n;
    if (pp_moves_init(&l->moves, j, l->order, err))
        return -1;
    fill_held(l);
    l->eps = 1e-10 * l->moves.at.worst;
    l->best_worst = l->moves.at.worst;
    memcpy(l->best, l->order, (size_t)j->ops.n * sizeof *l->best);
    return 0;
}

int pp_local_search(const struct pp_search_problem *j,
                    const struct pp_local_options *o, int32_t *order,
                    double *worst, double *steps, struct pp_err *err)
{
    struct annealing l = {.problem = j, .options = o, .order = order};
    int rc = init(&l, err);
    if (!rc) {
        *steps = anneal(&l);
        *worst = l.best_worst;
        memcpy(order, l.best, (size_t)j->ops.n * sizeof *order);
    }
    free(l.best);
    free(l.held);
    pp_moves_finish(&l.moves);
    return rc;
}
