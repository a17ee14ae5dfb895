/* SPDX-License-Identifier: MIT */
/* Lowering: adds messages in one walk over the global order.
 *
 * A compute action stands at its start, a transfer at the completion of its
 * producer. At unit cost a receive then never delays an action that could have
 * run before it. Both ends of a transfer are listed at once, so every row is a
 * subsequence of one total order, and no channel depth can cause a deadlock. */
#include "schedule/ir/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"

/* One global order of the compute actions. Every action takes one unit of time
 * (B takes two, as I and W). It starts when its row is free and its
 * requirements are met. It gives two events, its start and its completion.
 * Sorted by time, completions first, ties by stage and microbatch, the events
 * are a linear extension of the rows and of deps. An overlap pair is one piece
 * of work: it waits for the requirements of both actions, and its two starts
 * are adjacent. */
struct event {
    struct pp_action action;
    bool completion;
};

struct order {
    struct event *events; /* 2 per compute action; malloc'ed */
    size_t n;
};

struct timing {
    struct pp_action action;
    size_t start, end;
};

struct order_clocks {
    struct pp_walk walk;
    struct pp_completion done; /* numbers are indices of timings */
    size_t *clock;             /* per row */
    struct timing *timings;
    size_t n;
    size_t ready;      /* the latest end of the visited requirements */
    size_t pair_start; /* start of the pair whose forward was the last action */
};

static int await_timing(void *ctx, struct pp_action a, struct pp_dep dep,
                        size_t number)
{
    struct order_clocks *c = ctx;
    size_t end = c->timings[number].end;
    (void)a, (void)dep;
    c->ready = end > c->ready ? end : c->ready;
    return 0;
}

static size_t duration(struct pp_action a)
{
    return a.op == PP_B ? 2 : 1;
}

static void add_timing(struct order_clocks *c, struct pp_action a, size_t start,
                       size_t end)
{
    pp_completion_set(&c->done, a, c->n);
    c->clock[c->walk.row] = end;
    c->timings[c->n++] = (struct timing){a, start, end};
}

static int time_compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct order_clocks *c = ctx;
    size_t pc = c->walk.pc[c->walk.row], end;
    const struct pp_row *row = &c->walk.schedule->rows[c->walk.row];
    (void)err;
    if (pp_is_second_of_pair(row, pc)) {
        add_timing(c, a, c->pair_start, c->clock[c->walk.row]);
        return 0;
    }
    c->ready = c->clock[c->walk.row];
    if (pp_completion_visit(&c->done, &row->actions[pc], await_timing, c))
        return PP_AGAIN;
    c->pair_start = c->ready;
    end = c->ready + duration(a);
    if (a.overlap)
        end += duration(row->actions[pc + 1]);
    add_timing(c, a, c->ready, end);
    return 0;
}

static int fail_stuck(const struct pp_walk *w, struct pp_err *err)
{
    const struct pp_schedule *s = w->schedule;
    char text[400] = "", cell[PP_ACTION_TEXT];
    size_t n = 0;
    for (int r = 0; r < s->graph->n_rows && n < sizeof text; r++) {
        if (w->pc[r] == s->rows[r].n)
            continue;
        pp_action_format(s->rows[r].actions[w->pc[r]], false, cell);
        n +=
            (size_t)snprintf(text + n, sizeof text - n,
                             "%srank %d waits in '%s'", n ? ", " : "", r, cell);
    }
    return pp_fail(err, PP_EXIT_NO, "this order deadlocks: %s", text);
}

