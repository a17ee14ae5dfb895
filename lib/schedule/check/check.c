/* SPDX-License-Identifier: MIT */
/* The player decides whether all ranks reach the end; why they do not is told
 * by progress.c. Rows by themselves are check_rows.c's. */
#include "schedule/check/check.h"

#include <stdlib.h>

#include "schedule/check/fifo.h"
#include "schedule/check/deadlock.h"
#include "schedule/ir/play.h"

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
    /* The walk has stopped; the graph of events knows why. */
    if (pp_check_deadlock(s, pp_semantics_find("channel"), s->channel_depth,
                          err))
        return -1;
    return pp_fail(err, PP_EXIT_NO, "deadlock at channel depth %d",
                   s->channel_depth);
}
