/* SPDX-License-Identifier: MIT */
#include "sched/progress.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/cycle.h"
#include "sched/play.h"

const struct pp_semantics pp_semantics[PP_N_SEMANTICS] = {
    {"buffered", "sends never wait; receives wait for their own message alone",
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

/* --- the smallest depth that cures --- */

/* Runs of the graph that the depths channel by channel may take, in actions
 * gone through. */
enum { ENOUGH = 1 << 26 };

struct cure {
    struct pp_events *e;
    int *depth;        /* per channel */
    int stuck, enough; /* the depth given, and that of all channels, or 0 */
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
        if (f->first[ch + 1] - f->first[ch] > most)
            most = f->first[ch + 1] - f->first[ch];
    return most < INT_MAX / 4 ? most : INT_MAX / 4;
}

/* More depth never hurts, so doubling and halving finds it. */
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

/* Takes each channel in turn back to as little as the others allow. */
static int find_channels(struct cure *c)
{
    for (size_t ch = 0; ch < c->e->fifo->channels.n; ch++) {
        int low = c->stuck - 1, high = c->enough;
        while (high - low > 1) {
            /* As it was first: most channels are not to blame. */
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

/* "2 in flight on 0->1 forward, 1 on 2->1 backward and 3 more" */
static void tell_channels(const struct cure *c, char *text, size_t bytes)
{
    const struct pp_fifo *f = c->e->fifo;
    size_t n = 0, more = 0, told = 0;
    text[0] = '\0';
    for (size_t ch = 0; ch < f->channels.n; ch++) {
        const struct pp_channel *at = &f->channels.at[ch];
        const char *lane = at->backward ? " backward" : " forward";
        if (c->depth[ch] == c->stuck)
            continue;
        if (told == 2) {
            more++;
            continue;
        }
        n += (size_t)snprintf(text + n, bytes - n, "%s%d %son %d->%d%s",
                              told ? ", " : "", c->depth[ch],
                              told ? "" : "in flight ", at->from, at->to,
                              f->tagged ? lane : "");
        told++;
    }
    if (more > 0)
        snprintf(text + n, bytes - n, " and %zu more", more);
}

static int tell_cure(struct cure *c, char *text, size_t bytes)
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
    if (c->e->n * n_channels > ENOUGH)
        return 0;
    if (run_all(c, c->enough) < 0 || find_channels(c))
        return -1;
    tell_channels(c, channels, sizeof channels);
    snprintf(text + n, bytes - (size_t)n, "; needs %s", channels);
    return 0;
}

static int fail_deadlock(struct cure *c, const struct pp_semantics *m)
{
    char place[64], circle[300], cure[160];
    if (m->buffered)
        snprintf(place, sizeof place, "with endless buffers");
    else if (m->by_depth)
        snprintf(place, sizeof place, "at channel depth %d", c->stuck);
    else if (c->stuck == 0)
        snprintf(place, sizeof place, "under '%s'", m->name);
    else
        snprintf(place, sizeof place, "under '%s' at depth %d", m->name,
                 c->stuck);
    if (pp_cycle_tell(c->e, circle, sizeof circle, c->err))
        return -1;
    if (m->buffered)
        snprintf(cure, sizeof cure, "no depth would do");
    else if (tell_cure(c, cure, sizeof cure))
        return -1;
    return pp_fail(c->err, PP_EXIT_NO, "deadlock %s: %s (%s)", place, circle,
                   cure);
}

int pp_check_progress(const struct pp_schedule *s, const struct pp_semantics *m,
                      int depth, struct pp_err *err)
{
    struct pp_fifo fifo;
    struct pp_events events;
    struct cure c = {
        .e = &events, .stuck = m->buffered ? INT_MAX : depth, .err = err};
    int rc = -1;
    if (pp_fifo_init(&fifo, s, m->tagged, err))
        return -1;
    if (pp_events_init(&events, s, &fifo, (enum pp_streams)m->streams, err))
        goto out;
    c.depth = calloc(fifo.channels.n + 1, sizeof *c.depth);
    rc = c.depth ? run_all(&c, c.stuck)
                 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (rc == PP_AGAIN)
        rc = fail_deadlock(&c, m);
    free(c.depth);
    pp_events_finish(&events);
out:
    pp_fifo_finish(&fifo);
    return rc;
}
