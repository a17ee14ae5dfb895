/* SPDX-License-Identifier: MIT */
/* Deadlocks: finds a shortest cycle of waits and the smallest depth that avoids
 * it.
 *
 * The cycle is found by breadth-first search over the heads of the streams,
 * from each head in turn. There are few heads, however long the rows are. */
#include "schedule/check/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/check/parts.h"
#include "schedule/ir/play.h"

/* The search stops with the shortest cycle so far after this many waits. */
enum { ENOUGH_WAITS = 1 << 24 };

struct cycle_search {
    const struct pp_events *e;
    uint32_t *head;  /* per stream: its first action that did not happen */
    uint32_t *seen;  /* per action: the start that reached it last */
    uint32_t *from;  /* per action: the head it was reached from */
    uint32_t *on;    /* the action that head waits for, at or after this one */
    uint32_t *depth; /* number of waits from the start */
    uint32_t *queue;
    size_t n_queued, n_looked_at;
    uint32_t start, at; /* the head being visited */
    uint32_t *best, *best_on;
    size_t n_best; /* 0: none found */
};

static int row_of(const struct pp_events *e, size_t x)
{
    int lo = 0, hi = e->schedule->graph->n_rows - 1;
    while (lo < hi) {
        int mid = hi - (hi - lo) / 2;
        if (e->base[mid] <= x)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static struct pp_action action_of(const struct pp_events *e, size_t x)
{
    int r = row_of(e, x);
    return e->schedule->rows[r].actions[x - e->base[r]];
}

/* Returns the head of x's stream, which must happen before x. */
static uint32_t head_of(const struct cycle_search *s, size_t x)
{
    size_t stream = pp_events_stream(s->e, row_of(s->e, x), action_of(s->e, x));
    return stream == PP_NO_STREAM ? (uint32_t)x : s->head[stream];
}

/* Keeps the cycle from start to at and back if it is the shortest so far. */
static void keep_cycle(struct cycle_search *s, size_t on)
{
    size_t n = s->depth[s->at] + 1;
    if (s->n_best > 0 && n >= s->n_best)
        return;
    s->n_best = n;
    for (uint32_t x = s->at; n-- > 0; x = s->from[x]) {
        s->best[n] = x;
        s->best_on[n] = (uint32_t)on;
        on = s->on[x];
    }
}

static void visit_wait(void *ctx, size_t on)
{
    struct cycle_search *s = ctx;
    s->n_looked_at++;
    if (pp_events_done(s->e, on))
        return;
    uint32_t next = head_of(s, on);
    /* A RECV at the head of its stream does not block a SEND. */
    if (next == on && pp_is_send(action_of(s->e, s->at).op) &&
        pp_is_recv(action_of(s->e, on).op))
        return;
    if (next == s->start) {
        keep_cycle(s, on);
        return;
    }
    if (s->seen[next] == s->start)
        return;
    s->seen[next] = s->start;
    s->from[next] = s->at;
    s->on[next] = (uint32_t)on;
    s->depth[next] = s->depth[s->at] + 1;
    s->queue[s->n_queued++] = next;
}

static void search_from(struct cycle_search *s, uint32_t start)
{
    s->start = start;
    s->seen[start] = start;
    s->depth[start] = 0;
    s->queue[0] = start;
    s->n_queued = 1;
    for (size_t i = 0; i < s->n_queued; i++) {
        s->at = s->queue[i];
        if (s->n_best > 0 && s->depth[s->at] + 1 >= s->n_best)
            break;
        pp_events_waits(s->e, row_of(s->e, s->at), s->at, visit_wait, s);
    }
}

static void find_heads(struct cycle_search *s)
{
    const struct pp_events *e = s->e;
    for (size_t st = 0; st < e->n_streams; st++)
        s->head[st] = PP_NO_EVENT;
    for (int r = 0; r < e->schedule->graph->n_rows; r++)
        for (size_t i = 0; i < e->schedule->rows[r].n; i++) {
            size_t x = e->base[r] + i;
            size_t stream =
                pp_events_stream(e, r, e->schedule->rows[r].actions[i]);
            if (stream != PP_NO_STREAM && s->head[stream] == PP_NO_EVENT &&
                !pp_events_done(e, x))
                s->head[stream] = (uint32_t)x;
        }
}

/* Writes one wait, such as "rank 0 waits in '0SEND_F1' for rank 1 to reach
 * '1RECV_F1'". */
static void print_wait(const struct pp_events *e, size_t in, size_t x,
                       size_t on, char *text, size_t bytes)
{
    int row = row_of(e, x), other = row_of(e, on);
    char mine[PP_ACTION_TEXT], theirs[PP_ACTION_TEXT];
    pp_action_format(action_of(e, in), false, mine);
    pp_action_format(action_of(e, on), false, theirs);
    if (pp_is_recv(action_of(e, x).op))
        snprintf(text, bytes, "rank %d waits in '%s' for '%s' of rank %d", row,
                 mine, theirs, other);
    else
        snprintf(text, bytes, "rank %d waits in '%s' for rank %d to reach '%s'",
                 row, mine, other, theirs);
}

/* Keeps only the waits between ranks. A rank's waits for itself (a backward for
 * its receive, a send for its forward) lead to a wait for another rank and are
 * reported with it, as a wait of the compute action if there is one. Afterwards
 * best holds the actions to report, and at and best_on hold the waits. */
static void fold_cycle(struct cycle_search *s, uint32_t *at)
{
    size_t start = 0, kept = 0;
    while (start < s->n_best &&
           row_of(s->e, s->best[start]) == row_of(s->e, s->best_on[start]))
        start++;
    uint32_t *in = s->from, *on = s->on; /* not used after the search */
    uint32_t printed = PP_NO_EVENT;
    for (size_t n = 0; n < s->n_best; n++) {
        size_t i = (start + 1 + n) % s->n_best;
        uint32_t x = s->best[i];
        struct pp_action a = action_of(s->e, x);
        if (!pp_is_message(a.op))
            printed = x;
        if (row_of(s->e, x) == row_of(s->e, s->best_on[i]))
            continue;
        in[kept] = printed == PP_NO_EVENT ? x : printed;
        at[kept] = x;
        on[kept++] = s->best_on[i];
        printed = PP_NO_EVENT;
    }
    memcpy(s->best, in, kept * sizeof *in);
    memcpy(s->best_on, on, kept * sizeof *on);
    s->n_best = kept;
}

static void print_waits(struct cycle_search *s, char *text, size_t bytes)
{
    char wait[200], more[40];
    size_t n = 0, first = 0, room = bytes - sizeof more;
    uint32_t *at = s->queue;
    text[0] = '\0';
    fold_cycle(s, at);
    for (size_t i = 1; i < s->n_best; i++)
        if (s->best[i] < s->best[first])
            first = i;
    for (size_t i = 0; i < s->n_best; i++) {
        size_t k = (first + i) % s->n_best;
        print_wait(s->e, s->best[k], at[k], s->best_on[k], wait, sizeof wait);
        if (n + strlen(wait) + 2 >= room) {
            snprintf(text + n, bytes - n, "; and %zu more", s->n_best - i);
            return;
        }
        n += (size_t)snprintf(text + n, bytes - n, "%s%s", n ? "; " : "", wait);
    }
}

/* Writes the waits of a cycle to text of bytes (at least 64), after a run of e
 * that did not end: "rank 0 waits in '0SEND_F1' for rank 1 to reach '1RECV_F1';
 * rank 1 waits in ...". Each wait is of the first action of a stream that did
 * not happen. The cycle is a shortest one unless the search stopped early.
 * Counts the waits that do not fit: "; and 3 more". */
static void print_cycle(const struct pp_events *e, char *text, size_t bytes)
{
    struct cycle_search s = {.e = e};
    size_t n = e->n + 1;
    uint32_t *all = pp_calloc(n, 7 * sizeof *all);
    s.head = pp_calloc(e->n_streams, sizeof *s.head);
    s.seen = all;
    s.from = all + n;
    s.on = all + 2 * n;
    s.depth = all + 3 * n;
    s.queue = all + 4 * n;
    s.best = all + 5 * n;
    s.best_on = all + 6 * n;
    memset(s.seen, 0xff, n * sizeof *s.seen);
    find_heads(&s);
    for (size_t st = 0; st < e->n_streams; st++)
        if (s.head[st] != PP_NO_EVENT &&
            (s.n_best == 0 || s.n_looked_at < ENOUGH_WAITS))
            search_from(&s, s.head[st]);
    print_waits(&s, text, bytes);
    free(all);
    free(s.head);
}

const struct pp_semantics pp_semantics[PP_N_SEMANTICS] = {
    {"buffered", "sends never wait; receives wait only for their own message",
     PP_STREAM_NONE, true, true, false},
    {"channel", "forward and backward channels of a depth, in program order",
     PP_STREAM_PROGRAM, true, false, true},
    {"rendezvous", "a stream for each peer and each direction of travel",
     PP_STREAM_DIRECTION, false, false, false},
    {"pair", "a stream for each pair of ranks, both directions", PP_STREAM_PAIR,
     false, false, false},
    {"rank", "a stream for all messages of a rank", PP_STREAM_RANK, false,
     false, false},
    {"blocking", "messages and compute actions in program order",
     PP_STREAM_PROGRAM, false, false, false},
};

const struct pp_semantics *pp_semantics_find(const char *name)
{
    for (int i = 0; i < PP_N_SEMANTICS; i++)
        if (!strcmp(pp_semantics[i].name, name))
            return &pp_semantics[i];
    return NULL;
}

int pp_semantics_depth(const struct pp_semantics *m,
                       const struct pp_schedule *s, int depth)
{
    if (m->buffered)
        return INT_MAX;
    if (depth >= 0)
        return depth;
    return m->by_depth ? s->channel_depth : 0;
}

/* --- the smallest depth that avoids a deadlock --- */

/* The most actions to process in the search for depths per channel. */
enum { ENOUGH_ACTIONS = 1 << 26 };

struct cure {
    struct pp_events *e;
    int *depth;        /* per channel */
    int stuck, enough; /* the given depth; the depth that suffices for all
                          channels, or 0 */
    struct pp_err *err;
};

static int run_all(struct cure *c, int depth)
{
    for (size_t ch = 0; ch < c->e->fifo->channels.n; ch++)
        c->depth[ch] = depth;
    return pp_events_run(c->e, c->depth, c->err);
}

static size_t longest_channel(const struct pp_fifo *f)
{
    size_t most = 0;
    for (size_t ch = 0; ch < f->channels.n; ch++)
        if (f->send.first[ch + 1] - f->send.first[ch] > most)
            most = f->send.first[ch + 1] - f->send.first[ch];
    return most < INT_MAX / 4 ? most : INT_MAX / 4;
}

/* Finds the depth by doubling and bisection, since more depth never hurts. */
static int find_depth(struct cure *c)
{
    int low = c->stuck, high = c->stuck + 1, rc;
    int most = (int)longest_channel(c->e->fifo);
    while ((rc = run_all(c, high)) == PP_AGAIN) {
        if (high > most)
            return 0;
        low = high;
        high *= 2;
    }
    while (rc >= 0 && high - low > 1) {
        int mid = low + (high - low) / 2;
        rc = run_all(c, mid);
        if (rc == PP_AGAIN)
            low = mid;
        else
            high = mid;
    }
    c->enough = high;
    return rc < 0 ? -1 : 0;
}

/* Reduces each channel in turn to the smallest depth that the others allow. */
static int find_channels(struct cure *c)
{
    for (size_t ch = 0; ch < c->e->fifo->channels.n; ch++) {
        int low = c->stuck - 1, high = c->enough;
        while (high - low > 1) {
            /* Try the given depth first, because most channels work with it. */
            int mid = low < c->stuck ? c->stuck : low + (high - low) / 2;
            c->depth[ch] = mid;
            int rc = pp_events_run(c->e, c->depth, c->err);
            if (rc < 0)
                return -1;
            if (rc == PP_AGAIN)
                low = mid;
            else
                high = mid;
        }
        c->depth[ch] = high;
    }
    return 0;
}

enum { PRINTED_CHANNELS = 2 };

/* Writes the channels that need more depth: "2 in flight on 0->1 forward, 1 on
 * 2->1 backward and 3 more". */
static void print_channels(const struct cure *c, char *text, size_t bytes)
{
    const struct pp_fifo *f = c->e->fifo;
    size_t n = 0, found = 0;
    text[0] = '\0';
    for (size_t ch = 0; ch < f->channels.n; ch++) {
        const struct pp_channel *at = &f->channels.at[ch];
        const char *direction = at->backward ? " backward" : " forward";
        if (c->depth[ch] == c->stuck || ++found > PRINTED_CHANNELS)
            continue;
        bool first = found == 1;
        n += (size_t)snprintf(text + n, bytes - n, "%s%d %son %d->%d%s",
                              first ? "" : ", ", c->depth[ch],
                              first ? "in flight " : "", at->from, at->to,
                              f->tagged ? direction : "");
    }
    if (found > PRINTED_CHANNELS)
        snprintf(text + n, bytes - n, " and %zu more",
                 found - PRINTED_CHANNELS);
}

static int print_cure(struct cure *c, char *text, size_t bytes)
{
    char channels[120];
    size_t n_channels = c->e->fifo->channels.n;
    if (find_depth(c))
        return -1;
    if (c->enough == 0) {
        snprintf(text, bytes, "no depth would do");
        return 0;
    }
    int n = snprintf(text, bytes, "--depth %d would do", c->enough);
    if (c->e->n * n_channels > ENOUGH_ACTIONS)
        return 0;
    if (run_all(c, c->enough) < 0 || find_channels(c))
        return -1;
    print_channels(c, channels, sizeof channels);
    snprintf(text + n, bytes - (size_t)n, "; needs %s", channels);
    return 0;
}

static int fail_deadlock(struct cure *c, const struct pp_semantics *m)
{
    char place[64], circle[300], cure[160];
    if (m->buffered)
        snprintf(place, sizeof place, "with unlimited buffers");
    else if (m->by_depth)
        snprintf(place, sizeof place, "at channel depth %d", c->stuck);
    else if (c->stuck == 0)
        snprintf(place, sizeof place, "under '%s'", m->name);
    else
        snprintf(place, sizeof place, "under '%s' at depth %d", m->name,
                 c->stuck);
    print_cycle(c->e, circle, sizeof circle);
    if (m->buffered)
        snprintf(cure, sizeof cure, "no depth would do");
    else if (print_cure(c, cure, sizeof cure))
        return -1;
    return pp_fail(c->err, PP_EXIT_NO, "deadlock %s: %s (%s)", place, circle,
                   cure);
}

int pp_check_deadlock(const struct pp_schedule *s, const struct pp_semantics *m,
                      int depth, struct pp_err *err)
{
    struct pp_fifo fifo;
    struct pp_events events;
    struct cure c = {
        .e = &events, .stuck = m->buffered ? INT_MAX : depth, .err = err};
    int rc = -1;
    if (pp_check_messages(&fifo, s, m->tagged, err))
        return -1;
    if (pp_events_init(&events, s, &fifo, (enum pp_streams)m->streams, err))
        goto out;
    c.depth = pp_calloc(fifo.channels.n + 1, sizeof *c.depth);
    rc = run_all(&c, c.stuck);
    if (rc == PP_AGAIN)
        rc = fail_deadlock(&c, m);
    free(c.depth);
    pp_events_finish(&events);
out:
    pp_fifo_finish(&fifo);
    return rc;
}
