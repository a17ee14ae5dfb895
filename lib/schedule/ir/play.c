/* SPDX-License-Identifier: MIT */
#include "schedule/ir/play.h"

#include <stdlib.h>

int pp_play(const struct pp_schedule *s, int row, size_t *pc,
            const struct pp_player *p, void *ctx, struct pp_err *err)
{
    const struct pp_row *list = &s->rows[row];
    int rc = 0;
    for (; *pc < list->n; ++*pc) {
        struct pp_action a = list->actions[*pc];
        bool send = pp_is_send(a.op), message = send || pp_is_recv(a.op);
        pp_pass_message pass = send ? p->send : p->recv;
        pp_perform perform = pp_is_compute(a.op) ? p->compute : p->sync;
        if (message && pass)
            rc = pass(ctx, a, s->graph->stages[a.peer].row, err);
        else if (!message && perform)
            rc = perform(ctx, a, err);
        if (rc)
            return rc;
    }
    return 0;
}

int pp_walk_init(struct pp_walk *w, const struct pp_schedule *s,
                 struct pp_err *err)
{
    size_t n = (size_t)s->graph->n_rows;
    *w = (struct pp_walk){.schedule = s};
    if (pp_channels_init(&w->channels, s->graph, err))
        return -1;
    w->pc = calloc(n, sizeof *w->pc);
    w->queue = calloc(n, sizeof *w->queue);
    w->queued = calloc(n, sizeof *w->queued);
    if (w->pc && w->queue && w->queued)
        return 0;
    pp_walk_finish(w);
    return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

void pp_walk_finish(struct pp_walk *w)
{
    pp_channels_finish(&w->channels);
    free(w->pc);
    free(w->queue);
    free(w->queued);
    *w = (struct pp_walk){0};
}

int pp_walk(struct pp_walk *w, const struct pp_player *p, void *ctx,
            struct pp_err *err)
{
    const struct pp_schedule *s = w->schedule;
    size_t n = (size_t)s->graph->n_rows, head = 0, waiting = n, at_end = 0,
           tries = 0;
    for (size_t r = 0; r < n; r++) {
        w->pc[r] = 0;
        w->queue[r] = (int)r;
        w->queued[r] = true;
    }
    for (; waiting > 0; waiting--, tries++) {
        int r = w->row = w->queue[head];
        size_t before = w->pc[r];
        head = (head + 1) % n;
        w->queued[r] = false;
        int rc = pp_play(s, r, &w->pc[r], p, ctx, err);
        if (rc < 0)
            return rc;
        /* The first try of a row counts as a move even if it must wait, because
         * a posted receive lets a rendezvous send go. The queue starts with
         * every row once. */
        if (w->pc[r] == before && tries >= n)
            continue;
        for (size_t c = w->channels.first[r]; c < w->channels.first[r + 1];
             c++) {
            int other = w->channels.at[c].to;
            if (w->queued[other] || w->pc[other] == s->rows[other].n)
                continue;
            w->queued[other] = true;
            w->queue[(head + waiting - 1) % n] = other;
            waiting++;
        }
    }
    for (size_t r = 0; r < n; r++)
        at_end += w->pc[r] == s->rows[r].n;
    return at_end == n ? 0 : PP_AGAIN;
}
