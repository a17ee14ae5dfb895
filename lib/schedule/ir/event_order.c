/* SPDX-License-Identifier: MIT */
/* The global order of events: a walk with a clock for each row, and a counting
 * sort of its times. Times other than unit times are first replaced by their
 * ranks. */
#include "schedule/ir/event_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"

/* The part of the mean time that every action takes at least, so that no event
 * comes at the time of one that it waits for. */
static const double least_part = 1e-7;

struct timing {
    struct pp_action action;
    double start, end;
};

struct order_clocks {
    struct pp_walk walk;
    struct pp_completion done;            /* numbers are indices of timings */
    const struct pp_durations *durations; /* NULL: units */
    double least;                         /* added to durations */
    double *clock;                        /* per row */
    struct timing *timings;
    size_t n;
    double ready;      /* the latest end of the visited requirements */
    double pair_start; /* start of the pair whose forward was the last action */
};

/* Returns the time of the message that dep's stage sends for action a. */
static double lag(const struct order_clocks *c, struct pp_action a,
                  struct pp_dep dep)
{
    if (!c->durations || dep.message == PP_N_OPS)
        return 0;
    a.op = (uint8_t)dep.message;
    a.peer = dep.stage;
    return c->durations->time(c->durations->ctx, pp_other_end(a));
}

static int await_timing(void *ctx, struct pp_action a, struct pp_dep dep,
                        size_t number)
{
    struct order_clocks *c = ctx;
    double end = c->timings[number].end + lag(c, a, dep);
    c->ready = end > c->ready ? end : c->ready;
    return 0;
}

static double duration(const struct order_clocks *c, struct pp_action a)
{
    return c->durations   ? c->durations->time(c->durations->ctx, a) + c->least
           : a.op == PP_B ? 2
                          : 1;
}

static void add_timing(struct order_clocks *c, struct pp_action a, double start,
                       double end)
{
    pp_completion_set(&c->done, a, c->n);
    c->clock[c->walk.row] = end;
    c->timings[c->n++] = (struct timing){a, start, end};
}

static int time_compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct order_clocks *c = ctx;
    size_t pc = c->walk.pc[c->walk.row];
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
    double end = c->ready + duration(c, a);
    if (a.overlap)
        end += duration(c, row->actions[pc + 1]);
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
    const struct pp_action *a = &((const struct pp_event *)pa)->action;
    const struct pp_action *b = &((const struct pp_event *)pb)->action;
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
    return completion ? 2 * (size_t)t->end : 2 * (size_t)t->start + 1;
}

static int compare_times(const void *pa, const void *pb)
{
    const double *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

static double rank_of(double time, const double *at, size_t n)
{
    const double *found = bsearch(&time, at, n, sizeof *at, compare_times);
    return (double)(found - at);
}

/* Replaces every time by the number of smaller times. */
static int rank_times(struct timing *t, size_t n, struct pp_err *err)
{
    double *at = calloc(2 * n + 1, sizeof *at);
    size_t k = 0;
    if (!at)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        at[2 * i] = t[i].start;
        at[2 * i + 1] = t[i].end;
    }
    qsort(at, 2 * n, sizeof *at, compare_times);
    for (size_t i = 0; i < 2 * n; i++)
        if (k == 0 || at[i] > at[k - 1])
            at[k++] = at[i];
    for (size_t i = 0; i < n; i++) {
        t[i].start = rank_of(t[i].start, at, k);
        t[i].end = rank_of(t[i].end, at, k);
    }
    free(at);
    return 0;
}

/* Sorts the events: a counting sort by time, then each instant by stage. */
static int sort_events(const struct timing *t, size_t n,
                       struct pp_event_order *o, struct pp_err *err)
{
    size_t n_keys = 2;
    for (size_t i = 0; i < n; i++)
        if (event_key(&t[i], true) + 2 > n_keys)
            n_keys = event_key(&t[i], true) + 2;
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

/* Sets the least time of an action from the mean of all. */
static void set_least(struct order_clocks *c)
{
    const struct pp_schedule *s = c->walk.schedule;
    double sum = 0;
    size_t n = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (pp_is_compute(s->rows[r].actions[i].op)) {
                sum += duration(c, s->rows[r].actions[i]);
                n++;
            }
    c->least = sum > 0 ? least_part * sum / (double)n : 1;
}

int pp_event_order(const struct pp_schedule *s, const struct pp_durations *d,
                   struct pp_event_order *o, struct pp_err *err)
{
    static const struct pp_player player = {.compute = time_compute};
    struct order_clocks c = {.durations = d};
    int rc = clocks_init(&c, s, err);
    if (!rc && d)
        set_least(&c);
    if (!rc)
        rc = pp_walk(&c.walk, &player, &c, err);
    if (rc == PP_AGAIN)
        rc = fail_stuck(&c.walk, err);
    if (!rc)
        rc = d && rank_times(c.timings, c.n, err)
                 ? -1
                 : sort_events(c.timings, c.n, o, err);
    free(c.clock);
    free(c.timings);
    pp_completion_finish(&c.done);
    pp_walk_finish(&c.walk);
    return rc;
}
