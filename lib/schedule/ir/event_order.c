/* SPDX-License-Identifier: MIT */
/* The global order of events: the heads of the graph of operations, and a
 * counting sort of them. Times other than unit times are first replaced by
 * their ranks. */
#include "schedule/ir/event_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/ir/ops.h"

/* The part of the mean time that every action takes at least, so that no event
 * comes at the time of one that it waits for. */
static const double least_part = 1e-7;

struct timing {
    struct pp_action action;
    double start, end;
};

/* The times of compute actions and of the messages between them. */
struct order_times {
    const struct pp_costs *costs; /* NULL: units */
    double least;                 /* added to compute actions */
};

static double order_time(const void *ctx, struct pp_action a)
{
    const struct order_times *t = ctx;
    if (pp_is_compute(a.op))
        return t->costs       ? t->costs->time(t->costs->ctx, a) + t->least
               : a.op == PP_B ? 2
                              : 1;
    return t->costs && pp_is_send(a.op) ? t->costs->time(t->costs->ctx, a) : 0;
}

/* Returns the action at which a row stopped, or its end. Messages are no
 * operations, and copies are not of the row. */
static size_t stopped_at(const struct pp_row *list, int32_t ops)
{
    size_t i = 0;
    for (; i < list->n; i++)
        if (!pp_is_message(list->actions[i].op) &&
            !pp_is_copy(list->actions[i].op) && ops-- == 0)
            break;
    return i;
}

static int fail_stuck(const struct pp_schedule *s, const struct pp_paths *p,
                      struct pp_err *err)
{
    char text[400] = "", cell[PP_ACTION_TEXT];
    size_t n = 0;
    for (int r = 0; r < s->graph->n_rows && n < sizeof text; r++) {
        size_t at = stopped_at(&s->rows[r], p->at[r] - p->ops->first_order[r]);
        if (at == s->rows[r].n)
            continue;
        pp_action_format(s->rows[r].actions[at], false, cell);
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
static void rank_times(struct timing *t, size_t n)
{
    double *at = pp_calloc(2 * n + 1, sizeof *at);
    size_t k = 0;
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
}

/* Sorts the events: a counting sort by time, then each instant by stage. */
static void sort_events(const struct timing *t, size_t n,
                        struct pp_event_order *o)
{
    size_t n_keys = 2;
    for (size_t i = 0; i < n; i++)
        if (event_key(&t[i], true) + 2 > n_keys)
            n_keys = event_key(&t[i], true) + 2;
    size_t *first = pp_calloc(n_keys + 1, sizeof *first);
    o->n = 2 * n;
    o->events = pp_calloc(o->n + 1, sizeof *o->events);
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
}

/* Sets the least time of an action from the mean of all. */
static void set_least(struct order_times *t, const struct pp_schedule *s)
{
    double sum = 0;
    size_t n = pp_schedule_count(s, PP_COMPUTE_OPS);
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (pp_is_compute(s->rows[r].actions[i].op))
                sum += order_time(t, s->rows[r].actions[i]);
    t->least = sum > 0 ? least_part * sum / (double)n : 1;
}

/* Lists when compute actions run; a pair runs as a whole. */
static size_t list_timings(const struct pp_schedule *s,
                           const struct pp_paths *p, struct timing *timings)
{
    size_t n = 0, op = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            const struct pp_row *list = &s->rows[r];
            const struct pp_action *a = &list->actions[i];
            size_t first = op - pp_is_second_of_pair(list, i);
            size_t last = op + a->overlap;
            if (pp_is_compute(a->op))
                timings[n++] = (struct timing){
                    *a, p->start[first], p->start[last] + p->ops->time[last]};
            op += !pp_is_message(a->op);
        }
    return n;
}

static void order_events(const struct pp_schedule *s, const struct pp_paths *p,
                         bool units, struct pp_event_order *o)
{
    struct timing *t =
        pp_calloc(pp_schedule_count(s, PP_COMPUTE_OPS) + 1, sizeof *t);
    size_t n = list_timings(s, p, t);
    if (!units)
        rank_times(t, n);
    sort_events(t, n, o);
    free(t);
}

int pp_event_order(const struct pp_schedule *s, const struct pp_costs *costs,
                   struct pp_event_order *o, struct pp_err *err)
{
    struct order_times times = {.costs = costs};
    const struct pp_costs own = {.time = order_time, .ctx = &times};
    struct pp_ops ops = {0};
    struct pp_paths p = {0};
    if (costs)
        set_least(&times, s);
    int rc =
        pp_ops_of_schedule(&ops, s, &own, PP_OPS_INPUTS, NULL, 0, false, err);
    if (!rc)
        pp_paths_init(&p, &ops);
    if (!rc && !pp_paths_heads(&p, NULL))
        rc = fail_stuck(s, &p, err);
    if (!rc)
        order_events(s, &p, !costs, o);
    pp_paths_finish(&p);
    pp_ops_finish(&ops);
    return rc;
}
