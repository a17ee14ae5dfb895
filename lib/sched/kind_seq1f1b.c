/* SPDX-License-Identifier: MIT */
/* seq1f1b - 1f1b over slices of sequences.
 *
 * Forwards take the slices of a microbatch from the first, since a token
 * attends to those before it; backwards from the last, since keys and values
 * gather gradients from those behind. So the last slice's backward is the first
 * to come, and a stage warms up with one slice for each stage between it and
 * the loss, as in 1f1b, and the others of its microbatch. Bubble and
 * activations shrink as the slices do. Sun et al., "Seq1F1B: Efficient
 * Sequence-Level Pipeline Parallelism for Large Language Model Training", NAACL
 * 2025. */
#include "sched/kinds.h"

static int emit_stage(struct pp_schedule *s, int stage, size_t n, size_t warmup,
                      struct pp_err *err)
{
    size_t k = (size_t)s->graph->n_slices;
    /* Step i runs forward i and the backward warmup steps behind it. */
    for (size_t i = 0; i < n + warmup; i++) {
        size_t b = i - warmup; /* used from i = warmup on */
        if (i < n &&
            pp_emit_slice(s, PP_F, stage, (int)(i / k), (int)(i % k), err))
            return -1;
        if (i >= warmup && pp_emit_slice(s, PP_B, stage, (int)(b / k),
                                         (int)(k - 1 - b % k), err))
            return -1;
    }
    return 0;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    int k = s->graph->n_slices;
    if (pp_one_stage_each(s, err))
        return -1;
    for (int stage = 0; stage < s->graph->n_stages; stage++) {
        int depth = pp_graph_depth(s->graph, stage);
        if (depth < 0)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        if (emit_stage(s, stage, (size_t)o->n_microbatches * (size_t)k,
                       (size_t)depth + (size_t)k - 1, err))
            return -1;
    }
    return 0;
}

const struct pp_kind pp_kind_seq1f1b = {
    .name = "seq1f1b",
    .summary = "1f1b over slices of sequences; bubble and activations shrink",
    .constraint = "one stage on each rank (ppsplit -c 1), any -m, any --slices",
    .paper = "Sun et al., Seq1F1B, NAACL 2025",
    .slices = 2,
    .emit = emit,
};
