/* SPDX-License-Identifier: MIT */
#include "schedule/ir/play.h"

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
