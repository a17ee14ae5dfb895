/* SPDX-License-Identifier: MIT */
/* Annealing of single moves. A move is estimated first, and an order is
 * evaluated only if the estimate is accepted. */
#include "schedule/search/search_methods.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "schedule/search/search_problem.h"

enum { MAX_SHIFT = 24, TRIES = 32 };

/* An op taken from one place of its row and put in another. The ops between
 * move by one. */
struct op_move {
    int32_t from, to;
};

struct annealing {
    const struct pp_search_problem *problem;
    const struct pp_local_options *options;
    struct pp_eval now, next; /* the current order, and the one being tried */
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
        for (int32_t k = j->first_order[r]; k < j->first_order[r + 1]; k++) {
            int group = j->group[l->order[k]];
            l->held[k] = held;
            held += j->taken[group] - j->freed[group];
        }
    }
}

static bool has_edge(const struct pp_search_problem *j, int32_t from,
                     int32_t to)
{
    for (int32_t i = j->first_in[to]; i < j->first_in[to + 1]; i++)
        if (j->in[i].op == from)
            return true;
    return false;
}

/* Reports if two ops of a rank, a before b, may change places. */
static bool may_pass(const struct pp_search_problem *j, int32_t a, int32_t b)
{
    if (j->group[a] == j->group[b])
        return false;
    if (a % j->n_microbatches != b % j->n_microbatches)
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
    int gx = j->group[x];
    double room = j->limit ? j->limit[row] + j->slack : INFINITY;
    double change = j->taken[gx] - j->freed[gx];
    for (; d < most; d++) {
        int32_t at = left ? k - d - 1 : k + d + 1;
        if (at < j->first_order[row] || at >= j->first_order[row + 1])
            break;
        int32_t y = l->order[at];
        if (!(left ? may_pass(j, y, x) : may_pass(j, x, y)))
            break;
        /* Going left, y then runs with x's change; going right, without. */
        double held = l->held[at] + (left ? change : -change);
        if (held + j->taken[j->group[y]] > room)
            break;
    }
    return d;
}

/* Reports if the moved op fits in memory at its new place. */
static bool fits_there(const struct annealing *l, int row, struct op_move m)
{
    const struct pp_search_problem *j = l->problem;
    if (!j->limit)
        return true;
    int gx = j->group[l->order[m.from]];
    double held = l->held[m.to];
    if (m.to > m.from) {
        int gy = j->group[l->order[m.to]];
        held += j->taken[gy] - j->freed[gy] - j->taken[gx] + j->freed[gx];
    }
    return held + j->taken[gx] <= j->limit[row] + j->slack;
}

static double ready_at(const struct pp_eval *e, int32_t op)
{
    const struct pp_search_problem *j = e->problem;
    double ready = 0;
    for (int32_t i = j->first_in[op]; i < j->first_in[op + 1]; i++) {
        int32_t from = j->in[i].op;
        double t = e->start[from] + j->time[from] + j->in[i].lag;
        ready = t > ready ? t : ready;
    }
    return ready;
}

static double tail_of(const struct pp_eval *e, int32_t op)
{
    const struct pp_search_problem *j = e->problem;
    double tail = 0;
    for (int32_t i = j->first_out[op]; i < j->first_out[op + 1]; i++) {
        int32_t to = j->out[i].op;
        double t = j->out[i].lag + j->time[to] + e->tail[to];
        tail = t > tail ? t : tail;
    }
    return tail;
}

/* Returns the longest path through the ops that the move shifts, if the rest of
 * the schedule stays as it is. */
static double estimate(const struct annealing *l, int row, struct op_move m)
{
    const struct pp_search_problem *j = l->problem;
    int32_t low = m.from < m.to ? m.from : m.to;
    int32_t n = (m.from < m.to ? m.to - m.from : m.from - m.to) + 1;
    int32_t ops[MAX_SHIFT + 1];
    double start[MAX_SHIFT + 1], longest = 0;
    double clock = 0, tail = j->late[row];
    bool left = m.to < m.from;
    for (int32_t k = 0; k < n - 1; k++)
        ops[left ? k + 1 : k] = l->order[left ? low + k : low + k + 1];
    ops[left ? 0 : n - 1] = l->order[m.from];
    if (low > j->first_order[row]) {
        int32_t before = l->order[low - 1];
        clock = l->now.start[before] + j->time[before];
    }
    if (low + n < j->first_order[row + 1]) {
        int32_t after = l->order[low + n];
        tail = j->time[after] + l->now.tail[after];
    }
    for (int32_t k = 0; k < n; k++) {
        double ready = ready_at(&l->now, ops[k]);
        start[k] = ready > clock ? ready : clock;
        clock = start[k] + j->time[ops[k]];
    }
    for (int32_t k = n - 1; k >= 0; k--) {
        double after = tail_of(&l->now, ops[k]);
        tail = after > tail ? after : tail;
        double path = start[k] + j->time[ops[k]] + tail;
        longest = path > longest ? path : longest;
        tail += j->time[ops[k]];
    }
    return longest;
}

