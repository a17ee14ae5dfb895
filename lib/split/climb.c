/* SPDX-License-Identifier: MIT */
#include "split/climb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"

/* Cuts of one climb: some milliseconds for each move. */
enum { MAX_CUTS = 256 };

/* Climbs from random neighbours of a partition that no move improves: their
 * number, with a limit of memory and without one, and the draws for them. */
enum { N_KICKS = 16, N_FREE_KICKS = 64, MAX_DRAWS = 500 };

/* They are made again if a climb uses more memory by this share, and so many
 * times if only they use it. */
static const double APART = 1.0 / 48;
enum { MAX_IDLE = 3 };

/* --- moves --- */

static bool is_legal(const struct pp_cuts *x, const size_t *bounds,
                     struct pp_boundary_move m)
{
    size_t loser = m.by > 0 ? m.last : m.first - 1;
    const struct pp_split_step *p = x->problem;
    for (size_t i = 0; i < p->n_fixed; i++)
        if (p->fixed[i].stage >= m.first && p->fixed[i].stage <= m.last)
            return false;
    return bounds[loser + 1] - bounds[loser] > 1;
}

/* Goes to the next move in the order of first, last and by. */
static struct pp_boundary_move after(struct pp_boundary_move m, size_t n_stages)
{
    if (m.first == 0)
        return (struct pp_boundary_move){1, 1, -1};
    if (m.by < 0)
        return (struct pp_boundary_move){m.first, m.last, 1};
    if (m.last + 1 < n_stages)
        return (struct pp_boundary_move){m.first, m.last + 1, -1};
    return (struct pp_boundary_move){m.first + 1, m.first + 1, -1};
}

bool pp_move_next(const struct pp_cuts *x, const size_t *bounds,
                  struct pp_boundary_move *m)
{
    do
        *m = after(*m, x->n_stages);
    while (m->first < x->n_stages && !is_legal(x, bounds, *m));
    return m->first < x->n_stages;
}

bool pp_move_relieves(const struct pp_cuts *x, struct pp_boundary_move m,
                      int rank)
{
    const struct pp_graph *g = x->problem->makespan->graph;
    size_t loser = m.by > 0 ? m.last : m.first - 1;
    for (int s = (int)loser; s < g->n_stages; s += (int)x->n_stages)
        if (g->stages[s].row == rank)
            return true;
    return false;
}

void pp_move_randomly(const struct pp_cuts *x, size_t *bounds, uint64_t *draw)
{
    size_t n = x->n_stages;
    size_t from = (size_t)((double)n * pp_rng_uniform(0, (*draw)++));
    size_t to = (size_t)((double)n * pp_rng_uniform(0, (*draw)++));
    struct pp_boundary_move m =
        from < to ? (struct pp_boundary_move){from + 1, to, -1}
                  : (struct pp_boundary_move){to + 1, from, 1};
    if (from == to || !is_legal(x, bounds, m))
        return;
    for (size_t b = m.first; b <= m.last; b++)
        bounds[b] = m.by > 0 ? bounds[b] + 1 : bounds[b] - 1;
}

/* Returns the change of a cut's cost if only boundary b moves. */
static double change_of(const struct pp_cuts *x, size_t cut,
                        const size_t *bounds, size_t b, int by)
{
    const double *before = pp_cut_weights(x, cut, b - 1);
    const double *behind = pp_cut_weights(x, cut, b);
    size_t from = bounds[b], to = by > 0 ? from + 1 : from - 1;
    size_t unit = by > 0 ? from : to;
    double moved = pp_cut_sum(x, before, unit, unit + 1) -
                   pp_cut_sum(x, behind, unit, unit + 1);
    double message = x->message[to - 1] - x->message[from - 1];
    return by * moved + before[x->width] * message;
}

/* Fills cost, change and order for the present partition. No legal move shifts
 * a boundary below unit 1, so that change is not computed. */
static void weigh_moves(struct pp_climb *z)
{
    const struct pp_cuts *x = &z->cuts;
    size_t n = x->n_stages;
    z->work += x->n * n * (x->width + 1);
    for (size_t c = 0; c < x->n; c++) {
        double *up = &z->change[2 * n * c], *down = up + n;
        z->cost[c] = pp_cut_cost(x, c, z->at);
        up[0] = down[0] = 0;
        for (size_t b = 1; b < n; b++) {
            up[b] = up[b - 1] + change_of(x, c, z->at, b, 1);
            down[b] = down[b - 1];
            if (z->at[b] > 1)
                down[b] += change_of(x, c, z->at, b, -1);
        }
        size_t at = c;
        for (; at > 0 && z->cost[z->order[at - 1]] < z->cost[c]; at--)
            z->order[at] = z->order[at - 1];
        z->order[at] = c;
    }
}

