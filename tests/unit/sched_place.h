/* SPDX-License-Identifier: MIT */
/* sched_place - placements of messages that one would write by hand and that
 * lowering does not use, for the schedule tests.
 *
 * A header with definitions, like tap.h: each test program includes it once. */
#ifndef PP_TESTS_SCHED_PLACE_H
#define PP_TESTS_SCHED_PLACE_H

#include "schedule/ir/numbering.h"
#include "schedule/ir/deps.h"
#include "sched_fixture.h"

struct placing {
    struct pp_schedule to;
    struct pp_cells cells;
    bool *received; /* 2 per link */
    /* Sends from one rank to another in their order, at from * n_ranks + to,
     * and the number already received of each. NULL if the order does not
     * matter. */
    struct pp_row *sent;
    size_t *taken;
    struct pp_action action; /* the action whose messages are placed */
    struct pp_err *err;
};

static void append(struct pp_row *row, struct pp_action a)
{
    if (row->n == row->capacity) {
        row->capacity = row->capacity ? 2 * row->capacity : 16;
        row->actions =
            realloc(row->actions, row->capacity * sizeof *row->actions);
    }
    row->actions[row->n++] = a;
}

static size_t pair_of(const struct placing *p, int from_stage, int to_stage)
{
    const struct pp_graph *g = p->to.graph;
    return (size_t)(g->stages[from_stage].row * g->n_rows +
                    g->stages[to_stage].row);
}

static bool *received_of(struct placing *p, struct pp_action recv)
{
    bool forward = recv.op == PP_RECV_F;
    size_t link =
        pp_link(&p->cells, forward ? recv.peer : recv.stage,
                forward ? recv.stage : recv.peer, recv.microbatch, recv.slice);
    return &p->received[2 * link + !forward];
}

static void place_recv(struct placing *p, struct pp_action recv)
{
    *received_of(p, recv) = true;
    pp_schedule_add(&p->to, p->to.graph->stages[recv.stage].row, recv);
}

static int visit_message(void *ctx, struct pp_dep dep)
{
    struct placing *p = ctx;
    struct pp_action recv = p->action;
    if (dep.message == PP_N_OPS)
        return 0;
    recv.op = (uint8_t)dep.message;
    recv.peer = dep.stage;
    recv.overlap = 0;
    if (*received_of(p, recv))
        return 0;
    if (!p->sent) {
        place_recv(p, recv);
        return 0;
    }
    size_t pair = pair_of(p, recv.peer, recv.stage);
    while (!*received_of(p, recv))
        place_recv(p, pp_other_end(p->sent[pair].actions[p->taken[pair]++]));
    return 0;
}

static void place_send(void *ctx, struct pp_action send)
{
    struct placing *p = ctx;
    pp_schedule_add(&p->to, p->to.graph->stages[send.stage].row, send);
}

static void note_send(void *ctx, struct pp_action send)
{
    struct placing *p = ctx;
    append(&p->sent[pair_of(p, send.stage, send.peer)], send);
}

/* Adds an action, or both of a pair, and its messages. Returns the number of
 * actions. */
static size_t place_action(struct placing *p, const struct pp_action *a)
{
    const struct pp_graph *g = p->to.graph;
    size_t n = a->overlap ? 2 : 1;
    for (size_t i = 0; i < n; i++) {
        p->action = a[i];
        if (pp_deps(g, a[i], visit_message, p))
            printf("# %s\n", p->err->text);
    }
    for (size_t i = 0; i < n; i++)
        pp_schedule_add(&p->to, g->stages[a->stage].row, a[i]);
    for (size_t i = 0; i < n; i++)
        pp_transfers(g, a[i], place_send, p);
    return n;
}

/* Adds messages to f's compute actions: each SEND right after its producer,
 * each RECV right before its first use. If by_channel, a RECV follows the RECVs
 * of all earlier messages of its sender. */
__attribute__((unused)) static void place(struct fixture *f, bool by_channel)
{
    const struct pp_graph *g = &f->graph;
    size_t n_pairs = (size_t)(g->n_rows * g->n_rows);
    struct placing p = {.err = &f->err};
    pp_schedule_init(&p.to, g, f->s.kind, f->s.n_microbatches);
    pp_cells_init(&p.cells, &f->s);
    p.received = calloc(2 * p.cells.n_links + 1, sizeof *p.received);
    p.taken = calloc(n_pairs, sizeof *p.taken);
    p.sent = by_channel ? calloc(n_pairs, sizeof *p.sent) : NULL;
    for (int r = 0; r < g->n_rows && by_channel; r++)
        for (size_t i = 0; i < f->s.rows[r].n; i++)
            pp_transfers(g, f->s.rows[r].actions[i], note_send, &p);
    for (int r = 0; r < g->n_rows; r++)
        for (size_t i = 0; i < f->s.rows[r].n;)
            i += place_action(&p, &f->s.rows[r].actions[i]);
    for (size_t i = 0; i < n_pairs && by_channel; i++)
        free(p.sent[i].actions);
    free(p.sent);
    free(p.taken);
    free(p.received);
    pp_cells_finish(&p.cells);
    pp_schedule_finish(&f->s);
    f->s = p.to;
}

#endif
