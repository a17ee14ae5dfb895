/* SPDX-License-Identifier: MIT */
/* 1f1b - warm up, then one forward and one backward in turn, then drain.
 *
 * A stage warms up with as many forwards as there are stages between it and
 * the loss, counted along the longest path, so that branches of different
 * lengths meet. Also right for fewer microbatches than ranks. Narayanan et
 * al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021
 * (PipeDream-Flush). */
#include "sched/kinds.h"

int pp_emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                 int ahead, struct pp_err *err)
{
    int m = o->n_microbatches;
    if (pp_one_stage_each(s, err))
        return -1;
    for (int stage = 0; stage < s->graph->n_stages; stage++) {
        int warmup = ahead * pp_graph_depth(s->graph, stage);
        if (warmup < 0)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        /* Step k runs forward k and the backward warmup steps behind it. */
        for (int k = 0; k < m + warmup; k++) {
            if (k < m && pp_emit(s, PP_F, stage, k, err))
                return -1;
            if (k >= warmup && pp_emit(s, PP_B, stage, k - warmup, err))
                return -1;
        }
    }
    return 0;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    return pp_emit_1f1b(s, o, 1, err);
}

const struct pp_kind pp_kind_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward; at most p activations live",
    .constraint = "one stage on each rank (ppsplit -c 1), any -m",
    .paper = "Narayanan et al., PipeDream-Flush, ICML 2021",
    .emit = emit,
};