/* Returns the cuts' lower bound for the partition after a move; infinite if it
 * is not better than least. */
static double move_bound(struct pp_climb *z, struct pp_boundary_move m,
                         double least)
{
    size_t n = z->cuts.n_stages;
    double most = 0;
    for (size_t i = 0; i < z->cuts.n; i++) {
        size_t c = z->order[i];
        const double *change = &z->change[2 * n * c + (m.by > 0 ? 0 : n)];
        z->work++;
        double cost = z->cost[c] + change[m.last] - change[m.first - 1];
        if (!pp_cuts_less(cost, least))
            return INFINITY;
        most = cost > most ? cost : most;
    }
    return most;
}

/* --- memory --- */

/* Returns how far the rank that is most over its limit is over it, or, if all
 * fit, minus the least room. Rounding errors do not count. */
static double bytes_over(const struct pp_climb *z, const size_t *bounds)
{
    const struct pp_split_step *p = z->cuts.problem;
    double most = -INFINITY;
    for (int r = 0; p->memory && r < p->memory->graph->n_rows; r++) {
        double need = pp_split_memory_need(p->memory, bounds, r);
        double over = pp_split_memory_over(need, p->limit[r])
                          ? need - p->limit[r]
                          : fmin(need - p->limit[r], 0);
        most = fmax(most, over);
    }
    return most;
}

/* Returns the bytes over the limit after a move, or any number above most if
 * that is less. Neighbours often exceed it on the same rank. */
static double move_over(struct pp_climb *z, struct pp_boundary_move m,
                        double most)
{
    int ranks = z->cuts.problem->memory->graph->n_rows, first = z->fullest;
    size_t before = z->nearby.n_sums;
    double over = -INFINITY;
    for (int i = 0; i < ranks && over <= most; i++) {
        int r = (first + i) % ranks;
        double bytes = pp_nearby_over(&z->nearby, r, m);
        z->work++;
        if (bytes <= over)
            continue;
        over = bytes;
        z->fullest = r;
    }
    z->work += (z->nearby.n_sums - before) * z->rank_work;
    return over;
}

/* --- a climb --- */

/* The state of a climb. */
struct course {
    double level;  /* bytes over the limit that it may use */
    size_t end;    /* of its work */
    uint64_t draw; /* random numbers so far */
};

/* Makes room for a cut: the older half gives way. */
static void limit_cuts(struct pp_cuts *x)
{
    size_t half = MAX_CUTS / 2, size = x->n_stages * (x->width + 1);
    if (x->n < MAX_CUTS)
        return;
    memmove(x->weights, &x->weights[half * size],
            (x->n - half) * size * sizeof *x->weights);
    x->n -= half;
}

static double simulate(struct pp_climb *z, const size_t *bounds)
{
    limit_cuts(&z->cuts);
    z->work += z->cuts.problem->makespan->n_pieces;
    return pp_cuts_simulate(&z->cuts, bounds);
}

static void go_to(struct pp_climb *z, const size_t *bounds, double makespan)
{
    memmove(z->at, bounds, (z->cuts.n_stages + 1) * sizeof *z->at);
    z->at_makespan = makespan;
    if (z->cuts.problem->memory)
        pp_nearby_set(&z->nearby, z->at);
}

/* Makes the present partition the best if it is, and fits. */
static void keep_best(struct pp_climb *z)
{
    if (!pp_cuts_less(z->at_makespan, z->makespan) ||
        !pp_cuts_fits(&z->cuts, z->at))
        return;
    z->makespan = z->at_makespan;
    memcpy(z->best, z->at, (z->cuts.n_stages + 1) * sizeof *z->best);
}

/* Returns the legal move that may help and needs no more than level, or else
 * the least more; among these the one with the least bound. Sets *need to the
 * larger of its need and the level. first is 0, and *need infinite, if no move
 * can help. */
static struct pp_boundary_move next_move(struct pp_climb *z, double level,
                                         double *need)
{
    bool limited = z->cuts.problem->memory;
    struct pp_boundary_move best = {0};
    double least = z->at_makespan;
    *need = INFINITY;
    for (struct pp_boundary_move m = {0}; pp_move_next(&z->cuts, z->at, &m);) {
        /* A move that needs less may have a larger bound. */
        bool cheap = *need <= level;
        double cost = move_bound(z, m, cheap ? least : z->at_makespan);
        if (isinf(cost))
            continue;
        double over = limited ? fmax(move_over(z, m, *need), level) : level;
        if (over > *need || (over == *need && cost >= least))
            continue;
        *need = over;
        least = cost;
        best = m;
    }
    return best;
}

