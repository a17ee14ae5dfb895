/* SPDX-License-Identifier: MIT */
/* The times of an order that changes move by move are those of the order read
 * anew. */
#include "sched_fixture.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "schedule/search/moves.h"

enum { MOVES = 3000 };

struct walk {
    struct pp_moves moves;
    struct pp_paths anew; /* the order after the move, read anew */
    int32_t *order, *other;
    uint64_t key, n_random;
    int n_kept, n_deadlocks, n_wrong;
};

static int32_t below(struct walk *w, int32_t n)
{
    return (int32_t)(pp_rng_bits(w->key, w->n_random++) % (uint64_t)n);
}

/* Draws a move within a row, short or long. */
static struct pp_move draw(struct walk *w)
{
    const struct pp_search_problem *j = w->moves.problem;
    for (;;) {
        int32_t k = below(w, j->ops.n), most = below(w, 2) ? 2 : 20;
        int32_t d = 1 + below(w, most), to = below(w, 2) ? k - d : k + d;
        int row = j->ops.row[w->order[k]];
        if (to >= j->ops.first_order[row] && to < j->ops.first_order[row + 1])
            return (struct pp_move){k, to};
    }
}

static void move(int32_t *order, struct pp_move m)
{
    int by = m.to < m.from ? -1 : 1;
    for (int32_t k = m.from; k != m.to; k += by) {
        int32_t op = order[k];
        order[k] = order[k + by];
        order[k + by] = op;
    }
}

static bool same(const struct walk *w, const double *a, const double *b)
{
    for (int32_t op = 0; op < w->moves.problem->ops.n; op++)
        if (fabs(a[op] - b[op]) > 1e-9)
            return false;
    return true;
}

/* Reports if all times are those of the order. */
static bool is_right(struct walk *w)
{
    struct pp_paths *e = &w->anew;
    if (!pp_paths_heads(e, w->order))
        return false;
    pp_paths_tails(e);
    return fabs(e->worst - w->moves.at.worst) < 1e-9 &&
           same(w, e->start, w->moves.at.start) &&
           same(w, e->tail, w->moves.at.tail);
}

static void step(struct walk *w, double most)
{
    struct pp_move m = draw(w);
    size_t bytes = (size_t)w->moves.problem->ops.n * sizeof *w->order;
    double before = w->moves.at.worst;
    memcpy(w->other, w->order, bytes);
    move(w->other, m);
    bool runs = pp_paths_heads(&w->anew, w->other);
    double worst = w->anew.worst, longest = pp_moves_try(&w->moves, m);
    w->n_deadlocks += !runs;
    w->n_wrong +=
        runs ? longest > worst + 1e-9 || worst > fmax(longest, before) + 1e-9
             : longest < INFINITY;
    w->n_wrong += memcmp(w->other, w->order, bytes) != 0;
    if (runs && longest <= most) {
        w->n_kept++;
        pp_moves_keep(&w->moves);
    } else {
        pp_moves_undo(&w->moves);
    }
    w->n_wrong += !is_right(w);
}

static void test_walk(int p, int c, enum pp_placement placement, int m,
                      struct pp_literal_costs literal)
{
    struct fixture f;
    struct pp_search_problem j = {0};
    struct walk w = {.key = pp_rng_key(1, "moves")};
    chain(&f, p, c, placement);
    literal.graph = &f.graph;
    literal.textbook = true;
    struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
    pp_schedule_init(&f.s, &f.graph, "moves", m);
    if (!pp_search_problem_init(&j, &f.s, PP_BACKWARD_HALVES, &costs, NULL,
                                NULL, &f.err) &&
        (pp_paths_init(&w.anew, &j.ops), true)) {
        w.order = calloc((size_t)j.ops.n, sizeof *w.order);
        w.other = calloc((size_t)j.ops.n, sizeof *w.other);
        if (w.order && w.other) {
            pp_row_order_serial(&j, w.order);
            j.ops.late[p - 1] = -1;
            if (!pp_moves_init(&w.moves, &j, w.order, &f.err))
                for (int i = 0; i < MOVES; i++)
                    step(&w, w.moves.at.worst + i % 4);
        }
    }
    ok(w.n_kept > MOVES / 20 && w.n_deadlocks > 0 && w.n_wrong == 0,
       "p=%d c=%d m=%d: %d moves are kept, %d deadlock, %d are wrong", p, c, m,
       w.n_kept, w.n_deadlocks, w.n_wrong);
    free(w.order);
    free(w.other);
    pp_moves_finish(&w.moves);
    pp_paths_finish(&w.anew);
    pp_search_problem_finish(&j);
    pp_schedule_finish(&f.s);
    drop(&f);
}

int main(void)
{
    test_walk(4, 2, PP_PLACEMENT_V, 8,
              (struct pp_literal_costs){.f = 5, .i = 5, .w = 4});
    test_walk(4, 1, PP_PLACEMENT_LOOP, 8,
              (struct pp_literal_costs){.f = 1, .i = 1, .w = 1, .comm = 0.5});
    /* Ops without time and without messages: many paths are equal. */
    test_walk(3, 2, PP_PLACEMENT_LOOP, 6,
              (struct pp_literal_costs){.f = 1, .i = 1, .w = 0});
    return done();
}
