/* SPDX-License-Identifier: MIT */
/* The checks across rows: message order, and progress by a walk of all rows.
 * check_rows.c checks single rows; deadlock.c explains a deadlock. */
#include "schedule/check/check.h"

#include <stdlib.h>

#include "schedule/check/check_parts.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"

static size_t channel_of_message(const struct pp_fifo *f, struct pp_action a,
                                 int row, int peer)
{
    if (f->tagged)
        return pp_channel_of(&f->channels, a, row, peer);
    return pp_is_send(a.op) ? pp_channel_between(&f->channels, row, peer)
                            : pp_channel_between(&f->channels, peer, row);
}

/* Collects all SENDs or all RECVs by channel. first has n + 2 zeroes at the
 * start. */
static int collect_ends(const struct pp_fifo *f, const struct pp_schedule *s,
                        bool sends, struct pp_end **at, size_t *first)
{
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < s->graph->n_rows; r++)
            for (size_t i = 0; i < s->rows[r].n; i++) {
                struct pp_action a = s->rows[r].actions[i];
                if (sends ? !pp_is_send(a.op) : !pp_is_recv(a.op))
                    continue;
                size_t ch =
                    channel_of_message(f, a, r, s->graph->stages[a.peer].row);
                if (pass == 0)
                    first[ch + 2]++, n++;
                else
                    (*at)[first[ch + 1]++] = (struct pp_end){a, r, i};
            }
        if (pass == 1)
            break;
        *at = calloc(n + 1, sizeof **at);
        if (!*at)
            return -1;
        for (size_t i = 0; i < f->channels.n; i++)
            first[i + 2] += first[i + 1];
    }
    return 0;
}

static int fail_unmatched(const struct pp_end *e, struct pp_err *err)
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

static int fail_order(const struct pp_end *recv, const struct pp_end *send,
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

static int compare_channel(const struct pp_end *s, size_t n_send,
                           const struct pp_end *r, size_t n_recv,
                           struct pp_err *err)
{
    for (size_t i = 0; i < n_send && i < n_recv; i++)
        if (!same_message(pp_other_end(s[i].action), r[i].action))
            return fail_order(&r[i], &s[i], err);
    if (n_send == n_recv)
        return 0;
    return fail_unmatched(n_send > n_recv ? &s[n_recv] : &r[n_send], err);
}

int pp_fifo_init(struct pp_fifo *f, const struct pp_schedule *s, bool tagged,
                 struct pp_err *err)
{
    *f = (struct pp_fifo){.tagged = tagged};
    if (pp_channels_init(&f->channels, s->graph, err))
        return -1;
    size_t n = f->channels.n;
    size_t *first = calloc(n + 2, sizeof *first);
    f->first = calloc(n + 2, sizeof *f->first);
    int rc = -1;
    if (!first || !f->first || collect_ends(f, s, true, &f->send, f->first) ||
        collect_ends(f, s, false, &f->recv, first)) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto out;
    }
    for (size_t ch = 0; ch < n; ch++)
        if (compare_channel(
                f->send + f->first[ch], f->first[ch + 1] - f->first[ch],
                f->recv + first[ch], first[ch + 1] - first[ch], err))
            goto out;
    f->n_messages = f->first[n];
    rc = 0;
out:
    free(first);
    if (rc)
        pp_fifo_finish(f);
    return rc;
}

void pp_fifo_finish(struct pp_fifo *f)
{
    pp_channels_finish(&f->channels);
    free(f->send);
    free(f->recv);
    free(f->first);
    *f = (struct pp_fifo){0};
}

struct counters {
    struct pp_walk walk;
    size_t *sent, *posted, *received; /* per channel */
};

static int count_send(void *ctx, struct pp_action a, int peer,
                      struct pp_err *err)
{
    struct counters *c = ctx;
    size_t ch = pp_channel_of(&c->walk.channels, a, c->walk.row, peer);
    (void)err;
    size_t depth = (size_t)c->walk.schedule->channel_depth;
    bool room = depth == 0 ? c->posted[ch] > c->sent[ch]
                           : c->sent[ch] - c->received[ch] < depth;
    if (!room)
        return PP_AGAIN;
    c->sent[ch]++;
    return 0;
}

static int count_recv(void *ctx, struct pp_action a, int peer,
                      struct pp_err *err)
{
    struct counters *c = ctx;
    size_t ch = pp_channel_of(&c->walk.channels, a, c->walk.row, peer);
    (void)err;
    c->posted[ch] = c->received[ch] + 1;
    if (c->sent[ch] == c->received[ch])
        return PP_AGAIN;
    c->received[ch]++;
    return 0;
}

static int check_progress(const struct pp_schedule *s, struct pp_err *err)
{
    static const struct pp_player player = {.send = count_send,
                                            .recv = count_recv};
    struct counters c = {0};
    if (pp_walk_init(&c.walk, s, err))
        return -1;
    size_t n = c.walk.channels.n + 1;
    c.sent = calloc(n, sizeof *c.sent);
    c.posted = calloc(n, sizeof *c.posted);
    c.received = calloc(n, sizeof *c.received);
    int rc = c.sent && c.posted && c.received
                 ? pp_walk(&c.walk, &player, &c, err)
                 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    free(c.sent);
    free(c.posted);
    free(c.received);
    pp_walk_finish(&c.walk);
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
    if (pp_check_rows(s, true, err) || pp_fifo_init(&fifo, s, true, err))
        return -1;
    pp_fifo_finish(&fifo);
    return 0;
}

int pp_check(const struct pp_schedule *s, struct pp_err *err)
{
    if (pp_check_order(s, err))
        return -1;
    int rc = check_progress(s, err);
    if (rc != PP_AGAIN)
        return rc;
    /* The walk is stuck; the event graph explains why. */
    if (pp_check_deadlock(s, pp_semantics_find("channel"), s->channel_depth,
                          err))
        return -1;
    return pp_fail(err, PP_EXIT_NO, "deadlock at channel depth %d",
                   s->channel_depth);
}
