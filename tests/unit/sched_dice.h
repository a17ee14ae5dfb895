/* SPDX-License-Identifier: MIT */
/* sched_dice - random schedules for the schedule tests: feasible orders or
 * known kinds, on graphs with branches or chains, with messages placed in three
 * ways and then moved, dropped or duplicated.
 *
 * A header with definitions, like tap.h: each test program includes it once. */
#ifndef PP_TESTS_SCHED_DICE_H
#define PP_TESTS_SCHED_DICE_H

#include "base/rng.h"
#include "sched_place.h"

struct dice {
    uint64_t key, at;
};

static int roll(struct dice *d, int n)
{
    return (int)(pp_rng_bits(d->key, d->at++) % (uint64_t)n);
}

enum {
    MAX_RANKS = 4,
    MAX_BRANCHED = 6, /* stages of a graph with branches */
    MAX_STAGES = 12,
    MAX_MICROBATCHES = 8,
    MAX_ROW = 900
};

/* Makes a random DAG with one sink that uses every rank. */
static void random_graph(struct fixture *f, struct dice *d)
{
    int n = 1 + roll(d, MAX_BRANCHED), p = 1 + roll(d, n);
    p = p > MAX_RANKS ? MAX_RANKS : p;
    *f = (struct fixture){0};
    struct pp_stage_node *nodes =
        pp_arena_alloc(&f->arena, (size_t)n, sizeof *nodes);
    for (int s = 0; s < n; s++) {
        int *inputs = pp_arena_alloc(&f->arena, (size_t)n, sizeof *inputs);
        int count = 0;
        for (int i = 0; i < s; i++)
            if (i == s - 1 ? roll(d, 4) > 0 : roll(d, 5) == 0)
                inputs[count++] = i;
        nodes[s] = (struct pp_stage_node){
            .row = s < p ? s : roll(d, p), .n_inputs = count, .inputs = inputs};
    }
    f->graph = (struct pp_graph){
        .n_rows = p, .n_stages = n, .stages = nodes, .tied = {-1, -1}};
    if (pp_graph_connect(&f->arena, &f->graph, &f->err))
        printf("# %s\n", f->err.text);
}

static bool is_done(const struct pp_action *done, int n, int stage,
                    unsigned ops, int microbatch)
{
    for (int i = 0; i < n; i++)
        if (done[i].stage == stage && done[i].microbatch == microbatch &&
            ops & 1u << done[i].op)
            return true;
    return false;
}

struct computable {
    const struct pp_action *done;
    int n, microbatch;
};

static int visit(void *ctx, struct pp_dep dep)
{
    struct computable *r = ctx;
    return !is_done(r->done, r->n, dep.stage, dep.ops, r->microbatch);
}

/* Returns true if every earlier microbatch is done at this stage and op. */
static bool is_next(const struct pp_action *done, int n, struct pp_action a)
{
    for (int k = 0; k < a.microbatch; k++)
        if (!is_done(done, n, a.stage, 1u << a.op, k))
            return false;
    return true;
}

/* Adds compute actions in a random feasible order. Microbatches are mostly in
 * order, because channels are rarely in order otherwise. */
static void random_computes(struct fixture *f, struct dice *d, int m)
{
    struct pp_action todo[MAX_BRANCHED * MAX_MICROBATCHES * 3],
        done[MAX_BRANCHED * MAX_MICROBATCHES * 3];
    int n = 0, n_done = 0;
    bool split = roll(d, 2), in_order = roll(d, 4) > 0;
    for (int s = 0; s < f->graph.n_stages; s++)
        for (int k = 0; k < m; k++)
            for (int op = PP_F; op <= PP_W; op++)
                if (op == PP_F || (op == PP_B) != split)
                    todo[n++] = (struct pp_action){.stage = s,
                                                   .microbatch = k,
                                                   .peer = -1,
                                                   .op = (uint8_t)op};
    while (n > 0) {
        int i = roll(d, n);
        struct computable r = {done, n_done, todo[i].microbatch};
        if (pp_deps(&f->graph, todo[i], visit, &r) ||
            (in_order && !is_next(done, n_done, todo[i])))
            continue;
        done[n_done++] = todo[i];
        pp_schedule_add(&f->s, f->graph.stages[todo[i].stage].row, todo[i]);
        todo[i] = todo[--n];
    }
}

/* Makes a schedule of a random kind on a chain that it accepts. */
static void random_kind(struct fixture *f, struct dice *d)
{
    static const char *const kinds[] = {
        "gpipe", "1f1b",  "eager-1f1b",     "interleaved", "looped-bfs",
        "zb-h1", "zb-h2", "zb-interleaved", "zbv",         "dualpipev"};
    for (;;) {
        int p = roll(d, 16) ? 2 + roll(d, MAX_RANKS - 1) : 1;
        int c = 1 + roll(d, 3);
        const char *kind = kinds[roll(d, sizeof kinds / sizeof *kinds)];
        chain(f, p, c, roll(d, 2) ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP);
        if (c * p <= MAX_STAGES &&
            !emit(f, kind, 1 + roll(d, MAX_MICROBATCHES), 0))
            return;
        drop(f);
    }
}

static bool is_message(struct pp_action a)
{
    return pp_is_send(a.op) || pp_is_recv(a.op);
}

/* Swaps two neighbours of a row, at least one of them a message, unless one
 * depends on the other. */
static void move_message(struct fixture *f, struct dice *d)
{
    struct pp_row *row = &f->s.rows[roll(d, f->graph.n_rows)];
    if (row->n < 2)
        return;
    int i = roll(d, (int)row->n - 1);
    struct pp_action a = row->actions[i], b = row->actions[i + 1];
    bool same = a.stage == b.stage && a.microbatch == b.microbatch;
    if ((!is_message(a) && !is_message(b)) || same || a.overlap ||
        (i > 0 && row->actions[i - 1].overlap))
        return;
    row->actions[i] = b;
    row->actions[i + 1] = a;
}

/* Drops or duplicates a message. */
static void corrupt_message(struct fixture *f, struct dice *d)
{
    struct pp_row *row = &f->s.rows[roll(d, f->graph.n_rows)];
    size_t at = row->n ? (size_t)roll(d, (int)row->n) : 0;
    while (at < row->n && !is_message(row->actions[at]))
        at++;
    if (at == row->n)
        return;
    if (roll(d, 2)) {
        int rank = f->graph.stages[row->actions[at].stage].row;
        pp_schedule_add(&f->s, rank, row->actions[at]);
        return;
    }
    memmove(row->actions + at, row->actions + at + 1,
            (row->n - at - 1) * sizeof *row->actions);
    row->n--;
}

/* Makes a random schedule of any of these sorts, at a channel depth from 0 to
 * 4. */
__attribute__((unused)) static void random_schedule(struct fixture *f,
                                                    struct dice *d)
{
    if (roll(d, 4)) {
        random_kind(f, d);
    } else {
        random_graph(f, d);
        int m = 1 + roll(d, MAX_MICROBATCHES);
        pp_schedule_init(&f->s, &f->graph, "test", m);
        random_computes(f, d, m);
    }
    int how = roll(d, 8);
    if (how > 0)
        place(f, how > 3);
    else if (pp_lower(&f->s, &f->err))
        printf("# %s\n", f->err.text);
    for (int n = roll(d, 48); n > 0; n--)
        move_message(f, d);
    if (roll(d, 16) == 0)
        corrupt_message(f, d);
    f->s.channel_depth = roll(d, 2) ? 0 : roll(d, 5);
}

#endif
