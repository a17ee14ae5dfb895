/* SPDX-License-Identifier: MIT */
/* 1f1b - warm up, then one forward and one backward in turn, then drain.
 *
 * A stage warms up with as many forwards as there are stages between it and
 * the loss, counted along the longest path, so that branches of different
 * lengths meet. Also right for fewer microbatches than ranks. Narayanan et
 * al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021
 * (PipeDream-Flush). */
#include "sched/kinds.h"

static int fail_chunks(const struct pp_schedule *s, struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s needs one stage on each rank, not %d stages on %d "
                   "ranks in this placement: split with 'ppsplit -p %d -c 1'",
                   s->kind, g->n_stages, g->n_ranks, g->n_ranks);
}

int pp_emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                 struct pp_err *err)
{
    int m = o->n_microbatches;
    if (s->graph->n_stages != s->graph->n_ranks)
        return fail_chunks(s, err);
    for (int stage = 0; stage < s->graph->n_stages; stage++) {
        if (s->rows[s->graph->stages[stage].rank].n > 0)
            return fail_chunks(s, err);
        int warmup = pp_graph_depth(s->graph, stage);
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

const struct pp_kind pp_kind_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward; at most p activations live",
    .constraint = "one stage on each rank (ppsplit -c 1), any -m",
    .paper = "Narayanan et al., PipeDream-Flush, ICML 2021",
    .emit = pp_emit_1f1b,
};
