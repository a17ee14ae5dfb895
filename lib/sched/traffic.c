/* SPDX-License-Identifier: MIT */
#include "sched/traffic.h"

#include <stdlib.h>

#include "sched/channels.h"

int pp_traffic(const struct pp_schedule *s, const struct pp_costs *costs,
               struct pp_channel_traffic **at, size_t *n, struct pp_err *err)
{
    struct pp_channels c;
    *n = 0;
    if (pp_channels_init(&c, s->graph, err))
        return -1;
    *at = calloc(c.n + 1, sizeof **at);
    for (int r = 0; *at && r < s->graph->n_ranks; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (!pp_is_send(a.op))
                continue;
            int peer = s->graph->stages[a.peer].rank;
            struct pp_channel_traffic *t =
                &(*at)[pp_channel_of(&c, a, r, peer)];
            t->messages++;
            t->time += costs->time(costs->ctx, a);
        }
    for (size_t i = 0; *at && i < c.n; i++) {
        if ((*at)[i].messages == 0)
            continue;
        (*at)[i].from = c.at[i].from;
        (*at)[i].to = c.at[i].to;
        (*at)[i].backward = c.at[i].backward;
        (*at)[(*n)++] = (*at)[i];
    }
    pp_channels_finish(&c);
    return *at ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}
