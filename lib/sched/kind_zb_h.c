/* SPDX-License-Identifier: MIT */
/* zb-h1, zb-h2 - 1F1B with the backward split, weight gradients put off.
 *
 * An input gradient is passed on at once; a weight gradient waits until the
 * rank has nothing better to do, or until as many microbatches are alive as the
 * limit allows: p for H1, as in 1F1B, and 2p - 1 for H2, which fills the
 * warm-up too. p is the longest path to the loss, in ranks. Qi et al.,
 * "Zero Bubble Pipeline Parallelism", ICLR 2024. */
#include "sched/kinds.h"
#include "sched/passage.h"

static int emit_rank(struct pp_schedule *s, const struct pp_passage *p,
                     int rank, int m, int factor, struct pp_err *err)
{
    int warmup = factor * p->depth[rank] + 1;
    int limit = factor * (p->longest - 1) + 1, f = 0, w = 0;
    for (; f < warmup && f < m; f++)
        if (pp_passage_emit(s, p, PP_F, rank, f, err))
            return -1;
    for (int i = 0; i < m; i++) {
        if (pp_passage_emit(s, p, PP_I, rank, i, err))
            return -1;
        if ((f == m || f - w >= limit) &&
            pp_passage_emit(s, p, PP_W, rank, w++, err))
            return -1;
        if (f < m && pp_passage_emit(s, p, PP_F, rank, f++, err))
            return -1;
    }
    for (; w < m; w++)
        if (pp_passage_emit(s, p, PP_W, rank, w, err))
            return -1;
    return 0;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                int factor, struct pp_err *err)
{
    struct pp_passage p;
    if (pp_passage_init(&p, s, err))
        return -1;
    int rc = 0;
    for (int r = 0; !rc && r < s->graph->n_ranks; r++)
        rc = emit_rank(s, &p, r, o->n_microbatches, factor, err);
    pp_passage_finish(&p);
    return rc;
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
    .constraint = "each rank passed once (ppsplit -c 1), branches too; any -m",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .emit = emit_h1,
};

const struct pp_kind pp_kind_zb_h2 = {
    .name = "zb-h2",
    .summary = "backward split; hardly a bubble, at most 2p - 1 slots",
    .constraint = "each rank passed once (ppsplit -c 1), branches too; any -m",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .emit = emit_h2,
};
