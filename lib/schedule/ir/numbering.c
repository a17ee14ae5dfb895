/* SPDX-License-Identifier: MIT */
#include "schedule/ir/numbering.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"

static int compare_channels(const void *pa, const void *pb)
{
    const struct pp_channel *a = pa, *b = pb;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return a->backward - b->backward;
}

/* Lists both channels of every edge between rows in at, unless at is NULL.
 * Returns their count. */
static size_t list_edges(const struct pp_graph *g, struct pp_channel *at)
{
    size_t n = 0;
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_inputs; i++) {
            int to = g->stages[s].row;
            int from = g->stages[g->stages[s].inputs[i]].row;
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

void pp_channels_init(struct pp_channels *c, const struct pp_graph *g)
{
    size_t n = list_edges(g, NULL), kept = 0;
    c->graph = g;
    c->at = pp_calloc(n + 1, sizeof *c->at);
    c->first = pp_calloc((size_t)g->n_rows + 1, sizeof *c->first);
    list_edges(g, c->at);
    qsort(c->at, n, sizeof *c->at, compare_channels);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || compare_channels(&c->at[kept - 1], &c->at[i]))
            c->at[kept++] = c->at[i];
    c->n = kept;
    for (size_t i = 0; i < kept; i++)
        c->first[c->at[i].from + 1]++;
    for (int r = 0; r < g->n_rows; r++)
        c->first[r + 1] += c->first[r];
}

void pp_channels_finish(struct pp_channels *c)
{
    free(c->at);
    free(c->first);
    *c = (struct pp_channels){0};
}

/* Returns the number of a channel, or n if there is no such. A row has few. */
static size_t find_channel(const struct pp_channels *c, int from, int to,
                           int backward)
{
    for (size_t i = c->first[from]; i < c->first[from + 1]; i++)
        if (c->at[i].to == to && c->at[i].backward == backward)
            return i;
    return c->n;
}

size_t pp_channel_of(const struct pp_channels *c, struct pp_action a, int row,
                     int peer_row)
{
    bool send = pp_is_send(a.op);
    return find_channel(c, send ? row : peer_row, send ? peer_row : row,
                        a.op == PP_SEND_B || a.op == PP_RECV_B);
}

size_t pp_channel_between(const struct pp_channels *c, int from, int to)
{
    size_t found = find_channel(c, from, to, 0);
    return found < c->n ? found : find_channel(c, from, to, 1);
}

static size_t channel_of_message(const struct pp_fifo *f, struct pp_action a,
                                 int row)
{
    int peer = f->channels.graph->stages[a.peer].row;
    if (f->tagged)
        return pp_channel_of(&f->channels, a, row, peer);
    return pp_is_send(a.op) ? pp_channel_between(&f->channels, row, peer)
                            : pp_channel_between(&f->channels, peer, row);
}

/* Counts the messages of each channel. */
static void count_messages(struct pp_fifo *f, const struct pp_schedule *s)
{
    size_t n = 0, capacity = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        capacity += s->rows[r].n;
    f->channel = pp_realloc(NULL, capacity, sizeof *f->channel);
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (!pp_is_message(a.op))
                continue;
            size_t channel = channel_of_message(f, a, r);
            f->channel[n++] = (uint32_t)channel;
            (pp_is_send(a.op) ? &f->send : &f->recv)->first[channel + 2]++;
        }
}

static void fill_places(struct pp_fifo *f, const struct pp_schedule *s)
{
    const uint32_t *channel = f->channel;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            enum pp_op op = s->rows[r].actions[i].op;
            if (pp_is_send(op))
                f->send.place[f->send.first[*channel++ + 1]++] = (uint32_t)i;
            else if (pp_is_recv(op))
                f->recv.place[f->recv.first[*channel++ + 1]++] = (uint32_t)i;
        }
}

static void make_place(struct pp_fifo_ends *e, size_t n_channels)
{
    for (size_t i = 0; i < n_channels; i++)
        e->first[i + 2] += e->first[i + 1];
    e->place = pp_realloc(NULL, e->first[n_channels + 1], sizeof *e->place);
}

void pp_fifo_init(struct pp_fifo *f, const struct pp_schedule *s, bool tagged)
{
    *f = (struct pp_fifo){.tagged = tagged};
    pp_channels_init(&f->channels, s->graph);
    size_t n = f->channels.n;
    f->send.first = pp_calloc(n + 2, sizeof *f->send.first);
    f->recv.first = pp_calloc(n + 2, sizeof *f->recv.first);
    count_messages(f, s);
    make_place(&f->send, n);
    make_place(&f->recv, n);
    fill_places(f, s);
}

void pp_fifo_finish(struct pp_fifo *f)
{
    pp_channels_finish(&f->channels);
    free(f->channel);
    free(f->send.first);
    free(f->send.place);
    free(f->recv.first);
    free(f->recv.place);
    *f = (struct pp_fifo){0};
}

void pp_cells_init(struct pp_cells *c, const struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    size_t per_stage, n = (size_t)g->n_stages, n_edges = 0;
    *c = (struct pp_cells){.graph = g,
                           .n_microbatches = (size_t)s->n_microbatches,
                           .n_slices = (size_t)g->slices.n};
    c->first_edge = pp_calloc(n + 1, sizeof *c->first_edge);
    for (size_t i = 0; i < n; i++) {
        c->first_edge[i] = n_edges;
        n_edges += (size_t)g->stages[i].n_inputs;
    }
    c->first_edge[n] = n_edges;
    /* No overflow: readers take 2^24 stages, 2^24 microbatches, 2^15 slices. */
    per_stage = c->n_microbatches * c->n_slices;
    c->n_cells = n * per_stage;
    c->n_links = n_edges * per_stage;
}

void pp_cells_finish(struct pp_cells *c)
{
    free(c->first_edge);
    c->first_edge = NULL;
}

size_t pp_link(const struct pp_cells *c, int from, int to, int microbatch,
               int slice)
{
    const struct pp_stage_node *n = &c->graph->stages[to];
    int lo = 0, hi = n->n_inputs;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (n->inputs[mid] < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == n->n_inputs || n->inputs[lo] != from)
        return (size_t)-1;
    return ((c->first_edge[to] + (size_t)lo) * c->n_microbatches +
            (size_t)microbatch) *
               c->n_slices +
           (size_t)slice;
}
