/* SPDX-License-Identifier: MIT */
#include "sched/vblock.h"

#include <stdlib.h>

#include "base/num.h"
#include "sched/kinds.h"

/* What a slot holds: nothing, a weight gradient (which, is settled at the
 * end), or one of the four of a microbatch. */
enum { FREE = -1, WEIGHT = -2 };
enum { F_DOWN, F_UP, I_UP, I_DOWN };

/* A rank's slots. All arrays have `length` entries. */
struct line {
    int *slot;
    int *alive; /* forwards less weight gradients up to and with the slot */
    int *owed;  /* input gradients less weight gradients, the same */
    int *input; /* slots of the input gradients seen so far, ascending */
    int n_inputs;
    int n_weights, last_weight; /* weight gradients seen so far */
};

struct table {
    int p, m, length;
    int limit; /* what may be alive on a rank */
    struct line *lines;
    int *at; /* [rank][of four][microbatch]: its slot */
};

static int *place_of(const struct table *t, int rank, int op, int microbatch)
{
    size_t row = (size_t)rank * PP_VBLOCK_OPS + (size_t)op;
    return &t->at[row * (size_t)t->m + (size_t)microbatch];
}

static int encode(int op, int microbatch)
{
    return microbatch * PP_VBLOCK_OPS + op;
}

static bool is_op(int content, int op)
{
    return content >= 0 && content % PP_VBLOCK_OPS == op;
}

static bool is_forward(int content)
{
    return is_op(content, F_DOWN) || is_op(content, F_UP);
}

static bool is_input(int content)
{
    return is_op(content, I_UP) || is_op(content, I_DOWN);
}

