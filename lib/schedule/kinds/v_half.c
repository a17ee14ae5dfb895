/* SPDX-License-Identifier: MIT */
/* v-half, v-min - two stages per rank in a V, with half or a third of 1f1b's
 * memory.
 *
 * Both repeat one building block. A block gives the step of time in which a
 * rank does each of the four actions of a microbatch other than its weight
 * gradients. Every microbatch repeats the block six steps later. The time that
 * a microbatch stays on a rank decides how much the rank keeps, so the block
 * decides the memory. On the way down a microbatch advances by two steps per
 * rank in v-half and by one in v-min, on the way up by one, so that it stays on
 * every rank for the same time.
 *
 * The blocks leave gaps at the ends of the schedule. The ends are then
 * compressed as far as that memory allows. A step is the time of any one
 * action, so costs that are far from equal bring a bubble back. Qi et al.,
 * "Pipeline Parallelism with Controllable Memory", NeurIPS 2024. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "schedule/kinds/kinds.h"

/* The actions of a microbatch on a rank, in order: forward on the way down and
 * up, input gradient on the way up and down. */
enum { VBLOCK_OPS = 4, VBLOCK_PERIOD = 6 };

/* The table of steps grows with the square of the ranks, and a rank's row of it
 * is searched for each step of the ends. */
enum { VBLOCK_RANKS = 1024 };

/* The steps of the first microbatch on one rank, ascending and all different
 * modulo the period. A rank's steps come after the steps of the ranks that it
 * waits for. */
struct vblock {
    int step[VBLOCK_OPS];
};

/* The content of a step: free, a weight gradient (of a microbatch chosen at the
 * end), or one of the four actions of a microbatch. */
enum { FREE = -1, WEIGHT = -2 };
enum { F_DOWN, F_UP, I_UP, I_DOWN };

/* The steps of a rank. All arrays but input have `length` entries. */
struct block_row {
    int *step;
    int *alive; /* forwards less weight gradients, so far */
    int *owed;  /* input gradients less weight gradients */
    int *input; /* sorted steps of the input gradients seen */
    int n_inputs;
    int n_weights, last_weight; /* weight gradients seen so far */
};

struct block_table {
    int p, m, length;
    int limit; /* most microbatches alive on a rank */
    struct block_row *rows;
    int *at; /* [row][op][microbatch]: its step */
};

static int *step_of(const struct block_table *t, int row, int op,
                    int microbatch)
{
    size_t list = (size_t)row * VBLOCK_OPS + (size_t)op;
    return &t->at[list * (size_t)t->m + (size_t)microbatch];
}

static int encode_work(int op, int microbatch)
{
    return microbatch * VBLOCK_OPS + op;
}

static bool is_op(int content, int op)
{
    return content >= 0 && content % VBLOCK_OPS == op;
}

static bool is_forward(int content)
{
    return is_op(content, F_DOWN) || is_op(content, F_UP);
}

static bool is_input(int content)
{
    return is_op(content, I_UP) || is_op(content, I_DOWN);
}

static int table_init(struct block_table *t, struct pp_arena *a,
                      const struct vblock *blocks, int p, int m,
                      struct pp_err *err)
{
    int last = 0;
    for (int r = 0; r < p; r++)
        if (blocks[r].step[I_DOWN] > last)
            last = blocks[r].step[I_DOWN];
    /* Room for the blocks, and for all weight gradients after them. */
    int64_t length = last + (int64_t)m * (VBLOCK_PERIOD + 2) + 1;
    if (length > INT32_MAX / VBLOCK_OPS)
        return pp_fail(err, PP_EXIT_INPUT, "%d microbatches are too many", m);
    *t = (struct block_table){.p = p, .m = m, .length = (int)length};
    t->rows = pp_arena_alloc(a, (size_t)p, sizeof *t->rows);
    t->at =
        pp_arena_alloc(a, (size_t)p * VBLOCK_OPS * (size_t)m, sizeof *t->at);
    for (int r = 0; r < p; r++) {
        struct block_row *l = &t->rows[r];
        size_t n = (size_t)t->length;
        l->step = pp_arena_alloc(a, n, sizeof *l->step);
        l->alive = pp_arena_alloc(a, n, sizeof *l->alive);
        l->owed = pp_arena_alloc(a, n, sizeof *l->owed);
        l->input = pp_arena_alloc(a, 2 * (size_t)m, sizeof *l->input);
    }
    return 0;
}

