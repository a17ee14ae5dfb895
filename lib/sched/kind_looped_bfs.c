/* SPDX-License-Identifier: MIT */
/* looped-bfs - each stage forward over all microbatches, then all the way back.
 *
 * The backward takes the microbatches from the last, as PyTorch's LoopedBFS
 * does, so weight gradients are not in canonical order. Any placement works.
 * Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023. */
#include "sched/kinds.h"

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    int p = s->graph->n_ranks;
    for (int r = 0; r < p; r++)
        if (pp_emit_idle(s, o, r, r, err))
            return -1;
    for (int stage = 0; stage < s->graph->n_stages; stage++)
        for (int m = 0; m < o->n_microbatches; m++)
            if (pp_emit(s, PP_F, stage, m, err))
                return -1;
    for (int r = 0; r < p; r++)
        if (pp_emit_idle(s, o, r, 2 * (p - 1 - r), err))
            return -1;
    for (int stage = s->graph->n_stages - 1; stage >= 0; stage--)
        for (int m = o->n_microbatches - 1; m >= 0; m--)
            if (pp_emit(s, PP_B, stage, m, err))
                return -1;
    return 0;
}

const struct pp_kind pp_kind_looped_bfs = {
    .name = "looped-bfs",
    .summary = "breadth first: a stage over all microbatches, then the next",
    .constraint = "none: any stages on any ranks, any -m",
    .paper = "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023",
    .n_chunks = 2,
    .emit = emit,
};
