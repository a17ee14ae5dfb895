/* SPDX-License-Identifier: MIT */
/* Every rank that stopped waits for one action of another rank that stopped, so
 * the waits lead round in a circle from any of them. */
#include "schedule/check/stuck.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/check/check_parts.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"

struct run {
    struct pp_walk walk;
    struct pp_completion done;
    size_t *sent, *posted, *received; /* per channel */
    bool messages;
};

/* --- progress --- */

static int no_visit(void *ctx, struct pp_action a, struct pp_dep dep,
                    size_t number)
{
    (void)ctx;
    (void)a;
    (void)dep;
    (void)number;
    return 0;
}

/* The first action of a pair waits for the inputs of both. */
static int run_compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct run *x = ctx;
    const struct pp_row *row = &x->walk.schedule->rows[x->walk.row];
    size_t pc = x->walk.pc[x->walk.row];
    (void)err;
    if (!x->messages && !pp_is_second_of_pair(row, pc) &&
        pp_completion_visit(&x->done, &row->actions[pc], no_visit, NULL))
        return PP_AGAIN;
    pp_completion_set(&x->done, a, 0);
    return 0;
}

static int run_send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct run *x = ctx;
    size_t ch = pp_channel_of(&x->walk.channels, a, x->walk.row, peer);
    size_t depth = (size_t)x->walk.schedule->channel_depth;
    (void)err;
    if (depth == 0 ? x->posted[ch] <= x->sent[ch]
                   : x->sent[ch] - x->received[ch] >= depth)
        return PP_AGAIN;
    x->sent[ch]++;
    return 0;
}

static int run_recv(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct run *x = ctx;
    size_t ch = pp_channel_of(&x->walk.channels, a, x->walk.row, peer);
    (void)err;
    x->posted[ch] = x->received[ch] + 1;
    if (x->sent[ch] == x->received[ch])
        return PP_AGAIN;
    x->received[ch]++;
    return 0;
}

static int init_run(struct run *x, const struct pp_schedule *s,
                    struct pp_err *err)
{
    if (pp_walk_init(&x->walk, s, err) || pp_completion_init(&x->done, s, err))
        return -1;
    size_t n = x->walk.channels.n + 1;
    x->sent = calloc(n, sizeof *x->sent);
    x->posted = calloc(n, sizeof *x->posted);
    x->received = calloc(n, sizeof *x->received);
    return x->sent && x->posted && x->received
               ? 0
               : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

static void finish_run(struct run *x)
{
    free(x->sent);
    free(x->posted);
    free(x->received);
    pp_completion_finish(&x->done);
    pp_walk_finish(&x->walk);
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
    const struct pp_row *list = &k->run->walk.schedule->rows[row];
    for (size_t i = k->run->walk.pc[row]; i < list->n && !k->found; i++) {
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
    const struct pp_graph *g = k->run->walk.schedule->graph;
    if (pp_completion_get(&k->run->done, dep.stage, k->a.microbatch, dep.slice,
                          dep.ops) == PP_NOT_DONE)
        seek(k, g->stages[dep.stage].row, dep.ops, dep.stage, dep.slice);
    return k->found;
}

/* Sets the wait of a message to the next action at the other end of its
 * channel. */
static void seek_message(struct search *k)
{
    const struct pp_schedule *s = k->run->walk.schedule;
    const struct pp_channels *all = &k->run->walk.channels;
    int row = k->wait->row, peer = s->graph->stages[k->a.peer].row;
    size_t ch = pp_channel_of(all, k->a, row, peer);
    for (size_t i = k->run->walk.pc[peer]; i < s->rows[peer].n && !k->found;
         i++) {
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
    const struct pp_row *list = &x->walk.schedule->rows[row];
    size_t at = x->walk.pc[row];
    struct search k = {.run = x, .wait = wait};
    *wait = (struct pp_wait){.row = row, .place = at};
    for (size_t i = at; i < list->n && i < at + 2 && !k.found; i++) {
        k.a = list->actions[i];
        if (i > at && !list->actions[at].overlap)
            break;
        if (pp_is_send(k.a.op) || pp_is_recv(k.a.op))
            seek_message(&k);
        else if (pp_is_compute(k.a.op))
            (void)pp_deps(x->walk.schedule->graph, k.a, seek_dep, &k);
    }
    return k.found;
}

/* Follows the waits from the first row that stopped until a row is met again,
 * and keeps those from there on. */
static void follow(const struct run *x, struct pp_stuck *k, size_t *met)
{
    const struct pp_schedule *s = x->walk.schedule;
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
    static const struct pp_player player = {
        .compute = run_compute, .send = run_send, .recv = run_recv};
    size_t n = (size_t)s->graph->n_rows, *met = calloc(n, sizeof *met);
    struct run x = {.messages = messages};
    *k = (struct pp_stuck){.done = calloc(n, sizeof *k->done),
                           .circle = calloc(n, sizeof *k->circle)};
    int rc = -1;
    if (!met || !k->done || !k->circle)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (!init_run(&x, s, err))
        rc = pp_walk(&x.walk, &player, &x, err);
    if (rc >= 0)
        memcpy(k->done, x.walk.pc, n * sizeof *k->done);
    if (rc == PP_AGAIN)
        follow(&x, k, met);
    finish_run(&x);
    free(met);
    if (rc < 0)
        pp_stuck_finish(k);
    return rc < 0 ? -1 : 0;
}

void pp_stuck_finish(struct pp_stuck *k)
{
    free(k->done);
    free(k->circle);
    *k = (struct pp_stuck){0};
}