static int table_init(struct table *t, struct pp_arena *a,
                      const struct pp_vblock *blocks, int p, int m,
                      struct pp_err *err)
{
    size_t ops;
    int last = 0;
    for (int r = 0; r < p; r++)
        if (blocks[r].slot[I_DOWN] > last)
            last = blocks[r].slot[I_DOWN];
    /* The blocks, and all weight gradients after them. */
    int64_t length = last + (int64_t)m * (PP_VBLOCK_PERIOD + 2) + 1;
    if (length > INT32_MAX / PP_VBLOCK_OPS ||
        pp_mul((size_t)p * PP_VBLOCK_OPS, (size_t)m, &ops, err))
        return pp_fail(err, PP_EXIT_INPUT, "-m '%d' is too large", m);
    *t = (struct table){.p = p, .m = m, .length = (int)length};
    t->lines = pp_arena_alloc(a, (size_t)p, sizeof *t->lines);
    t->at = pp_arena_alloc(a, ops, sizeof *t->at);
    for (int r = 0; t->lines && r < p; r++) {
        struct line *l = &t->lines[r];
        size_t n = (size_t)t->length;
        l->slot = pp_arena_alloc(a, n, sizeof *l->slot);
        l->alive = pp_arena_alloc(a, n, sizeof *l->alive);
        l->owed = pp_arena_alloc(a, n, sizeof *l->owed);
        l->input = pp_arena_alloc(a, 2 * (size_t)m, sizeof *l->input);
        if (!l->slot || !l->alive || !l->owed || !l->input)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    return t->lines && t->at ? 0
                             : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

static void repeat_blocks(struct table *t, const struct pp_vblock *blocks)
{
    for (int r = 0; r < t->p; r++) {
        for (int i = 0; i < t->length; i++)
            t->lines[r].slot[i] = FREE;
        for (int op = 0; op < PP_VBLOCK_OPS; op++)
            for (int m = 0; m < t->m; m++) {
                int at = blocks[r].slot[op] + m * PP_VBLOCK_PERIOD;
                *place_of(t, r, op, m) = at;
                t->lines[r].slot[at] = encode(op, m);
            }
    }
}

/* A weight gradient in every free slot that can have one. */
static void put_weights(struct table *t)
{
    for (int r = 0; r < t->p; r++) {
        struct line *l = &t->lines[r];
        int owed = 0;
        for (int i = 0; i < t->length; i++) {
            if (l->slot[i] == FREE && owed > 0) {
                l->slot[i] = WEIGHT;
                owed--;
            }
            owed += is_input(l->slot[i]);
        }
    }
}

static void drop_weights(struct table *t)
{
    for (int r = 0; r < t->p; r++)
        for (int i = 0; i < t->length; i++)
            if (t->lines[r].slot[i] == WEIGHT)
                t->lines[r].slot[i] = FREE;
}

/* Counts what is alive and owed from slot `from` on, a free slot being a weight
 * gradient's where one is owed. Stops where nothing more can have changed:
 * where it finds what it counted before, from slot `sure` on. Returns the most
 * that was alive. */
static int count(const struct table *t, struct line *l, int from, int sure)
{
    int alive = from > 0 ? l->alive[from - 1] : 0, most = 0;
    int owed = from > 0 ? l->owed[from - 1] : 0;
    for (int i = from; i < t->length; i++) {
        int c = l->slot[i];
        bool weight = c == WEIGHT || (c == FREE && owed > 0);
        alive += is_forward(c) - weight;
        owed += is_input(c) - weight;
        most = alive > most ? alive : most;
        if (i >= sure && l->alive[i] == alive && l->owed[i] == owed)
            break;
        l->alive[i] = alive;
        l->owed[i] = owed;
    }
    return most;
}

static void count_all(struct table *t)
{
    t->limit = 0;
    for (int r = 0; r < t->p; r++) {
        int most = count(t, &t->lines[r], 0, t->length);
        t->limit = most > t->limit ? most : t->limit;
    }
}

static int later(int a, int b)
{
    return a > b ? a : b;
}

/* The first slot after all that one of the four waits for, its predecessor of
 * the same sort among them. */
static int earliest(const struct table *t, int rank, int op, int m)
{
    int from = rank + (op == F_DOWN || op == I_UP ? -1 : 1), at = -1;
    if (from >= 0 && from < t->p)
        at = later(at, *place_of(t, from, op, m));
    if (op > F_DOWN)
        at = later(at, *place_of(t, rank, op - 1, m));
    if (m > 0)
        at = later(at, *place_of(t, rank, op, m - 1));
    return at + 1;
}

/* Whether slot i may still be moved: the steady middle, from the first input
 * gradient at the head of the pipeline to its last forward, stays. */
struct ends {
    int warm_up, cool_down; /* the last slots of the first, of the middle */
};

static struct ends find_ends(const struct table *t)
{
    return (struct ends){*place_of(t, 0, I_DOWN, 0) - 1,
                         *place_of(t, 0, F_DOWN, t->m - 1)};
}

static bool is_cool_down(const struct ends *e, int i, int rank)
{
    return i > e->warm_up &&
           (i > e->cool_down || (i == e->cool_down && rank > 0));
}

static void move(struct table *t, int rank, int from, int to)
{
    struct line *l = &t->lines[rank];
    int c = l->slot[from];
    l->slot[from] = FREE;
    l->slot[to] = c;
    if (c >= 0)
        *place_of(t, rank, c % PP_VBLOCK_OPS, c / PP_VBLOCK_OPS) = to;
}

/* The first free slot from `least` on into which what is in slot i can go,
 * where what is alive between the two slots may grow only up to the limit;
 * i when there is none. */
static int find_slot(const struct table *t, const struct line *l, int i,
                     int least)
{
    int best = i;
    bool grows = is_forward(l->slot[i]);
    for (int to = i - 1; to >= least; to--) {
        if (grows && l->alive[to] >= t->limit)
            break;
        if (l->slot[to] == FREE)
            best = to;
    }
    return best;
}

/* Keeps the slots of input gradients ascending. */
static void note_input(struct line *l, int at)
{
    int i = l->n_inputs++;
    for (; i > 0 && l->input[i - 1] > at; i--)
        l->input[i] = l->input[i - 1];
    l->input[i] = at;
}

/* Moves what is in slot i, weight gradients being in slots of their own. */
static void squeeze_slot(struct table *t, const struct ends *e, int rank, int i)
{
    struct line *l = &t->lines[rank];
    int c = l->slot[i], to = i;
    bool moves = i <= e->warm_up || is_cool_down(e, i, rank);
    if (c == FREE)
        return;
    if (moves) {
        int least =
            c == WEIGHT
                ? later(l->last_weight, l->input[l->n_weights]) + 1
                : earliest(t, rank, c % PP_VBLOCK_OPS, c / PP_VBLOCK_OPS);
        to = find_slot(t, l, i, least);
    }
    if (to < i) {
        int more = is_forward(c) - (c == WEIGHT);
        move(t, rank, i, to);
        for (int k = to; k < i; k++)
            l->alive[k] += more;
    }
    if (is_input(c))
        note_input(l, to);
    if (c == WEIGHT) {
        l->last_weight = to;
        l->n_weights++;
    }
}

/* Everything at the ends to its earliest slot, weight gradients too. */
static void squeeze(struct table *t)
{
    put_weights(t);
    count_all(t);
    struct ends e = find_ends(t);
    for (int r = 0; r < t->p; r++) {
        t->lines[r].n_inputs = t->lines[r].n_weights = 0;
        t->lines[r].last_weight = -1;
    }
    for (int i = 0; i < t->length; i++)
        for (int r = 0; r < t->p; r++)
            squeeze_slot(t, &e, r, i);
}

/* Closes the gaps in which a rank waits for nothing; the order stays. */
static void close_gaps(struct table *t)
{
    for (int r = 0; r < t->p; r++)
        t->lines[r].last_weight = -1; /* here: the last slot taken */
    for (int i = 0; i < t->length; i++)
        for (int r = 0; r < t->p; r++) {
            struct line *l = &t->lines[r];
            int c = l->slot[i], to = l->last_weight + 1;
            if (c == FREE)
                continue;
            if (c >= 0)
                to = later(
                    to, earliest(t, r, c % PP_VBLOCK_OPS, c / PP_VBLOCK_OPS));
            move(t, r, i, to);
            l->last_weight = to;
        }
}

/* Tries the slots for what is in slot i, weight gradients filling whatever is
 * free. */
static void squeeze_last_slot(struct table *t, int rank, int i)
{
    struct line *l = &t->lines[rank];
    int c = l->slot[i], at = i;
    int to = earliest(t, rank, c % PP_VBLOCK_OPS, c / PP_VBLOCK_OPS);
    for (; to < i; to++) {
        if (l->slot[to] != FREE)
            continue;
        move(t, rank, at, to);
        if (count(t, l, at < to ? at : to, i) <= t->limit)
            return;
        at = to;
    }
    if (at != i) {
        move(t, rank, at, i);
        count(t, l, at, i);
    }
}

/* The end once more, without regard to where weight gradients were. */
static void squeeze_end(struct table *t)
{
    count_all(t);
    struct ends e = find_ends(t);
    for (int i = 0; i < t->length; i++)
        for (int r = 0; r < t->p; r++)
            if (t->lines[r].slot[i] >= 0 && is_cool_down(&e, i, r))
                squeeze_last_slot(t, r, i);
}

/* Weight gradients where slots are free, those of the way up first: it is the
 * older work. */
static int emit_rank(struct pp_schedule *s, const struct table *t, int rank,
                     struct pp_err *err)
{
    const struct line *l = &t->lines[rank];
    const int stage[] = {rank, 2 * t->p - 1 - rank};
    int owed[2] = {0, 0}, done[2] = {0, 0};
    for (int i = 0; i < t->length; i++) {
        int c = l->slot[i], up = owed[1] > 0;
        bool is_up = is_op(c, F_UP) || is_op(c, I_UP);
        if (c >= 0 && pp_emit(s, is_forward(c) ? PP_F : PP_I, stage[is_up],
                              c / PP_VBLOCK_OPS, err))
            return -1;
        owed[is_up] += is_input(c);
        if (c >= 0 || owed[up] == 0)
            continue;
        owed[up]--;
        if (pp_emit(s, PP_W, stage[up], done[up]++, err))
            return -1;
    }
    return 0;
}

int pp_vblock_emit(struct pp_schedule *s, const struct pp_vblock *blocks,
                   int n_microbatches, struct pp_err *err)
{
    struct pp_arena arena = {0};
    struct table t;
    int rc =
        table_init(&t, &arena, blocks, s->graph->n_ranks, n_microbatches, err);
    if (!rc) {
        repeat_blocks(&t, blocks);
        squeeze(&t);
        close_gaps(&t);
        drop_weights(&t);
        squeeze_end(&t);
    }
    for (int r = 0; !rc && r < t.p; r++)
        rc = emit_rank(s, &t, r, err);
    pp_arena_finish(&arena);
    return rc;
}
