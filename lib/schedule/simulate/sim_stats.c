/* SPDX-License-Identifier: MIT */
#include "sched/idle.h"

struct pp_idle pp_idle_of(const struct pp_sim *sim, int rank)
{
    const struct pp_sim_rank *r = &sim->ranks[rank];
    struct pp_idle idle = {0};
    double end = 0;
    bool begun = false;
    for (size_t i = 0; i < r->n; i++) {
        const struct pp_span *s = &r->spans[i];
        if (!pp_is_compute(s->action.op))
            continue;
        double *why = !begun                 ? &idle.fill
                      : s->action.op == PP_F ? &idle.wait_forward
                                             : &idle.wait_backward;
        *why += s->start - end;
        end = s->end;
        begun = true;
    }
    *(begun ? &idle.drain : &idle.fill) += sim->makespan - end;
    return idle;
}
