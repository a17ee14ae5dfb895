/* SPDX-License-Identifier: MIT */
#include "sched/copies.h"

/* The copy that a works in, or -1 where it is no work of the schedule. */
static int copy_at(const struct pp_schedule *s, struct pp_action a)
{
    if (!pp_is_compute(a.op) || a.microbatch < 0 ||
        a.microbatch >= s->n_microbatches || a.stage < 0 ||
        a.stage >= s->graph->n_stages)
        return -1;
    return pp_copy_number(s->graph, a.stage);
}

int pp_copy_of(const struct pp_schedule *s, int m)
{
    for (int r = 0; r < s->graph->n_ranks; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (a.microbatch == m && copy_at(s, a) >= 0)
                return copy_at(s, a);
        }
    return -1;
}

void pp_copies_of(const struct pp_schedule *s, int *copy)
{
    for (int m = 0; m < s->n_microbatches; m++)
        copy[m] = -1;
    for (int r = 0; r < s->graph->n_ranks; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            int at = copy_at(s, a);
            if (at >= 0 && copy[a.microbatch] < 0)
                copy[a.microbatch] = at;
        }
}
