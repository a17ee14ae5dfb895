/* SPDX-License-Identifier: MIT */
/* The checks across rows: message order, and progress.
 * rows.c checks single rows; deadlock.c explains a deadlock. */
#include "schedule/check/check.h"

#include <stdlib.h>

#include "schedule/check/parts.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/ops.h"

/* One end of a message. */
struct end {
    struct pp_action action;
    int row;
    size_t place; /* in its row */
};

static struct end end_of(const struct pp_fifo *f, const struct pp_schedule *s,
                         size_t channel, bool send, size_t at)
{
    const struct pp_channel *c = &f->channels.at[channel];
    struct end e = {.row = send ? c->from : c->to,
                    .place = (send ? &f->send : &f->recv)->place[at]};
    e.action = s->rows[e.row].actions[e.place];
    return e;
}

static int fail_unmatched(const struct end *e, struct pp_err *err)
{
    char text[PP_ACTION_TEXT];
    pp_action_format(e->action, false, text);
    return pp_fail(err, PP_EXIT_NO, "rank %d, action %zu: '%s' is never %s",
                   e->row, e->place, text,
                   pp_is_send(e->action.op) ? "received" : "sent");
}

static bool is_backward(struct pp_action a)
{
    return a.op == PP_SEND_B || a.op == PP_RECV_B;
}

static int fail_order(const struct end *recv, const struct end *send,
                      struct pp_err *err)
{
    char got[PP_ACTION_TEXT], want[PP_ACTION_TEXT];
    pp_action_format(recv->action, false, got);
    pp_action_format(send->action, false, want);
    const char *more = "";
    if (is_backward(recv->action) != is_backward(send->action))
        more = ", which swaps an activation and a gradient";
    return pp_fail(err, PP_EXIT_NO,
                   "rank %d, action %zu: '%s' would receive the message of "
                   "rank %d, action %zu: '%s'%s",
                   recv->row, recv->place, got, send->row, send->place, want,
                   more);
}

static bool same_message(struct pp_action a, struct pp_action b)
{
    return a.op == b.op && a.stage == b.stage && a.peer == b.peer &&
           a.microbatch == b.microbatch && a.slice == b.slice;
}

static int compare_channel(const struct pp_fifo *f, const struct pp_schedule *s,
                           size_t channel, struct pp_err *err)
{
    size_t a = f->send.first[channel], n_send = f->send.first[channel + 1] - a;
    size_t b = f->recv.first[channel], n_recv = f->recv.first[channel + 1] - b;
    for (size_t i = 0; i < n_send && i < n_recv; i++) {
        struct end send = end_of(f, s, channel, true, a + i);
        struct end recv = end_of(f, s, channel, false, b + i);
        if (!same_message(pp_other_end(send.action), recv.action))
            return fail_order(&recv, &send, err);
    }
    if (n_send == n_recv)
        return 0;
    struct end first = n_send > n_recv
                           ? end_of(f, s, channel, true, a + n_recv)
                           : end_of(f, s, channel, false, b + n_send);
    return fail_unmatched(&first, err);
}

int pp_check_messages(struct pp_fifo *f, const struct pp_schedule *s,
                      bool tagged, struct pp_err *err)
{
    pp_fifo_init(f, s, tagged);
    int rc = 0;
    for (size_t ch = 0; ch < f->channels.n && !rc; ch++)
        rc = compare_channel(f, s, ch, err);
    if (rc)
        pp_fifo_finish(f);
    return rc;
}

/* Sets *ends if all ranks reach their ends. */
static int check_progress(const struct pp_schedule *s, const struct pp_fifo *f,
                          bool *ends, struct pp_err *err)
{
    struct pp_ops ops = {0};
    struct pp_paths p = {0};
    int rc = pp_ops_of_schedule(&ops, s, NULL, PP_OPS_STRICT, f,
                                s->channel_depth, false, err);
    if (!rc)
        pp_paths_init(&p, &ops);
    *ends = !rc && pp_paths_heads(&p, NULL);
    pp_paths_finish(&p);
    pp_ops_finish(&ops);
    return rc;
}

int pp_unreduced_stage(const struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    for (int stage = 0; stage < g->n_stages; stage++) {
        const struct pp_row *list = &s->rows[g->stages[stage].row];
        size_t i = 0;
        if (g->stages[stage].frozen)
            continue;
        while (i < list->n && (list->actions[i].op != PP_REDUCE_GRAD ||
                               list->actions[i].stage != stage))
            i++;
        if (i == list->n)
            return stage;
    }
    return -1;
}

int pp_check_order(const struct pp_schedule *s, struct pp_err *err)
{
    struct pp_fifo fifo;
    if (pp_check_rows(s, true, err) || pp_check_messages(&fifo, s, true, err))
        return -1;
    pp_fifo_finish(&fifo);
    return 0;
}

int pp_check(const struct pp_schedule *s, struct pp_err *err)
{
    struct pp_fifo fifo;
    bool ends;
    if (pp_check_rows(s, true, err) || pp_check_messages(&fifo, s, true, err))
        return -1;
    int rc = check_progress(s, &fifo, &ends, err);
    pp_fifo_finish(&fifo);
    return rc || ends ? rc
                      : pp_check_deadlock(s, pp_semantics_find("channel"),
                                          s->channel_depth, err);
}
