/* SPDX-License-Identifier: MIT */
/* gpipe, looped-bfs - breadth-first kinds.
 *
 * gpipe runs all forwards, then all backwards. Stages ascend, then descend, so
 * any placement works. Microbatches ascend in both halves, which is the
 * canonical order of weight gradients. Huang et al., "GPipe", NeurIPS 2019. */
#include "schedule/kinds/kinds.h"

/* Emits the empty cells of PyTorch's class, which has one stage per rank. */
static void emit_gpipe_idle(struct pp_schedule *s,
                            const struct pp_kind_options *o, int factor)
{
    int p = s->graph->n_rows;
    if (!pp_graph_is(s->graph, PP_PLACEMENT_LOOP) || s->graph->n_stages != p)
        return;
    for (int r = 0; r < p; r++)
        pp_emit_idle(s, o, r, factor ? factor * (p - 1 - r) : r);
}

static int emit_gpipe(struct pp_schedule *s, const struct pp_kind_options *o,
                      struct pp_err *err)
{
    (void)err;
    emit_gpipe_idle(s, o, 0);
    for (int stage = 0; stage < s->graph->n_stages; stage++)
        for (int m = 0; m < o->n_microbatches; m++)
            pp_emit(s, PP_F, stage, m);
    emit_gpipe_idle(s, o, 3);
    for (int stage = s->graph->n_stages - 1; stage >= 0; stage--)
        for (int m = 0; m < o->n_microbatches; m++)
            pp_emit(s, PP_B, stage, m);
    return 0;
}

const struct pp_kind pp_kind_gpipe = {
    .name = "gpipe",
    .summary = "all forwards, then all backwards; m activations live",
    .constraint = "any placement",
    .paper = "Huang et al., GPipe, NeurIPS 2019",
    .slices = 1,
    .emit = emit_gpipe,
};

/* looped-bfs - each stage runs the forward of all microbatches, then all
 * backwards follow.
 *
 * The backward takes the microbatches from the last, as PyTorch's LoopedBFS
 * does, so weight gradients are not in canonical order. Any placement works.
 * Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023. */

static int emit_looped_bfs(struct pp_schedule *s,
                           const struct pp_kind_options *o, struct pp_err *err)
{
    (void)err;
    int p = s->graph->n_rows;
    for (int r = 0; r < p; r++)
        pp_emit_idle(s, o, r, r);
    for (int stage = 0; stage < s->graph->n_stages; stage++)
        for (int m = 0; m < o->n_microbatches; m++)
            pp_emit(s, PP_F, stage, m);
    for (int r = 0; r < p; r++)
        pp_emit_idle(s, o, r, 2 * (p - 1 - r));
    for (int stage = s->graph->n_stages - 1; stage >= 0; stage--)
        for (int m = o->n_microbatches - 1; m >= 0; m--)
            pp_emit(s, PP_B, stage, m);
    return 0;
}

const struct pp_kind pp_kind_looped_bfs = {
    .name = "looped-bfs",
    .summary =
        "breadth first: all microbatches on a stage, then the next stage",
    .constraint = "any placement",
    .paper = "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023",
    .n_chunks = 2,
    .emit = emit_looped_bfs,
};
