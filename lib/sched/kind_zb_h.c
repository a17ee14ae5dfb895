/* SPDX-License-Identifier: MIT */
/* zb-h1, zb-h2 - 1F1B with the backward split, weight gradients put off.
 *
 * An input gradient is passed on at once; a weight gradient waits until the
 * rank has nothing better to do, or until as many microbatches are alive as the
 * limit allows: p for H1, as in 1F1B, and 2p - 1 for H2, which fills the
 * warm-up too. p is the longest path to the loss, in stages. Qi et al.,
 * "Zero Bubble Pipeline Parallelism", ICLR 2024. */
#include "sched/kinds.h"

static int emit_stage(struct pp_schedule *s, int stage, int m, int warmup,
                      int limit, struct pp_err *err)
{
    int f = 0, w = 0;
    for (; f < warmup && f < m; f++)
        if (pp_emit(s, PP_F, stage, f, err))
            return -1;
    for (int i = 0; i < m; i++) {
        if (pp_emit(s, PP_I, stage, i, err))
            return -1;
        if ((f == m || f - w >= limit) && pp_emit(s, PP_W, stage, w++, err))
            return -1;
        if (f < m && pp_emit(s, PP_F, stage, f++, err))
            return -1;
    }
    for (; w < m; w++)
        if (pp_emit(s, PP_W, stage, w, err))
            return -1;
    return 0;
}

static int longest_path(const struct pp_graph *g)
{
    int longest = 0;
    for (int stage = 0; stage < g->n_stages; stage++) {
        int depth = g->stages[stage].n_inputs ? 0 : pp_graph_depth(g, stage);
        if (depth < 0)
            return -1;
        longest = depth > longest ? depth : longest;
    }
    return longest + 1;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                int factor, struct pp_err *err)
{
    if (pp_one_stage_each(s, err))
        return -1;
    int p = longest_path(s->graph);
    for (int stage = 0; stage < s->graph->n_stages; stage++) {
        int depth = p < 0 ? -1 : pp_graph_depth(s->graph, stage);
        if (depth < 0)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        if (emit_stage(s, stage, o->n_microbatches, factor * depth + 1,
                       factor * (p - 1) + 1, err))
            return -1;
    }
    return 0;
}

static int emit_h1(struct pp_schedule *s, const struct pp_kind_options *o,
                   struct pp_err *err)
{
    return emit(s, o, 1, err);
}

static int emit_h2(struct pp_schedule *s, const struct pp_kind_options *o,
                   struct pp_err *err)
{
    return emit(s, o, 2, err);
}

const struct pp_kind pp_kind_zb_h1 = {
    .name = "zb-h1",
    .summary = "backward split; a third of 1f1b's bubble at its memory",
    .constraint = "one stage on each rank (ppsplit -c 1), any -m",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .emit = emit_h1,
};

const struct pp_kind pp_kind_zb_h2 = {
    .name = "zb-h2",
    .summary = "backward split; hardly a bubble, at most 2p - 1 slots",
    .constraint = "one stage on each rank (ppsplit -c 1), any -m",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .emit = emit_h2,
};