static int compare_events(const void *pa, const void *pb)
{
    const struct pp_action *a = &((const struct event *)pa)->action;
    const struct pp_action *b = &((const struct event *)pb)->action;
    /* The first action of a pair starts first; no other action of the row
     * starts at that time. */
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

/* Sorts the events: a counting sort by time, then each instant by stage. */
static int sort_events(const struct timing *t, size_t n, struct order *o,
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
                (struct event){t[i].action, c};
    /* first[k] is now the end of key k. */
    for (size_t k = 0, begin = 0; k < n_keys; begin = first[k++])
        if (first[k] - begin > 1)
            qsort(o->events + begin, first[k] - begin, sizeof *o->events,
                  compare_events);
    free(first);
    return 0;
}

static int clocks_init(struct order_clocks *c, const struct pp_schedule *s,
                       struct pp_err *err)
{
    if (pp_walk_init(&c->walk, s, err) || pp_completion_init(&c->done, s, err))
        return -1;
    c->clock = calloc((size_t)s->graph->n_rows, sizeof *c->clock);
    c->timings = calloc(pp_schedule_n_compute(s) + 1, sizeof *c->timings);
    if (!c->clock || !c->timings)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

static int list_events(const struct pp_schedule *s, struct order *o,
                       struct pp_err *err)
{
    static const struct pp_player player = {.compute = time_compute};
    struct order_clocks c = {0};
    int rc = clocks_init(&c, s, err);
    if (!rc)
        rc = pp_walk(&c.walk, &player, &c, err);
    if (rc == PP_AGAIN)
        rc = fail_stuck(&c.walk, err);
    if (!rc)
        rc = sort_events(c.timings, c.n, o, err);
    free(c.clock);
    free(c.timings);
    pp_completion_finish(&c.done);
    pp_walk_finish(&c.walk);
    return rc;
}

struct lower_output {
    struct pp_schedule *to;
    struct pp_err *err;
};

static int add_action(struct lower_output *a, struct pp_action action)
{
    int row = a->to->graph->stages[action.stage].row;
    return pp_schedule_add(a->to, row, action, a->err);
}

static int add_transfer(void *ctx, struct pp_action send)
{
    return add_action(ctx, send) || add_action(ctx, pp_other_end(send)) ? -1
                                                                        : 0;
}

static int add_sync(struct lower_output *a, int row, enum pp_op op)
{
    const struct pp_row *list = &a->to->rows[row];
    struct pp_action sync = {
        .stage = -1, .microbatch = -1, .peer = -1, .op = (uint8_t)op};
    if (list->n > 0 && list->actions[list->n - 1].op == op)
        return 0;
    return pp_schedule_add(a->to, row, sync, a->err);
}

/* Adds the syncs once per row: first SYNC_COPIES, so that the copies agree,
 * then SYNC_TIED. */
static int add_syncs(struct lower_output *a)
{
    const struct pp_graph *g = a->to->graph;
    for (int s = 0; g->n_copies > 1 && s < g->n_stages; s++)
        if (add_sync(a, g->stages[s].row, PP_SYNC_COPIES))
            return -1;
    for (int s = 0; s < g->n_stages; s++) {
        int original = pp_original(g, s);
        if ((original == g->tied[0] || original == g->tied[1]) &&
            add_sync(a, g->stages[s].row, PP_SYNC_TIED))
            return -1;
    }
    return 0;
}

static int add_all(struct lower_output *a, const struct order *o)
{
    for (size_t i = 0; i < o->n; i++) {
        struct pp_action action = o->events[i].action;
        if (o->events[i].completion
                ? pp_transfers(a->to->graph, action, add_transfer, a)
                : add_action(a, action))
            return -1;
    }
    return add_syncs(a);
}

int pp_lower_syncs(struct pp_schedule *s, struct pp_err *err)
{
    return add_syncs(&(struct lower_output){s, err});
}

static bool is_kept(struct pp_action a)
{
    return a.op == PP_UNSHARD || a.op == PP_RESHARD || a.op == PP_REDUCE_GRAD;
}

/* Appends the kept actions of from's row up to its next compute action or its
 * end. */
static int add_kept(struct lower_output *a, const struct pp_row *from,
                    size_t *at)
{
    for (; *at < from->n && !pp_is_compute(from->actions[*at].op); ++*at)
        if (is_kept(from->actions[*at]) && add_action(a, from->actions[*at]))
            return -1;
    return 0;
}

/* Puts the kept actions of old back into the rows of lowered, which have the
 * same compute actions. */
static int restore_kept(const struct pp_schedule *old,
                        struct pp_schedule *lowered, struct pp_err *err)
{
    struct pp_schedule woven;
    if (pp_schedule_init(&woven, old->graph, old->kind, old->n_microbatches,
                         err))
        return -1;
    woven.channel_depth = old->channel_depth;
    struct lower_output a = {&woven, err};
    int rc = 0;
    for (int r = 0; r < old->graph->n_rows && !rc; r++) {
        size_t at = 0;
        for (size_t i = 0; i < lowered->rows[r].n && !rc; i++) {
            struct pp_action next = lowered->rows[r].actions[i];
            bool compute = pp_is_compute(next.op);
            if (compute || !pp_has_stage(next.op))
                rc = add_kept(&a, &old->rows[r], &at);
            at += compute;
            rc = rc || pp_schedule_add(&woven, r, next, err) ? -1 : 0;
        }
        rc = rc || add_kept(&a, &old->rows[r], &at) ? -1 : 0;
    }
    pp_schedule_finish(lowered);
    *lowered = woven;
    return rc;
}

static bool keeps_any(const struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (is_kept(s->rows[r].actions[i]))
                return true;
    return false;
}

int pp_lower(struct pp_schedule *s, struct pp_err *err)
{
    struct order o = {0};
    struct pp_schedule lowered;
    if (list_events(s, &o, err))
        return -1;
    int rc =
        pp_schedule_init(&lowered, s->graph, s->kind, s->n_microbatches, err);
    if (rc)
        goto out;
    lowered.channel_depth = s->channel_depth;
    rc = add_all(&(struct lower_output){&lowered, err}, &o);
    if (!rc && keeps_any(s))
        rc = restore_kept(s, &lowered, err);
    if (!rc) {
        struct pp_schedule old = *s;
        *s = lowered;
        lowered = old;
    }
    pp_schedule_finish(&lowered);
out:
    free(o.events);
    return rc;
}

int pp_schedule_merge(const struct pp_schedule *s,
                      const struct pp_graph *merged_graph,
                      struct pp_schedule *dst, struct pp_err *err)
{
    struct order o = {0};
    if (list_events(s, &o, err))
        return -1;
    int rc =
        pp_schedule_init(dst, merged_graph, s->kind, s->n_microbatches, err);
    if (rc)
        goto out;
    dst->channel_depth = s->channel_depth;
    struct lower_output a = {dst, err};
    for (size_t i = 0; i < o.n && !rc; i++) {
        o.events[i].action.overlap = 0;
        if (!o.events[i].completion)
            rc = add_action(&a, o.events[i].action);
    }
    if (!rc)
        rc = add_syncs(&a);
    if (rc)
        pp_schedule_finish(dst);
out:
    free(o.events);
    return rc;
}