/* Climbs while a move at the level helps. Returns the move that helps with the
 * least memory above the level, and sets *need to that. Every simulation adds a
 * cut that bounds the simulated partition exactly, so no move is simulated
 * twice from the same partition. */
static struct pp_boundary_move settle(struct pp_climb *z,
                                      const struct course *c, double *need)
{
    struct pp_boundary_move next;
    do {
        weigh_moves(z);
        next = next_move(z, c->level, need);
        if (next.first == 0 || *need > c->level)
            break;
        pp_move_apply(z->cuts.n_stages, z->at, next, z->trial);
        double time = simulate(z, z->trial);
        if (pp_cuts_less(time, z->at_makespan))
            go_to(z, z->trial, time);
    } while (z->work < c->end);
    keep_best(z);
    return next;
}

/* Sets trial to a random neighbour of home. Returns false if it needs more than
 * the level. */
static bool draw_neighbour(struct pp_climb *z, struct course *c, int n_moves)
{
    const struct pp_split_step *p = z->cuts.problem;
    memcpy(z->trial, z->home, (z->cuts.n_stages + 1) * sizeof *z->trial);
    for (int i = 0; i < n_moves; i++)
        pp_move_randomly(&z->cuts, z->trial, &c->draw);
    for (int r = 0; p->memory && r < p->memory->graph->n_rows; r++) {
        z->work += z->rank_work;
        if (pp_split_memory_need(p->memory, z->trial, r) - p->limit[r] >
            c->level)
            return false;
    }
    return true;
}

/* Climbs from random neighbours, with no more memory than the level, and goes
 * to the best partition. Returns true if that is another one. */
static bool kick(struct pp_climb *z, struct course *c)
{
    size_t bytes = (z->cuts.n_stages + 1) * sizeof *z->home;
    int most = z->cuts.problem->memory ? N_KICKS : N_FREE_KICKS;
    double home = z->at_makespan, need;
    bool better = false;
    memcpy(z->home, z->at, bytes);
    for (int i = 0, n = 0; i < MAX_DRAWS && n < most && z->work < c->end; i++) {
        if (!draw_neighbour(z, c, 2 + i % 3))
            continue;
        n++;
        go_to(z, z->trial, simulate(z, z->trial));
        settle(z, c, &need);
        if (!pp_cuts_less(z->at_makespan, home))
            continue;
        memcpy(z->home, z->at, bytes);
        home = z->at_makespan;
        better = true;
    }
    go_to(z, z->home, home);
    return better;
}

void pp_climb_from(struct pp_climb *z, const size_t *start, size_t work)
{
    const struct pp_split_step *p = z->cuts.problem;
    struct course c = {bytes_over(z, start), z->work + work, 0};
    double mark = c.level, need = 0;
    int idle = 0;
    if (c.level > 0)
        return;
    z->cuts.n = 0;
    go_to(z, start, simulate(z, start));
    keep_best(z);
    while (c.level <= 0) {
        struct pp_boundary_move next = settle(z, &c, &need);
        if (z->work >= c.end)
            return;
        if (need > mark) {
            if (kick(z, &c)) {
                idle = 0;
                continue;
            }
            mark = p->memory ? c.level + (c.level + p->limit[0]) * APART : mark;
        }
        if (next.first == 0 && (!p->memory || ++idle > MAX_IDLE))
            return;
        c.level = next.first ? need : mark;
    }
}

void pp_climb_init(struct pp_climb *z, const struct pp_split_step *p,
                   size_t most)
{
    *z = (struct pp_climb){.makespan = INFINITY};
    pp_cuts_init(&z->cuts, p, MAX_CUTS + most);
    z->cuts.most = MAX_CUTS; /* generation raises it */
    size_t n = z->cuts.n_stages;
    if (p->memory) {
        z->rank_work = p->memory->n_counts / (size_t)p->memory->graph->n_rows;
        pp_nearby_init(&z->nearby, p);
    }
    z->best = pp_calloc(n + 1, sizeof *z->best);
    z->at = pp_calloc(n + 1, sizeof *z->at);
    z->home = pp_calloc(n + 1, sizeof *z->home);
    z->trial = pp_calloc(n + 1, sizeof *z->trial);
    z->cost = pp_calloc(MAX_CUTS, sizeof *z->cost);
    z->change =
        pp_calloc(MAX_CUTS > n ? MAX_CUTS : n, 2 * n * sizeof *z->change);
    z->order = pp_calloc(MAX_CUTS, sizeof *z->order);
}

void pp_climb_finish(struct pp_climb *z)
{
    free(z->best);
    free(z->at);
    free(z->home);
    free(z->trial);
    free(z->cost);
    free(z->change);
    free(z->order);
    pp_nearby_finish(&z->nearby);
    pp_cuts_finish(&z->cuts);
}
