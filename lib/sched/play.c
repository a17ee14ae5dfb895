/* SPDX-License-Identifier: MIT */
#include "sched/play.h"

int pp_play(const struct pp_schedule *s, int rank, size_t *pc,
            const struct pp_player *p, void *ctx, struct pp_err *err)
{
    const struct pp_row *row = &s->rows[rank];
    int rc = 0;
    for (; *pc < row->n; ++*pc) {
        struct pp_action a = row->actions[*pc];
        enum pp_op op = a.op;
        if (pp_is_compute(op))
            rc = p->compute(ctx, a, err);
        else if (pp_is_send(op))
            rc = p->send(ctx, a, s->graph->stages[a.peer].rank, err);
        else if (pp_is_recv(op))
            rc = p->recv(ctx, a, s->graph->stages[a.peer].rank, err);
        else
            rc = p->sync(ctx, a, err);
        if (rc)
            return rc;
    }
    return 0;
}
