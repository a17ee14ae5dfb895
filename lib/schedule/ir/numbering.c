/* SPDX-License-Identifier: MIT */
#include "sched/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "sched/cells.h"
#include "sched/deps.h"
#include "sched/walk.h"

enum { N_CLASSES = 3 }; /* of completion times: F, I or B, W or B */

struct timing {
    struct pp_action action;
    size_t start, end;
};

struct clocks {
    struct pp_walk walk;
    struct pp_cells cells;
    size_t *done;  /* by cell and class: completion time, 0 before it */
    size_t *clock; /* by rank */
    struct timing *timings;
    size_t n;
    struct pp_action action; /* whose requirements are being visited */
    size_t ready;
    size_t pair_start; /* of the pair whose forward was the last action */
};

/* Where a completion that one of ops gives is kept. */
static int op_class(unsigned ops)
{
    if (ops & 1u << PP_F)
        return 0;
    return ops & 1u << PP_W ? 2 : 1;
}

static int visit(void *ctx, struct pp_dep dep)
{
    struct clocks *c = ctx;
    size_t cell =
        pp_cell(&c->cells, dep.stage, c->action.microbatch, dep.slice);
    size_t done = c->done[N_CLASSES * cell + (size_t)op_class(dep.ops)];
    if (done == 0)
        return PP_AGAIN;
    c->ready = done > c->ready ? done : c->ready;
    return 0;
}

static size_t duration(struct pp_action a)
{
    return a.op == PP_B ? 2 : 1;
}

/* Raises ready to where a has all it needs. */
static int wait_for(struct clocks *c, struct pp_action a)
{
    c->action = a;
    return pp_deps(c->cells.graph, a, visit, c);
}

static void record(struct clocks *c, struct pp_action a, size_t start,
                   size_t end)
{
    size_t cell = pp_cell(&c->cells, a.stage, a.microbatch, a.slice);
    c->done[N_CLASSES * cell + (size_t)op_class(1u << a.op)] = end;
    if (a.op == PP_B)
        c->done[N_CLASSES * cell + (size_t)op_class(1u << PP_W)] = end;
    c->clock[c->walk.rank] = end;
    c->timings[c->n++] = (struct timing){a, start, end};
}

static int compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct clocks *c = ctx;
    size_t pc = c->walk.pc[c->walk.rank];
    const struct pp_action *row = c->walk.schedule->rows[c->walk.rank].actions;
    (void)err;
    if (pc > 0 && row[pc - 1].overlap) {
        record(c, a, c->pair_start, c->clock[c->walk.rank]);
        return 0;
    }
    c->ready = c->clock[c->walk.rank];
    if (wait_for(c, a) || (a.overlap && wait_for(c, row[pc + 1])))
        return PP_AGAIN;
    c->pair_start = c->ready;
    record(c, a, c->ready,
           c->ready + duration(a) + (a.overlap ? duration(row[pc + 1]) : 0));
    return 0;
}

static int pass_message(void *ctx, struct pp_action a, int peer_rank,
                        struct pp_err *err)
{
    (void)ctx, (void)a, (void)peer_rank, (void)err;
    return 0;
}

static int pass_sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    (void)ctx, (void)a, (void)err;
    return 0;
}

static int fail_stuck(const struct pp_walk *w, struct pp_err *err)
{
    const struct pp_schedule *s = w->schedule;
    char text[400] = "", cell[PP_ACTION_TEXT];
    size_t n = 0;
    for (int r = 0; r < s->graph->n_ranks && n < sizeof text; r++) {
        if (w->pc[r] == s->rows[r].n)
            continue;
        pp_action_format(s->rows[r].actions[w->pc[r]], false, cell);
        n +=
            (size_t)snprintf(text + n, sizeof text - n,
                             "%srank %d stops at '%s'", n ? ", " : "", r, cell);
    }
    return pp_fail(err, PP_EXIT_NO, "the order cannot run to its end: %s",
                   text);
}

static int compare(const void *pa, const void *pb)
{
    const struct pp_action *a = &((const struct pp_event *)pa)->action;
    const struct pp_action *b = &((const struct pp_event *)pb)->action;
    /* A pair starts with its first; no other action of the rank starts then. */
    if (a->overlap != b->overlap)
        return a->overlap ? -1 : 1;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->microbatch != b->microbatch)
        return a->microbatch < b->microbatch ? -1 : 1;
    return a->slice - b->slice;
}

static size_t event_key(const struct timing *t, bool completion)
{
    return completion ? 2 * t->end : 2 * t->start + 1;
}

/* A counting sort by time, then each instant by stage. */
static int sort_events(const struct timing *t, size_t n, struct pp_order *o,
                       struct pp_err *err)
{
    size_t n_keys = 2;
    for (size_t i = 0; i < n; i++)
        if (2 * t[i].end + 2 > n_keys)
            n_keys = 2 * t[i].end + 2;
    size_t *first = calloc(n_keys + 1, sizeof *first);
    o->n = 2 * n;
    o->events = calloc(o->n + 1, sizeof *o->events);
    if (!first || !o->events) {
        free(first);
        free(o->events);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        first[event_key(&t[i], false) + 1]++;
        first[event_key(&t[i], true) + 1]++;
    }
    for (size_t k = 0; k < n_keys; k++)
        first[k + 1] += first[k];
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 2; c++)
            o->events[first[event_key(&t[i], c)]++] =
                (struct pp_event){t[i].action, c};
    /* first[k] is now the end of key k. */
    for (size_t k = 0, begin = 0; k < n_keys; begin = first[k++])
        if (first[k] - begin > 1)
            qsort(o->events + begin, first[k] - begin, sizeof *o->events,
                  compare);
    free(first);
    return 0;
}

static int clocks_init(struct clocks *c, const struct pp_schedule *s,
                       struct pp_err *err)
{
    size_t n;
    if (pp_walk_init(&c->walk, s, err) || pp_cells_init(&c->cells, s, err) ||
        pp_mul(c->cells.n_cells, N_CLASSES, &n, err))
        return -1;
    c->done = calloc(n, sizeof *c->done);
    c->clock = calloc((size_t)s->graph->n_ranks, sizeof *c->clock);
    c->timings = calloc(pp_schedule_n_compute(s) + 1, sizeof *c->timings);
    if (!c->done || !c->clock || !c->timings)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

int pp_order(const struct pp_schedule *s, struct pp_order *o,
             struct pp_err *err)
{
    static const struct pp_player player = {compute, pass_message, pass_message,
                                            pass_sync};
    struct clocks c = {0};
    int rc = clocks_init(&c, s, err);
    if (!rc)
        rc = pp_walk(&c.walk, &player, &c, err);
    if (rc == PP_AGAIN)
        rc = fail_stuck(&c.walk, err);
    if (!rc)
        rc = sort_events(c.timings, c.n, o, err);
    free(c.done);
    free(c.clock);
    free(c.timings);
    pp_cells_finish(&c.cells);
    pp_walk_finish(&c.walk);
    return rc;
}
