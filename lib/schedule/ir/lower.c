/* SPDX-License-Identifier: MIT */
/* Messages are placed by one walk over the global order. A transfer stands at
 * its producer's completion, compute actions at their start: a receive then
 * never delays, at unit cost, an action that could have run before it, and
 * since both ends of a transfer are listed at once, all rows are subsequences
 * of one total order, which is why no channel depth can make them wait for each
 * other in a circle. */
#include "sched/lower.h"

#include <stdlib.h>

#include "sched/deps.h"
#include "sched/order.h"

struct adding {
    struct pp_schedule *to;
    struct pp_err *err;
};

static int add(struct adding *a, struct pp_action action)
{
    int rank = a->to->graph->stages[action.stage].rank;
    return pp_schedule_add(a->to, rank, action, a->err);
}

static int add_transfer(void *ctx, struct pp_action send)
{
    return add(ctx, send) || add(ctx, pp_other_end(send)) ? -1 : 0;
}

static int add_sync(struct adding *a, int rank, enum pp_op op)
{
    const struct pp_row *row = &a->to->rows[rank];
    struct pp_action sync = {
        .stage = -1, .microbatch = -1, .peer = -1, .op = (uint8_t)op};
    if (row->n > 0 && row->actions[row->n - 1].op == op)
        return 0;
    return pp_schedule_add(a->to, rank, sync, a->err);
}

/* Once on every rank: first the copies of the weights agree, then in each of
 * them embedding and head. */
static int add_syncs(struct adding *a)
{
    const struct pp_graph *g = a->to->graph;
    for (int s = 0; g->n_copies > 1 && s < g->n_stages; s++)
        if (add_sync(a, g->stages[s].rank, PP_SYNC_COPIES))
            return -1;
    for (int s = 0; s < g->n_stages; s++) {
        int original = pp_original(g, s);
        if ((original == g->tied[0] || original == g->tied[1]) &&
            add_sync(a, g->stages[s].rank, PP_SYNC_TIED))
            return -1;
    }
    return 0;
}

static int add_all(struct adding *a, const struct pp_order *o)
{
    for (size_t i = 0; i < o->n; i++) {
        struct pp_action action = o->events[i].action;
        if (o->events[i].completion
                ? pp_transfers(a->to->graph, action, add_transfer, a)
                : add(a, action))
            return -1;
    }
    return add_syncs(a);
}

int pp_lower_syncs(struct pp_schedule *s, struct pp_err *err)
{
    return add_syncs(&(struct adding){s, err});
}

static bool is_kept(struct pp_action a)
{
    return a.op == PP_UNSHARD || a.op == PP_RESHARD || a.op == PP_REDUCE_GRAD;
}

/* Appends what from's row keeps up to its next compute action, or its end. */
static int add_kept(struct adding *a, const struct pp_row *from, size_t *at)
{
    for (; *at < from->n && !pp_is_compute(from->actions[*at].op); ++*at)
        if (is_kept(from->actions[*at]) && add(a, from->actions[*at]))
            return -1;
    return 0;
}

/* Puts the actions of old that are neither compute nor message back into the
 * rows of lowered, whose computes are the same. */
static int weave(const struct pp_schedule *old, struct pp_schedule *lowered,
                 struct pp_err *err)
{
    struct pp_schedule woven;
    if (pp_schedule_init(&woven, old->graph, old->kind, old->n_microbatches,
                         err))
        return -1;
    woven.channel_depth = old->channel_depth;
    struct adding a = {&woven, err};
    int rc = 0;
    for (int r = 0; r < old->graph->n_ranks && !rc; r++) {
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
    for (int r = 0; r < s->graph->n_ranks; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (is_kept(s->rows[r].actions[i]))
                return true;
    return false;
}

int pp_lower(struct pp_schedule *s, struct pp_err *err)
{
    struct pp_order o = {0};
    struct pp_schedule lowered;
    if (pp_order(s, &o, err))
        return -1;
    int rc =
        pp_schedule_init(&lowered, s->graph, s->kind, s->n_microbatches, err);
    if (rc)
        goto out;
    lowered.channel_depth = s->channel_depth;
    rc = add_all(&(struct adding){&lowered, err}, &o);
    if (!rc && keeps_any(s))
        rc = weave(s, &lowered, err);
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
    struct pp_order o = {0};
    if (pp_order(s, &o, err))
        return -1;
    int rc =
        pp_schedule_init(dst, merged_graph, s->kind, s->n_microbatches, err);
    if (rc)
        goto out;
    dst->channel_depth = s->channel_depth;
    struct adding a = {dst, err};
    for (size_t i = 0; i < o.n && !rc; i++) {
        o.events[i].action.overlap = 0;
        if (!o.events[i].completion)
            rc = add(&a, o.events[i].action);
    }
    if (!rc)
        rc = add_syncs(&a);
    if (rc)
        pp_schedule_finish(dst);
out:
    free(o.events);
    return rc;
}
