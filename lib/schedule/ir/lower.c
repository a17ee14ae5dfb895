/* SPDX-License-Identifier: MIT */
/* Lowering: adds messages in one walk over the global order.
 *
 * A compute action stands at its start, a transfer at the completion of its
 * producer. At unit cost a receive then never delays an action that could have
 * run before it. Both ends of a transfer are listed at once, so every row is a
 * subsequence of one total order, and no channel depth can cause a deadlock. */
#include "schedule/ir/schedule.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/event_order.h"

static void add_action(struct pp_schedule *to, struct pp_action action)
{
    pp_schedule_add(to, to->graph->stages[action.stage].row, action);
}

static void add_transfer(void *ctx, struct pp_action send)
{
    add_action(ctx, send);
    add_action(ctx, pp_other_end(send));
}

static void add_sync(struct pp_schedule *to, int row, enum pp_op op)
{
    const struct pp_row *list = &to->rows[row];
    struct pp_action sync = {
        .stage = -1, .microbatch = -1, .peer = -1, .op = (uint8_t)op};
    if (list->n > 0 && list->actions[list->n - 1].op == op)
        return;
    pp_schedule_add(to, row, sync);
}

/* Adds the syncs once per row: first SYNC_COPIES, so that the copies agree,
 * then SYNC_TIED. */
static void add_syncs(struct pp_schedule *to)
{
    const struct pp_graph *g = to->graph;
    for (int s = 0; g->n_copies > 1 && s < g->n_stages; s++)
        add_sync(to, g->stages[s].row, PP_SYNC_COPIES);
    for (int s = 0; s < g->n_stages; s++) {
        int original = pp_original(g, s);
        if ((original == g->tied[0] || original == g->tied[1]))
            add_sync(to, g->stages[s].row, PP_SYNC_TIED);
    }
}

static void add_all(struct pp_schedule *to, const struct pp_event_order *o)
{
    for (size_t i = 0; i < o->n; i++) {
        struct pp_action action = o->events[i].action;
        if (o->events[i].completion)
            pp_transfers(to->graph, action, add_transfer, to);
        else
            add_action(to, action);
    }
    add_syncs(to);
}

/* The stages of a row whose gradients are complete and not yet reduced. */
struct due {
    size_t *left; /* by stage: weight gradients still to come */
    int32_t *stages;
    size_t n;
};

/* Rows from a file may name stages that do not exist; the checker says so. */
static bool adds_gradients(const struct pp_schedule *s, struct pp_action a)
{
    return a.stage >= 0 && a.stage < s->graph->n_stages &&
           pp_adds_gradients(s->graph, a);
}

static void add_due(struct pp_schedule *to, int row, struct due *due)
{
    for (size_t i = 0; i < due->n; i++) {
        struct pp_action reduce = {.stage = due->stages[i],
                                   .microbatch = -1,
                                   .peer = -1,
                                   .op = PP_REDUCE_GRAD};
        pp_schedule_add(to, row, reduce);
    }
    due->n = 0;
}

/* Copies a row with its reductions. Each stands before the next action that is
 * not a message: what other ranks wait for goes first. */
static void add_reductions(struct pp_schedule *to, const struct pp_row *from,
                           int row, struct due *due)
{
    for (size_t i = 0; i < from->n; i++) {
        struct pp_action next = from->actions[i];
        bool message = pp_is_message(next.op);
        if (!message)
            add_due(to, row, due);
        pp_schedule_add(to, row, next);
        if (adds_gradients(to, next) && --due->left[next.stage] == 0)
            due->stages[due->n++] = next.stage;
    }
    add_due(to, row, due);
}

static void count_gradients(const struct pp_schedule *s, size_t *n)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (adds_gradients(s, a))
                n[a.stage]++;
        }
}

void pp_lower_collectives(struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    size_t n = (size_t)g->n_stages;
    pp_lower_sharding(s);
    if (!g->replicas || pp_schedule_reduces(s))
        return;
    struct due due = {pp_calloc(n, sizeof *due.left),
                      pp_calloc(n, sizeof *due.stages), 0};
    struct pp_schedule woven = {0};
    pp_schedule_init(&woven, g, s->kind, s->n_microbatches);
    woven.channel_depth = s->channel_depth;
    count_gradients(s, due.left);
    for (int r = 0; r < g->n_rows; r++)
        add_reductions(&woven, &s->rows[r], r, &due);
    struct pp_schedule old = *s;
    *s = woven;
    woven = old;
    pp_schedule_finish(&woven);
    free(due.left);
    free(due.stages);
}

void pp_lower_syncs(struct pp_schedule *s)
{
    pp_lower_collectives(s);
    add_syncs(s);
}

static bool is_kept(struct pp_action a)
{
    return a.op >= PP_REDUCE_GRAD && pp_has_stage(a.op);
}

/* Appends the kept actions of from's row up to its next compute action or its
 * end. */
static void add_kept(struct pp_schedule *to, const struct pp_row *from,
                     size_t *at)
{
    for (; *at < from->n && !pp_is_compute(from->actions[*at].op); ++*at)
        if (is_kept(from->actions[*at]))
            add_action(to, from->actions[*at]);
}

/* Puts the kept actions of old back into the rows of lowered, which have the
 * same compute actions. */
static void restore_kept(const struct pp_schedule *old,
                         struct pp_schedule *lowered)
{
    struct pp_schedule woven;
    pp_schedule_init(&woven, old->graph, old->kind, old->n_microbatches);
    woven.channel_depth = old->channel_depth;
    for (int r = 0; r < old->graph->n_rows; r++) {
        size_t at = 0;
        for (size_t i = 0; i < lowered->rows[r].n; i++) {
            struct pp_action next = lowered->rows[r].actions[i];
            bool compute = pp_is_compute(next.op);
            if (compute || !pp_has_stage(next.op)) {
                add_kept(&woven, &old->rows[r], &at);
            }
            at += compute;
            pp_schedule_add(&woven, r, next);
        }
        add_kept(&woven, &old->rows[r], &at);
    }
    pp_schedule_finish(lowered);
    *lowered = woven;
}

static bool keeps_any(const struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (is_kept(s->rows[r].actions[i]))
                return true;
    return false;
}

static int lower(struct pp_schedule *s, const struct pp_costs *costs,
                 struct pp_err *err)
{
    struct pp_event_order o = {0};
    struct pp_schedule lowered;
    int rc = pp_event_order(s, costs, &o, err);
    if (rc)
        goto out;
    pp_schedule_init(&lowered, s->graph, s->kind, s->n_microbatches);
    lowered.channel_depth = s->channel_depth;
    add_all(&lowered, &o);
    if (keeps_any(s))
        restore_kept(s, &lowered);
    pp_lower_collectives(&lowered);
    pp_schedule_finish(s);
    *s = lowered;
out:
    free(o.events);
    return rc;
}

int pp_lower(struct pp_schedule *s, struct pp_err *err)
{
    return lower(s, NULL, err);
}

static bool is_passed(struct pp_action a)
{
    return pp_is_message(a.op) || !pp_has_stage(a.op);
}

int pp_lower_again(struct pp_schedule *s, const struct pp_costs *costs,
                   struct pp_err *err)
{
    for (int r = 0; r < s->graph->n_rows; r++) {
        struct pp_row *row = &s->rows[r];
        size_t n = 0;
        for (size_t i = 0; i < row->n; i++)
            if (!is_passed(row->actions[i]))
                row->actions[n++] = row->actions[i];
        row->n = n;
    }
    return lower(s, costs, err);
}
