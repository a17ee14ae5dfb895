/* SPDX-License-Identifier: MIT */
/* The dynamic half of the check: every channel receives in the order it sends,
 * and all ranks reach the end. Rows by themselves are check_rows.c's. */
#include "sched/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/check_rows.h"
#include "sched/deps.h"
#include "sched/walk.h"

/* --- order on a channel --- */

struct end {
    struct pp_action action;
    int rank;
    size_t place; /* in its row */
};

struct ends { /* all SENDs, or all RECVs, by channel */
    struct end *at;
    size_t *first; /* per channel; n + 1 */
};

static int collect(const struct pp_schedule *s, const struct pp_channels *c,
                   bool sends, struct ends *e)
{
    size_t n = 0;
    e->first = calloc(c->n + 2, sizeof *e->first);
    for (int pass = 0; pass < 2 && e->first; pass++) {
        for (int r = 0; r < s->graph->n_ranks; r++)
            for (size_t i = 0; i < s->rows[r].n; i++) {
                struct pp_action a = s->rows[r].actions[i];
                if (sends ? !pp_is_send(a.op) : !pp_is_recv(a.op))
                    continue;
                size_t ch =
                    pp_channel_of(c, a, r, s->graph->stages[a.peer].rank);
                if (pass == 0)
                    e->first[ch + 2]++;
                else
                    e->at[e->first[ch + 1]++] = (struct end){a, r, i};
                n++;
            }
        if (pass == 1)
            break;
        e->at = calloc(n + 1, sizeof *e->at);
        if (!e->at)
            return -1;
        for (size_t i = 0; i < c->n; i++)
            e->first[i + 2] += e->first[i + 1];
    }
    return e->first ? 0 : -1;
}

static int fail_unmatched(const struct end *e, struct pp_err *err)
{
    char text[PP_ACTION_TEXT];
    pp_action_format(e->action, false, text);
    return pp_fail(err, PP_EXIT_NO, "rank %d, action %zu: '%s' is never %s",
                   e->rank, e->place, text,
                   pp_is_send(e->action.op) ? "received" : "sent");
}

static int fail_fifo(const struct end *recv, const struct end *send,
                     struct pp_err *err)
{
    char got[PP_ACTION_TEXT], want[PP_ACTION_TEXT];
    pp_action_format(recv->action, false, got);
    pp_action_format(send->action, false, want);
    return pp_fail(err, PP_EXIT_NO,
                   "rank %d, action %zu: '%s' would receive the message of "
                   "rank %d, action %zu: '%s'",
                   recv->rank, recv->place, got, send->rank, send->place, want);
}

static bool same(struct pp_action a, struct pp_action b)
{
    return a.stage == b.stage && a.peer == b.peer &&
           a.microbatch == b.microbatch && a.slice == b.slice;
}

static int compare_channel(const struct ends *send, const struct ends *recv,
                           size_t ch, struct pp_err *err)
{
    size_t n_send = send->first[ch + 1] - send->first[ch];
    size_t n_recv = recv->first[ch + 1] - recv->first[ch];
    const struct end *s = send->at + send->first[ch];
    const struct end *r = recv->at + recv->first[ch];
    for (size_t i = 0; i < n_send && i < n_recv; i++)
        if (!same(pp_other_end(s[i].action), r[i].action))
            return fail_fifo(&r[i], &s[i], err);
    if (n_send == n_recv)
        return 0;
    return fail_unmatched(n_send > n_recv ? &s[n_recv] : &r[n_send], err);
}

static int check_channels(const struct pp_schedule *s,
                          const struct pp_channels *c, struct pp_err *err)
{
    struct ends send = {0}, recv = {0};
    int rc = collect(s, c, true, &send) || collect(s, c, false, &recv)
                 ? pp_fail(err, PP_EXIT_SYSTEM, "out of memory")
                 : 0;
    for (size_t ch = 0; ch < c->n && !rc; ch++)
        rc = compare_channel(&send, &recv, ch, err);
    free(send.at);
    free(send.first);
    free(recv.at);
    free(recv.first);
    return rc;
}

/* --- progress --- */

struct counters {
    struct pp_walk walk;
    int depth;
    size_t *sent, *posted, *received; /* per channel */
};

static int compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    (void)ctx, (void)a, (void)err;
    return 0;
}

static int send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct counters *c = ctx;
    size_t ch = pp_channel_of(&c->walk.channels, a, c->walk.rank, peer);
    (void)err;
    bool room = c->depth == 0
                    ? c->posted[ch] > c->sent[ch]
                    : c->sent[ch] - c->received[ch] < (size_t)c->depth;
    if (!room)
        return PP_AGAIN;
    c->sent[ch]++;
    return 0;
}

static int recv(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct counters *c = ctx;
    size_t ch = pp_channel_of(&c->walk.channels, a, c->walk.rank, peer);
    (void)err;
    c->posted[ch] = c->received[ch] + 1;
    if (c->sent[ch] == c->received[ch])
        return PP_AGAIN;
    c->received[ch]++;
    return 0;
}

