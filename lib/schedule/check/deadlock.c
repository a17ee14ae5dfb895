/* SPDX-License-Identifier: MIT */
/* Breadth-first search over the heads of the streams, from each in turn: there
 * are few, however long the rows. */
#include "sched/cycle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Waits looked at after which the shortest circle so far will do. */
enum { ENOUGH = 1 << 24 };

struct search {
    const struct pp_events *e;
    uint32_t *head;  /* per stream: its first action that has not happened */
    uint32_t *seen;  /* per action: the start that reached it last */
    uint32_t *from;  /* and from which head */
    uint32_t *on;    /* which waits for this action, at or after the next */
    uint32_t *depth; /* waits from the start */
    uint32_t *queue;
    size_t n_queued, n_looked_at;
    uint32_t start, at; /* the head whose waits are being visited */
    uint32_t *best, *best_on;
    size_t n_best; /* 0: none yet */
};

static int rank_of(const struct pp_events *e, size_t x)
{
    int lo = 0, hi = e->schedule->graph->n_ranks - 1;
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
    int r = rank_of(e, x);
    return e->schedule->rows[r].actions[x - e->base[r]];
}

/* The head of x's stream: what has to happen first. */
static uint32_t head_of(const struct search *s, size_t x)
{
    size_t stream =
        pp_events_stream(s->e, rank_of(s->e, x), action_of(s->e, x));
    return stream == PP_NO_STREAM ? (uint32_t)x : s->head[stream];
}

/* The circle from start to at and back, kept when it is the shortest. */
static void keep_circle(struct search *s, size_t on)
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

static void visit(void *ctx, size_t on)
{
    struct search *s = ctx;
    s->n_looked_at++;
    if (pp_events_done(s->e, on))
        return;
    uint32_t next = head_of(s, on);
    /* A RECV that is there already holds up no SEND. */
    if (next == on && pp_is_send(action_of(s->e, s->at).op) &&
        pp_is_recv(action_of(s->e, on).op))
        return;
    if (next == s->start) {
        keep_circle(s, on);
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

static void search_from(struct search *s, uint32_t start)
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
        pp_events_waits(s->e, rank_of(s->e, s->at), s->at, visit, s);
    }
}

static void find_heads(struct search *s)
{
    const struct pp_events *e = s->e;
    for (size_t st = 0; st < e->n_streams; st++)
        s->head[st] = PP_NO_EVENT;
    for (int r = 0; r < e->schedule->graph->n_ranks; r++)
        for (size_t i = 0; i < e->schedule->rows[r].n; i++) {
            size_t x = e->base[r] + i;
            size_t stream =
                pp_events_stream(e, r, e->schedule->rows[r].actions[i]);
            if (stream != PP_NO_STREAM && s->head[stream] == PP_NO_EVENT &&
                !pp_events_done(e, x))
                s->head[stream] = (uint32_t)x;
        }
}

/* "rank 0 waits in '0SEND_F1' for rank 1 to reach '1RECV_F1'" */
static void tell_wait(const struct pp_events *e, size_t in, size_t x, size_t on,
                      char *text, size_t bytes)
{
    int rank = rank_of(e, x), other = rank_of(e, on);
    char mine[PP_ACTION_TEXT], theirs[PP_ACTION_TEXT];
    pp_action_format(action_of(e, in), false, mine);
    pp_action_format(action_of(e, on), false, theirs);
    if (pp_is_recv(action_of(e, x).op))
        snprintf(text, bytes, "rank %d waits in '%s' for '%s' of rank %d", rank,
                 mine, theirs, other);
    else
        snprintf(text, bytes, "rank %d waits in '%s' for rank %d to reach '%s'",
                 rank, mine, other, theirs);
}

/* A rank's waits for itself (a backward for its receive, a send for its
 * forward) lead to one for another rank, and are told with it: as that of the
 * compute action, where there is one. Keeps only those of the circle; each has
 * the action that is told, in best, and the wait, in at and best_on. */
static void fold(struct search *s, uint32_t *at)
{
    size_t start = 0, kept = 0;
    while (start < s->n_best &&
           rank_of(s->e, s->best[start]) == rank_of(s->e, s->best_on[start]))
        start++;
    uint32_t *in = s->from, *on = s->on; /* the search is over */
    uint32_t told = PP_NO_EVENT;
    for (size_t n = 0; n < s->n_best; n++) {
        size_t i = (start + 1 + n) % s->n_best;
        uint32_t x = s->best[i];
        struct pp_action a = action_of(s->e, x);
        if (!pp_is_send(a.op) && !pp_is_recv(a.op))
            told = x;
        if (rank_of(s->e, x) == rank_of(s->e, s->best_on[i]))
            continue;
        in[kept] = told == PP_NO_EVENT ? x : told;
        at[kept] = x;
        on[kept++] = s->best_on[i];
        told = PP_NO_EVENT;
    }
    memcpy(s->best, in, kept * sizeof *in);
    memcpy(s->best_on, on, kept * sizeof *on);
    s->n_best = kept;
}

static void tell(struct search *s, char *text, size_t bytes)
{
    char wait[200], more[40];
    size_t n = 0, first = 0, room = bytes - sizeof more;
    uint32_t *at = s->queue;
    text[0] = '\0';
    fold(s, at);
    for (size_t i = 1; i < s->n_best; i++)
        if (s->best[i] < s->best[first])
            first = i;
    for (size_t i = 0; i < s->n_best; i++) {
        size_t k = (first + i) % s->n_best;
        tell_wait(s->e, s->best[k], at[k], s->best_on[k], wait, sizeof wait);
        if (n + strlen(wait) + 2 >= room) {
            snprintf(text + n, bytes - n, "; and %zu more", s->n_best - i);
            return;
        }
        n += (size_t)snprintf(text + n, bytes - n, "%s%s", n ? "; " : "", wait);
    }
}

int pp_cycle_tell(const struct pp_events *e, char *text, size_t bytes,
                  struct pp_err *err)
{
    struct search s = {.e = e};
    size_t n = e->n + 1;
    uint32_t *all = calloc(n, 7 * sizeof *all);
    s.head = calloc(e->n_streams, sizeof *s.head);
    if (!all || !s.head) {
        free(all);
        free(s.head);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
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
            (s.n_best == 0 || s.n_looked_at < ENOUGH))
            search_from(&s, s.head[st]);
    tell(&s, text, bytes);
    free(all);
    free(s.head);
    return 0;
}
