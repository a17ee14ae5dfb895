/* SPDX-License-Identifier: MIT */
/* The times of messages. A walk plays both ends of a message in any order, so
 * each end notes its own time and reads the other's when it is there. */
#include "schedule/simulate/message_clocks.h"

#include <stdlib.h>

#include "base/num.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"

/* Counts the messages of each channel. */
static void count_messages(const struct pp_schedule *s,
                           const struct pp_channels *channels, size_t *count)
{
    const struct pp_graph *g = s->graph;
    for (int r = 0; r < g->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (pp_is_send(a.op))
                count[pp_channel_of(channels, a, r, g->stages[a.peer].row)]++;
        }
}

/* Gives each channel its part of the storage. */
static int share_times(struct pp_message_clocks *m, const struct pp_schedule *s,
                       const struct pp_channels *channels, struct pp_err *err)
{
    size_t *count = calloc(channels->n + 1, sizeof *count), n = 0;
    if (!count)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    count_messages(s, channels, count);
    for (size_t c = 0; c < channels->n; c++)
        n += count[c];
    m->times = calloc(2 * n + 1, sizeof *m->times);
    double *next = m->times;
    for (size_t c = 0; next && c < channels->n; c++) {
        m->at[c] = (struct pp_channel_clock){.arrival = next,
                                             .receipt = next + count[c]};
        next += 2 * count[c];
    }
    free(count);
    return m->times ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

int pp_message_clocks_init(struct pp_message_clocks *m,
                           const struct pp_schedule *s,
                           const struct pp_channels *channels, int depth,
                           struct pp_err *err)
{
    size_t n, bytes;
    *m = (struct pp_message_clocks){.depth = (size_t)depth};
    if (pp_cells_init(&m->cells, s, err) ||
        pp_mul(m->cells.n_links, 2, &n, err) ||
        pp_mul(n, sizeof *m->arrival, &bytes, err))
        return -1;
    m->at = calloc(channels->n + 1, sizeof *m->at);
    m->arrival = malloc(bytes + 1);
    if (!m->at || !m->arrival)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        m->arrival[i] = -1;
    return share_times(m, s, channels, err);
}

void pp_message_clocks_finish(struct pp_message_clocks *m)
{
    free(m->at);
    free(m->times);
    free(m->arrival);
    pp_cells_finish(&m->cells);
    *m = (struct pp_message_clocks){0};
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* Returns the arrival of a message from stage `from`; `to` waits for it. */
static double *arrival_of(const struct pp_message_clocks *m, int from, int to,
                          bool backward, struct pp_action a)
{
    size_t link = pp_link(&m->cells, backward ? to : from, backward ? from : to,
                          a.microbatch, a.slice);
    return &m->arrival[2 * link + backward];
}

/* Raises *start to the time at which the next SEND of a channel may begin. */
static int await_room(struct pp_channel_clock *c, size_t depth, double *start)
{
    if (depth == 0) {
        if (c->n_posted == c->n_sent)
            return PP_AGAIN;
        *start = later(*start, c->receipt[c->n_sent]);
    } else if (c->n_sent >= depth) {
        size_t k = c->n_sent - depth;
        if (c->n_received <= k)
            return PP_AGAIN;
        for (; c->n_left <= k; c->n_left++)
            c->left = later(
                c->left, later(c->receipt[c->n_left], c->arrival[c->n_left]));
        *start = later(*start, c->left);
    }
    return 0;
}

int pp_message_send(struct pp_message_clocks *m, struct pp_action a,
                    size_t channel, double now, double time, double *end)
{
    struct pp_channel_clock *c = &m->at[channel];
    double start = now;
    if (await_room(c, m->depth, &start))
        return PP_AGAIN;
    double arrival = start + time;
    c->arrival[c->n_sent++] = arrival;
    *arrival_of(m, a.stage, a.peer, a.op == PP_SEND_B, a) = arrival;
    *end = m->depth == 0 ? arrival : start;
    return 0;
}

void pp_message_post(struct pp_message_clocks *m, size_t channel, double now)
{
    struct pp_channel_clock *c = &m->at[channel];
    c->receipt[c->n_received++] = now;
    c->n_posted = c->n_received;
}

int pp_message_receive(struct pp_message_clocks *m, size_t channel, double now,
                       double *end)
{
    struct pp_channel_clock *c = &m->at[channel];
    size_t k = c->n_received;
    c->receipt[k] = now;
    c->n_posted = k + 1;
    if (c->n_sent == k)
        return PP_AGAIN;
    *end = c->receipt[k] = later(now, c->arrival[k]);
    c->n_received++;
    return 0;
}

struct arrivals {
    const struct pp_message_clocks *clocks;
    struct pp_action action;
    double *ready;
};

static int await_arrival(void *ctx, struct pp_dep dep)
{
    const struct arrivals *w = ctx;
    if (dep.message == PP_N_OPS)
        return 0;
    double arrival = *arrival_of(w->clocks, dep.stage, w->action.stage,
                                 dep.message == PP_RECV_B, w->action);
    if (arrival < 0)
        return PP_AGAIN;
    *w->ready = later(*w->ready, arrival);
    return 0;
}

int pp_message_await(const struct pp_message_clocks *m, struct pp_action a,
                     double *ready)
{
    struct arrivals w = {m, a, ready};
    return pp_deps(m->cells.graph, a, await_arrival, &w);
}