/* 0 when all ranks reach the end at that depth, PP_AGAIN when they do not. */
static int progress(struct counters *c, int depth, struct pp_err *err)
{
    static const struct pp_player player = {compute, send, recv, compute};
    size_t bytes = c->walk.channels.n * sizeof *c->sent;
    c->depth = depth;
    memset(c->sent, 0, bytes);
    memset(c->posted, 0, bytes);
    memset(c->received, 0, bytes);
    return pp_walk(&c->walk, &player, c, err);
}

/* The smallest depth above `stuck` that lets all ranks reach the end; 0 when
 * none does. More depth never hurts, so doubling and halving finds it. */
static int curing_depth(struct counters *c, int stuck, struct pp_err *err)
{
    int low = stuck, high = stuck + 1, limit = 1;
    for (int r = 0; r < c->walk.schedule->graph->n_ranks; r++) {
        size_t n = c->walk.schedule->rows[r].n;
        if (n > (size_t)limit)
            limit = n < INT_MAX / 4 ? (int)n : INT_MAX / 4;
    }
    while (progress(c, high, err)) {
        if (high > limit)
            return 0;
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        if (progress(c, mid, err))
            low = mid;
        else
            high = mid;
    }
    return high;
}

/* Whom a stuck rank waits for, and its wait in words. */
static int describe_wait(const struct counters *c, int rank, char *text,
                         size_t bytes)
{
    const struct pp_schedule *s = c->walk.schedule;
    struct pp_action a = s->rows[rank].actions[c->walk.pc[rank]];
    int peer = s->graph->stages[a.peer].rank;
    char mine[PP_ACTION_TEXT], theirs[PP_ACTION_TEXT];
    pp_action_format(a, false, mine);
    pp_action_format(pp_other_end(a), false, theirs);
    if (pp_is_recv(a.op)) {
        snprintf(text, bytes, "rank %d waits in '%s' for '%s' of rank %d", rank,
                 mine, theirs, peer);
        return peer;
    }
    /* A full channel: the peer must first receive an older message. */
    size_t ch = pp_channel_of(&c->walk.channels, a, rank, peer);
    for (size_t i = c->walk.pc[peer]; i < s->rows[peer].n; i++) {
        struct pp_action b = s->rows[peer].actions[i];
        if (!pp_is_recv(b.op) ||
            pp_channel_of(&c->walk.channels, b, peer,
                          s->graph->stages[b.peer].rank) != ch)
            continue;
        pp_action_format(b, false, theirs);
        break;
    }
    snprintf(text, bytes, "rank %d waits in '%s' for rank %d to reach '%s'",
             rank, mine, peer, theirs);
    return peer;
}

static int fail_deadlock(struct counters *c, struct pp_err *err)
{
    const struct pp_schedule *s = c->walk.schedule;
    char text[400] = "", wait[200];
    size_t n = 0;
    int rank = 0, depth = c->depth;
    while (c->walk.pc[rank] == s->rows[rank].n)
        rank++;
    /* Following the waits for as many steps as there are ranks ends inside a
     * cycle; once more round it to tell it. */
    for (int i = 0; i < s->graph->n_ranks; i++)
        rank = describe_wait(c, rank, wait, sizeof wait);
    int start = rank;
    do {
        rank = describe_wait(c, rank, wait, sizeof wait);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? "; " : "",
                              wait);
    } while (rank != start && n < sizeof text - 1);
    int cure = curing_depth(c, depth, err);
    if (cure)
        snprintf(wait, sizeof wait, "--depth %d would do", cure);
    else
        snprintf(wait, sizeof wait, "no depth would do");
    if (strlen(text) > 330)
        memcpy(text + 327, "...", 4);
    return pp_fail(err, PP_EXIT_NO, "deadlock at channel depth %d: %s (%s)",
                   depth, text, wait);
}

static int check_progress(const struct pp_schedule *s, struct counters *c,
                          struct pp_err *err)
{
    size_t n = c->walk.channels.n + 1;
    c->sent = calloc(n, sizeof *c->sent);
    c->posted = calloc(n, sizeof *c->posted);
    c->received = calloc(n, sizeof *c->received);
    if (!c->sent || !c->posted || !c->received)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = progress(c, s->channel_depth, err);
    return rc == PP_AGAIN ? fail_deadlock(c, err) : rc;
}

int pp_check_computes(const struct pp_schedule *s, struct pp_err *err)
{
    return pp_check_rows(s, false, err);
}

int pp_unreduced_stage(const struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    for (int stage = 0; stage < g->n_stages; stage++) {
        const struct pp_row *row = &s->rows[g->stages[stage].rank];
        size_t i = 0;
        while (i < row->n && (row->actions[i].op != PP_REDUCE_GRAD ||
                              row->actions[i].stage != stage))
            i++;
        if (i == row->n)
            return stage;
    }
    return -1;
}

int pp_check(const struct pp_schedule *s, struct pp_err *err)
{
    struct counters c = {0};
    if (pp_check_rows(s, true, err) || pp_walk_init(&c.walk, s, err))
        return -1;
    int rc = check_channels(s, &c.walk.channels, err);
    if (!rc)
        rc = check_progress(s, &c, err);
    free(c.sent);
    free(c.posted);
    free(c.received);
    pp_walk_finish(&c.walk);
    return rc;
}