static void shift(int32_t *order, struct op_move m)
{
    int32_t op = order[m.from];
    if (m.to < m.from)
        memmove(order + m.to + 1, order + m.to,
                (size_t)(m.from - m.to) * sizeof *order);
    else
        memmove(order + m.from, order + m.from + 1,
                (size_t)(m.to - m.from) * sizeof *order);
    order[m.to] = op;
}

/* Draws a random move of an op on a longest path. Returns false if none was
 * found. */
static bool propose(struct annealing *l, struct op_move *m, int *row)
{
    const struct pp_search_problem *j = l->problem;
    const struct pp_eval *e = &l->now;
    for (int i = 0; i < TRIES; i++) {
        int32_t k = random_below(l, j->n_ops), op = l->order[k];
        if (e->start[op] + j->time[op] + e->tail[op] < e->worst - l->eps)
            continue;
        uint64_t bits = random_bits(l);
        bool left = bits & 1;
        int32_t most = bits & 2 ? 2 : MAX_SHIFT;
        *row = j->row[j->group[op]];
        int32_t d = reach(l, *row, k, most, left);
        if (d == 0)
            continue;
        d = 1 + random_below(l, d);
        *m = (struct op_move){k, left ? k - d : k + d};
        if (fits_there(l, *row, *m))
            return true;
    }
    return false;
}

static void keep(struct annealing *l, struct op_move m)
{
    const struct pp_search_problem *j = l->problem;
    int32_t low = m.from < m.to ? m.from : m.to;
    int32_t high = m.from < m.to ? m.to : m.from;
    struct pp_eval other = l->now;
    double held = l->held[low];
    l->now = l->next;
    l->next = other;
    for (int32_t k = low; k <= high; k++) {
        int group = j->group[l->order[k]];
        l->held[k] = held;
        held += j->taken[group] - j->freed[group];
    }
    pp_eval_tails(&l->now);
    if (l->now.worst < l->best_worst - l->eps) {
        l->best_worst = l->now.worst;
        memcpy(l->best, l->order, (size_t)j->n_ops * sizeof *l->best);
    }
}

/* Tries one move. Returns its cost in visits. */
static double step(struct annealing *l)
{
    const struct pp_search_problem *j = l->problem;
    struct op_move m;
    int row;
    if (!propose(l, &m, &row))
        return 4 * TRIES;
    double bound = l->now.worst - l->heat * log(1 - random_real(l));
    if (estimate(l, row, m) > bound + l->eps)
        return 2 * MAX_SHIFT;
    shift(l->order, m);
    if (pp_eval_heads(&l->next, l->order) && l->next.worst <= bound + l->eps) {
        keep(l, m);
        return 2.0 * j->n_ops;
    }
    shift(l->order, (struct op_move){m.to, m.from});
    return j->n_ops;
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
    if (pp_eval_init(&l->now, j, err) || pp_eval_init(&l->next, j, err))
        return -1;
    l->best = calloc((size_t)j->n_ops, sizeof *l->best);
    l->held = calloc((size_t)j->n_ops, sizeof *l->held);
    if (!l->best || !l->held)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int32_t op = 0; op < j->n_ops; op++)
        l->mean += j->time[op] / j->n_ops;
    if (!pp_eval_heads(&l->now, l->order))
        return pp_fail(err, PP_EXIT_NO, "this order deadlocks");
    pp_eval_tails(&l->now);
    fill_held(l);
    l->eps = 1e-10 * l->now.worst;
    l->best_worst = l->now.worst;
    memcpy(l->best, l->order, (size_t)j->n_ops * sizeof *l->best);
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
        memcpy(order, l.best, (size_t)j->n_ops * sizeof *order);
    }
    free(l.best);
    free(l.held);
    pp_eval_finish(&l.now);
    pp_eval_finish(&l.next);
    return rc;
}