static void repeat_blocks(struct block_table *t, const struct vblock *blocks)
{
    for (int r = 0; r < t->p; r++) {
        for (int i = 0; i < t->length; i++)
            t->rows[r].step[i] = FREE;
        for (int op = 0; op < VBLOCK_OPS; op++)
            for (int m = 0; m < t->m; m++) {
                int at = blocks[r].step[op] + m * VBLOCK_PERIOD;
                *step_of(t, r, op, m) = at;
                t->rows[r].step[at] = encode_work(op, m);
            }
    }
}

/* Puts a weight gradient in every free step that can have one. */
static void put_weights(struct block_table *t)
{
    for (int r = 0; r < t->p; r++) {
        struct block_row *l = &t->rows[r];
        int owed = 0;
        for (int i = 0; i < t->length; i++) {
            if (l->step[i] == FREE && owed > 0) {
                l->step[i] = WEIGHT;
                owed--;
            }
            owed += is_input(l->step[i]);
        }
    }
}

static void drop_weights(struct block_table *t)
{
    for (int r = 0; r < t->p; r++)
        for (int i = 0; i < t->length; i++)
            if (t->rows[r].step[i] == WEIGHT)
                t->rows[r].step[i] = FREE;
}

/* Counts alive and owed from step `from` on. A free step counts as a weight
 * gradient if one is owed. Stops at the first step from `sure` on whose counts
 * are unchanged, because later counts are then unchanged too. Returns the
 * largest count of alive. */
