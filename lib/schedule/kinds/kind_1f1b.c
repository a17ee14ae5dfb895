/* SPDX-License-Identifier: MIT */
/* 1f1b - warm up, then one forward and one backward in turn, then drain.
 *
 * A rank warms up with as many forwards as there are ranks between it and the
 * loss, counted along the longest path, so that branches of different lengths
 * meet. Also right for fewer microbatches than ranks. Narayanan et
 * al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021
 * (PipeDream-Flush). */
#include "sched/kinds.h"
#include "sched/passage.h"

/* Step k runs forward k and the backward warmup steps behind it. */
static int emit_rank(struct pp_schedule *s, const struct pp_passage *p,
                     int rank, int m, int warmup, struct pp_err *err)
{
    for (int k = 0; k < m + warmup; k++) {
        if (k < m && pp_passage_emit(s, p, PP_F, rank, k, err))
            return -1;
        if (k >= warmup && pp_passage_emit(s, p, PP_B, rank, k - warmup, err))
            return -1;
    }
    return 0;
}

int pp_emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                 int ahead, struct pp_err *err)
{
    struct pp_passage p;
    if (pp_passage_init(&p, s, err))
        return -1;
    int rc = 0;
    for (int r = 0; !rc && r < s->graph->n_ranks; r++)
        rc = emit_rank(s, &p, r, o->n_microbatches, ahead * p.depth[r], err);
    pp_passage_finish(&p);
    return rc;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    return pp_emit_1f1b(s, o, 1, err);
}

const struct pp_kind pp_kind_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward; at most p activations live",
    .constraint = "each rank passed once (ppsplit -c 1), branches too; any -m",
    .paper = "Narayanan et al., PipeDream-Flush, ICML 2021",
    .emit = emit,
};
