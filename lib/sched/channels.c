/* SPDX-License-Identifier: MIT */
#include "sched/channels.h"

#include <stdlib.h>

static int compare(const void *pa, const void *pb)
{
    const struct pp_channel *a = pa, *b = pb;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return a->backward - b->backward;
}

/* Fills at (when not NULL) with both channels of every edge between ranks. */
static size_t list_edges(const struct pp_graph *g, struct pp_channel *at)
{
    size_t n = 0;
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_inputs; i++) {
            int to = g->stages[s].rank;
            int from = g->stages[g->stages[s].inputs[i]].rank;
            if (from == to)
                continue;
            if (at) {
                at[n] = (struct pp_channel){from, to, 0};
                at[n + 1] = (struct pp_channel){to, from, 1};
            }
            n += 2;
        }
    return n;
}

int pp_channels_init(struct pp_channels *c, const struct pp_graph *g,
                     struct pp_err *err)
{
    size_t n = list_edges(g, NULL), kept = 0;
    c->at = calloc(n + 1, sizeof *c->at);
    c->first = calloc((size_t)g->n_ranks + 1, sizeof *c->first);
    if (!c->at || !c->first) {
        pp_channels_finish(c);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    list_edges(g, c->at);
    qsort(c->at, n, sizeof *c->at, compare);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || compare(&c->at[kept - 1], &c->at[i]))
            c->at[kept++] = c->at[i];
    c->n = kept;
    for (size_t i = 0; i < kept; i++)
        c->first[c->at[i].from + 1]++;
    for (int r = 0; r < g->n_ranks; r++)
        c->first[r + 1] += c->first[r];
    return 0;
}

void pp_channels_finish(struct pp_channels *c)
{
    free(c->at);
    free(c->first);
    *c = (struct pp_channels){0};
}

static const struct pp_channel *find(const struct pp_channels *c,
                                     struct pp_channel key)
{
    size_t first = c->first[key.from], n = c->first[key.from + 1] - first;
    return bsearch(&key, c->at + first, n, sizeof key, compare);
}

size_t pp_channel_of(const struct pp_channels *c, struct pp_action a, int rank,
                     int peer_rank)
{
    bool send = pp_is_send(a.op);
    struct pp_channel key = {send ? rank : peer_rank, send ? peer_rank : rank,
                             a.op == PP_SEND_B || a.op == PP_RECV_B};
    return (size_t)(find(c, key) - c->at);
}

size_t pp_channel_between(const struct pp_channels *c, int from, int to)
{
    const struct pp_channel *found = find(c, (struct pp_channel){from, to, 0});
    if (!found)
        found = find(c, (struct pp_channel){from, to, 1});
    return (size_t)(found - c->at);
}