static int count_row(const struct block_table *t, struct block_row *l, int from,
                     int sure)
{
    int alive = from > 0 ? l->alive[from - 1] : 0, most = 0;
    int owed = from > 0 ? l->owed[from - 1] : 0;
    for (int i = from; i < t->length; i++) {
        int c = l->step[i];
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

static void count_all_rows(struct block_table *t)
{
    t->limit = 0;
    for (int r = 0; r < t->p; r++) {
        int most = count_row(t, &t->rows[r], 0, t->length);
        t->limit = most > t->limit ? most : t->limit;
    }
}

static int later_step(int a, int b)
{
    return a > b ? a : b;
}

/* Returns the first step after the requirements of an action. Its predecessor
 * of the same op is one of them. */
static int earliest_step(const struct block_table *t, int row, int op, int m)
{
    int from = row + (op == F_DOWN || op == I_UP ? -1 : 1), at = -1;
    if (from >= 0 && from < t->p)
        at = later_step(at, *step_of(t, from, op, m));
    if (op > F_DOWN)
        at = later_step(at, *step_of(t, row, op - 1, m));
    if (m > 0)
        at = later_step(at, *step_of(t, row, op, m - 1));
    return at + 1;
}

/* The steps that do not move: the steady middle, from the first input gradient
 * on row 0 to its last forward. */
struct ends {
    int warmup, cooldown; /* last step of the warmup, and of the middle */
};

static struct ends find_ends(const struct block_table *t)
{
    return (struct ends){*step_of(t, 0, I_DOWN, 0) - 1,
                         *step_of(t, 0, F_DOWN, t->m - 1)};
}

static bool is_cooldown(const struct ends *e, int i, int row)
{
    return i > e->warmup && (i > e->cooldown || (i == e->cooldown && row > 0));
}

static void move_work(struct block_table *t, int row, int from, int to)
{
    struct block_row *l = &t->rows[row];
    int c = l->step[from];
    l->step[from] = FREE;
    l->step[to] = c;
    if (c >= 0)
        *step_of(t, row, c % VBLOCK_OPS, c / VBLOCK_OPS) = to;
}

/* Returns the first free step from `least` on that the content of step i can
 * move to, or i if there is none. The count of alive between the two steps may
 * grow only up to the limit. */
static int find_free_step(const struct block_table *t,
                          const struct block_row *l, int i, int least)
{
    int best = i;
    bool grows = is_forward(l->step[i]);
    for (int to = i - 1; to >= least; to--) {
        if (grows && l->alive[to] >= t->limit)
            break;
        if (l->step[to] == FREE)
            best = to;
    }
    return best;
}

/* Inserts a step in the sorted list of input gradients. */
static void note_input(struct block_row *l, int at)
{
    int i = l->n_inputs++;
    for (; i > 0 && l->input[i - 1] > at; i--)
        l->input[i] = l->input[i - 1];
    l->input[i] = at;
}

/* Moves the content of step i to an earlier step. Weight gradients have steps
 * of their own here. */
static void compress_step(struct block_table *t, const struct ends *e, int row,
                          int i)
{
    struct block_row *l = &t->rows[row];
    int c = l->step[i], to = i;
    bool moves = i <= e->warmup || is_cooldown(e, i, row);
    if (c == FREE)
        return;
    if (moves) {
        int least = c == WEIGHT
                        ? later_step(l->last_weight, l->input[l->n_weights]) + 1
                        : earliest_step(t, row, c % VBLOCK_OPS, c / VBLOCK_OPS);
        to = find_free_step(t, l, i, least);
    }
    if (to < i) {
        int more = is_forward(c) - (c == WEIGHT);
        move_work(t, row, i, to);
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

/* Moves everything at the ends to its earliest step, weight gradients too. */
static void compress_ends(struct block_table *t)
{
    put_weights(t);
    count_all_rows(t);
    struct ends e = find_ends(t);
    for (int r = 0; r < t->p; r++) {
        t->rows[r].n_inputs = t->rows[r].n_weights = 0;
        t->rows[r].last_weight = -1;
    }
    for (int i = 0; i < t->length; i++)
        for (int r = 0; r < t->p; r++)
            compress_step(t, &e, r, i);
}

/* Closes the gaps in which a rank waits for nothing. The order stays. */
static void close_gaps(struct block_table *t)
{
    for (int r = 0; r < t->p; r++)
        t->rows[r].last_weight = -1; /* here: the last step taken */
    for (int i = 0; i < t->length; i++)
        for (int r = 0; r < t->p; r++) {
            struct block_row *l = &t->rows[r];
            int c = l->step[i], to = l->last_weight + 1;
            if (c == FREE)
                continue;
            if (c >= 0)
                to = later_step(
                    to, earliest_step(t, r, c % VBLOCK_OPS, c / VBLOCK_OPS));
            move_work(t, r, i, to);
            l->last_weight = to;
        }
}

/* Tries earlier steps for the content of step i. Weight gradients fill any free
 * step. */
static void compress_last_step(struct block_table *t, int row, int i)
{
    struct block_row *l = &t->rows[row];
    int c = l->step[i], at = i;
    int to = earliest_step(t, row, c % VBLOCK_OPS, c / VBLOCK_OPS);
    for (; to < i; to++) {
        if (l->step[to] != FREE)
            continue;
        move_work(t, row, at, to);
        if (count_row(t, l, at < to ? at : to, i) <= t->limit)
            return;
        at = to;
    }
    if (at != i) {
        move_work(t, row, at, i);
        count_row(t, l, at, i);
    }
}

/* Compresses the cooldown again, without the old weight gradients. */
static void compress_cooldown(struct block_table *t)
{
    count_all_rows(t);
    struct ends e = find_ends(t);
    for (int i = 0; i < t->length; i++)
        for (int r = 0; r < t->p; r++)
            if (t->rows[r].step[i] >= 0 && is_cooldown(&e, i, r))
                compress_last_step(t, r, i);
}

/* Emits a row, with weight gradients in the free steps. Weight gradients of the
 * way up come first, because they are older. */
static void emit_vblock_row(struct pp_schedule *s, const struct block_table *t,
                            int row)
{
    const struct block_row *l = &t->rows[row];
    const int stage[] = {row, 2 * t->p - 1 - row};
    int owed[2] = {0, 0}, done[2] = {0, 0};
    for (int i = 0; i < t->length; i++) {
        int c = l->step[i], up = owed[1] > 0;
        bool is_up = is_op(c, F_UP) || is_op(c, I_UP);
        if (c >= 0)
            pp_emit(s, is_forward(c) ? PP_F : PP_I, stage[is_up],
                    c / VBLOCK_OPS);
        owed[is_up] += is_input(c);
        if (c >= 0 || owed[up] == 0)
            continue;
        owed[up]--;
        pp_emit(s, PP_W, stage[up], done[up]++);
    }
}

static int emit_vblocks(struct pp_schedule *s, const struct vblock *blocks,
                        int n_microbatches, struct pp_err *err)
{
    struct pp_arena arena = {0};
    struct block_table t;
    int rc =
        table_init(&t, &arena, blocks, s->graph->n_rows, n_microbatches, err);
    if (!rc) {
        repeat_blocks(&t, blocks);
        compress_ends(&t);
        close_gaps(&t);
        drop_weights(&t);
        compress_cooldown(&t);
    }
    for (int r = 0; !rc && r < t.p; r++)
        emit_vblock_row(s, &t, r);
    pp_arena_finish(&arena);
    return rc;
}

/* The pause at the turn keeps the four steps different modulo the period. */
static struct vblock half_block(int p, int r)
{
    int pause = p % 2 == 0 ? 3 : 0;
    return (struct vblock){{2 * r, 3 * p - r - 2, 3 * p + pause + 2 * r - 1,
                            6 * p + pause - r - 2}};
}

static struct vblock min_block(int p, int r)
{
    int pause = p % 3 == 0 ? 2 : 0;
    return (struct vblock){
        {r, 2 * p - r - 1, 2 * p + pause + r, 4 * p + pause - r - 1}};
}

static int emit_v_blocks(struct pp_schedule *s, const struct pp_kind_options *o,
                         struct vblock (*block)(int p, int r),
                         struct pp_err *err)
{
    int p = s->graph->n_rows;
    if (pp_two_in_a_v(s, err))
        return -1;
    if (p > VBLOCK_RANKS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s takes at most %d ranks, not %d: use zbv", s->kind,
                       VBLOCK_RANKS, p);
    struct vblock *blocks = pp_calloc((size_t)p, sizeof *blocks);
    for (int r = 0; r < p; r++)
        blocks[r] = block(p, r);
    int rc = emit_vblocks(s, blocks, o->n_microbatches, err);
    free(blocks);
    return rc;
}

static int emit_v_half(struct pp_schedule *s, const struct pp_kind_options *o,
                       struct pp_err *err)
{
    return emit_v_blocks(s, o, half_block, err);
}

static int emit_v_min(struct pp_schedule *s, const struct pp_kind_options *o,
                      struct pp_err *err)
{
    return emit_v_blocks(s, o, min_block, err);
}

const struct pp_kind pp_kind_v_half = {
    .name = "v-half",
    .summary =
        "two stages per rank in a V, split backward; 1/2 of zbv's memory",
    .constraint = "placement v, 2 chunks, at most 1024 ranks",
    .paper = "Qi et al., Pipeline Parallelism with Controllable Memory, "
             "NeurIPS 2024",
    .emit = emit_v_half,
    .chain = true,
    .n_chunks = 2,
    .v = true,
};

const struct pp_kind pp_kind_v_min = {
    .name = "v-min",
    .summary =
        "two stages per rank in a V, split backward; 1/3 of zbv's memory",
    .constraint = "placement v, 2 chunks, at most 1024 ranks",
    .paper = "Qi et al., Pipeline Parallelism with Controllable Memory, "
             "NeurIPS 2024",
    .emit = emit_v_min,
    .chain = true,
    .n_chunks = 2,
    .v = true,
};
