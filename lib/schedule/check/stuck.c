/* SPDX-License-Identifier: MIT */
/* Every rank that stopped waits for one action of another rank that stopped, so
 * the waits lead round in a circle from any of them. */
#include "schedule/check/stuck.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/ops.h"

struct run {
    const struct pp_schedule *schedule;
    struct pp_fifo fifo;
    const size_t *done; /* per row: the actions that ran */
};

/* Runs all rows. Fills done, and sets *ends if they reach their ends. */
static int run_rows(struct run *x, bool messages, size_t *done, bool *ends,
                    struct pp_err *err)
{
    const struct pp_schedule *s = x->schedule;
    struct pp_ops ops = {0};
    struct pp_paths p = {0};
    pp_fifo_init(&x->fifo, s, true);
    int rc = pp_ops_of_schedule(&ops, s, NULL,
                                messages ? PP_OPS_STRICT : PP_OPS_INPUTS,
                                &x->fifo, s->channel_depth, false, err);
    if (!rc)
        pp_paths_init(&p, &ops);
    *ends = !rc && pp_paths_heads(&p, NULL);
    for (int r = 0; r < s->graph->n_rows && !rc; r++)
        done[r] = (size_t)(p.at[r] - ops.first_order[r]);
    pp_paths_finish(&p);
    pp_ops_finish(&ops);
    return rc;
}

/* --- waits --- */

/* The place that a stopped row waits for. */
struct search {
    const struct run *run;
    struct pp_action a; /* the action, or the one of the pair, that waits */
    struct pp_wait *wait;
    bool found;
};

/* Sets the wait to the first action of a row, from its current one on, that is
 * one of ops for this stage, microbatch and slice. */
static void seek(struct search *k, int row, unsigned ops, int stage, int slice)
{
    const struct pp_row *list = &k->run->schedule->rows[row];
    for (size_t i = k->run->done[row]; i < list->n && !k->found; i++) {
        struct pp_action b = list->actions[i];
        k->found = pp_is_compute(b.op) && ops & 1u << b.op &&
                   b.stage == stage && b.microbatch == k->a.microbatch &&
                   b.slice == slice;
        k->wait->on_row = row;
        k->wait->on_place = i;
    }
}

static int seek_dep(void *ctx, struct pp_dep dep)
{
    struct search *k = ctx;
    const struct pp_graph *g = k->run->schedule->graph;
    seek(k, g->stages[dep.stage].row, dep.ops, dep.stage, dep.slice);
    return k->found;
}

/* Sets the wait of a message to the next action at the other end of its
 * channel. */
static void seek_message(struct search *k)
{
    const struct pp_schedule *s = k->run->schedule;
    const struct pp_channels *all = &k->run->fifo.channels;
    int row = k->wait->row, peer = s->graph->stages[k->a.peer].row;
    size_t ch = pp_channel_of(all, k->a, row, peer);
    for (size_t i = k->run->done[peer]; i < s->rows[peer].n && !k->found; i++) {
        struct pp_action b = s->rows[peer].actions[i];
        bool ends = pp_is_send(k->a.op) ? pp_is_recv(b.op) : pp_is_send(b.op);
        k->found = ends && s->graph->stages[b.peer].row == row &&
                   pp_channel_of(all, b, peer, row) == ch;
        k->wait->on_row = peer;
        k->wait->on_place = i;
    }
}

/* Fills the wait of a row that stopped. Returns false if it waits for nothing
 * that is still to come. */
static bool find_wait(const struct run *x, int row, struct pp_wait *wait)
{
    const struct pp_row *list = &x->schedule->rows[row];
    size_t at = x->done[row];
    struct search k = {.run = x, .wait = wait};
    *wait = (struct pp_wait){.row = row, .place = at};
    for (size_t i = at; i < list->n && i < at + 2 && !k.found; i++) {
        k.a = list->actions[i];
        if (i > at && !list->actions[at].overlap)
            break;
        if (pp_is_message(k.a.op))
            seek_message(&k);
        else if (pp_is_compute(k.a.op))
            (void)pp_deps(x->schedule->graph, k.a, seek_dep, &k);
    }
    return k.found;
}

/* Follows the waits from the first row that stopped until a row is met again,
 * and keeps the rows from there on. */
static void follow(const struct run *x, struct pp_stuck *k, size_t *met)
{
    const struct pp_schedule *s = x->schedule;
    size_t n = 0, row = 0;
    while (row < (size_t)s->graph->n_rows && k->done[row] == s->rows[row].n)
        row++;
    while (met[row] == 0) {
        if (!find_wait(x, (int)row, &k->circle[n]))
            return;
        met[row] = ++n;
        row = (size_t)k->circle[n - 1].on_row;
    }
    k->n_circle = n - (met[row] - 1);
    memmove(k->circle, k->circle + met[row] - 1,
            k->n_circle * sizeof *k->circle);
}

int pp_stuck_find(const struct pp_schedule *s, bool messages,
                  struct pp_stuck *k, struct pp_err *err)
{
    size_t n = (size_t)s->graph->n_rows;
    size_t *met = pp_calloc(n, sizeof *met);
    struct run x = {.schedule = s};
    bool ends = false;
    *k = (struct pp_stuck){.done = pp_calloc(n, sizeof *k->done),
                           .circle = pp_calloc(n, sizeof *k->circle)};
    int rc = run_rows(&x, messages, k->done, &ends, err);
    x.done = k->done;
    if (!rc && !ends)
        follow(&x, k, met);
    pp_fifo_finish(&x.fifo);
    free(met);
    if (rc)
        pp_stuck_finish(k);
    return rc;
}

void pp_stuck_finish(struct pp_stuck *k)
{
    free(k->done);
    free(k->circle);
    *k = (struct pp_stuck){0};
}
