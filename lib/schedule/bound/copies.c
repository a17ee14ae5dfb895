/* SPDX-License-Identifier: MIT */
/* The bound for copies of the weights: of ranks that share the work of the same
 * stages. bound.h has the proof. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/bound/parts.h"

/* Ranks that hold copies of the same stages, and no others do. */
struct sharers {
    int *set;    /* per rank: the least rank of its set */
    int *stages; /* of the first copy, on ranks of the set */
    int n_stages, n_ranks;
    bool whole; /* each copy has all of them on one rank */
};

static int find_set(const int *set, int row)
{
    while (set[row] != row)
        row = set[row];
    return row;
}

/* Joins the ranks of all copies of each stage. */
static void join_ranks(const struct pp_graph *g, int *set)
{
    for (int r = 0; r < g->n_rows; r++)
        set[r] = r;
    for (int s = 0; s < g->n_stages; s++) {
        int a = find_set(set, g->stages[s].row);
        int b = find_set(set, g->stages[pp_original(g, s)].row);
        set[a > b ? a : b] = a > b ? b : a;
    }
    for (int r = 0; r < g->n_rows; r++)
        set[r] = find_set(set, r);
}

/* Fills the rest for one set. */
static void find_shared(const struct pp_graph *g, int set, struct sharers *x)
{
    int n = g->n_stages / g->n_copies;
    x->n_stages = x->n_ranks = 0;
    x->whole = true;
    for (int r = 0; r < g->n_rows; r++)
        x->n_ranks += x->set[r] == set;
    for (int s = 0; s < n; s++)
        if (x->set[g->stages[s].row] == set)
            x->stages[x->n_stages++] = s;
    for (int i = 1; i < x->n_stages; i++)
        for (int c = 0; c < g->n_copies; c++)
            x->whole &= g->stages[x->stages[i] + c * n].row ==
                        g->stages[x->stages[0] + c * n].row;
}

/* Returns the time of microbatch k on a stage, on its cheapest copy. */
static double least_work(const struct pp_bound_case *c, int stage, size_t k)
{
    double least = INFINITY;
    for (int s = stage; s < c->g->n_stages;
         s += c->g->n_stages / c->g->n_copies) {
        size_t at = (size_t)s * c->n + k;
        least = pp_bound_least(least, c->times[PP_BOUND_F][at] +
                                          c->times[PP_BOUND_I][at] +
                                          c->times[PP_BOUND_W][at]);
    }
    return least;
}

/* Returns the work of a set, divided evenly, and the least head and tail. */
static double divide_work(const struct pp_bound_case *c,
                          const struct sharers *x, int set)
{
    double work = 0, ends = INFINITY;
    for (int r = 0; r < c->g->n_rows; r++)
        if (x->set[r] == set)
            ends = pp_bound_least(ends, c->row_head[r] + c->row_tail[r]);
    for (int i = 0; i < x->n_stages; i++)
        for (size_t k = 0; k < c->n; k++)
            work += least_work(c, x->stages[i], k);
    return work / x->n_ranks + ends;
}

/* Returns the most time that a rank still works after its last forward, within
 * a limit: of x microbatches whose I has not run, the last one among them, and
 * of y that lack W alone. */
static double work_left(const double *time, struct pp_load l, double limit,
                        size_t most)
{
    double held = pp_bound_held(l), kept = l.f_to_w + l.i_to_w, left = 0;
    for (size_t x = 1; x <= most; x++) {
        double y = 0;
        if (time[PP_BOUND_W] > 0)
            y = kept > 0 ? floor((limit - (double)x * held) / kept) : INFINITY;
        pp_bound_raise(&left,
                       (double)x * (time[PP_BOUND_I] + time[PP_BOUND_W]) +
                           y * time[PP_BOUND_W]);
    }
    return left;
}

/* Returns the bound for a rank that runs n microbatches of a stage within the
 * largest limit of its set; 0: memory does not bind. */
static double bound_room(const struct pp_bound_case *c, const struct sharers *x,
                         int set, size_t n)
{
    int stage = x->stages[0];
    const struct pp_bound_stage *s = &c->stages[stage];
    double limit = 0, head = INFINITY, tail = INFINITY;
    double work =
        s->time[PP_BOUND_F] + s->time[PP_BOUND_I] + s->time[PP_BOUND_W];
    for (int r = 0; r < c->g->n_rows; r++)
        if (x->set[r] == set)
            pp_bound_raise(&limit, c->limit[r] * (1 + 1e-9));
    double held = pp_bound_held(s->load);
    if (held <= 0 || limit >= held * (double)n)
        return 0;
    size_t most = (size_t)(limit / held);
    for (int at = stage; at < c->g->n_stages;
         at += c->g->n_stages / c->g->n_copies) {
        const struct pp_bound_stage *other = &c->stages[at];
        size_t k = (size_t)at * c->n;
        if (memcmp(other->time, s->time, sizeof s->time) != 0)
            return 0;
        head = pp_bound_least(head, c->head[PP_BOUND_I][k]);
        tail = pp_bound_least(tail, c->tail[PP_BOUND_F][k + c->n - 1]);
    }
    return head + (double)n * work - (double)most * s->time[PP_BOUND_F] -
           work_left(s->time, s->load, limit, most) + tail;
}

double pp_bound_copies(const struct pp_bound_case *c)
{
    const struct pp_graph *g = c->g;
    size_t rows = (size_t)g->n_rows;
    double bound = 0;
    struct sharers x = {.set = pp_calloc(rows, sizeof *x.set)};
    x.stages = pp_calloc((size_t)g->n_stages, sizeof *x.stages);
    join_ranks(g, x.set);
    for (int r = 0; r < g->n_rows; r++) {
        if (x.set[r] == r)
            find_shared(g, r, &x);
        if (x.set[r] != r || x.n_stages == 0)
            continue;
        size_t n = (c->n + (size_t)x.n_ranks - 1) / (size_t)x.n_ranks;
        pp_bound_raise(&bound, divide_work(c, &x, r));
        if (!c->uniform || !x.whole)
            continue;
        pp_bound_raise(&bound, pp_bound_shared(c, x.stages, x.n_stages, n));
        if (c->limit && x.n_stages == 1)
            pp_bound_raise(&bound, bound_room(c, &x, r, n));
    }
    free(x.set);
    free(x.stages);
    return bound;
}
