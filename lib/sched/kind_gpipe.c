/* SPDX-License-Identifier: MIT */
/* gpipe - all forwards, then all backwards.
 *
 * Stages ascend, then descend, so that any number of stages on a rank and any
 * placement works; microbatches ascend in both halves, which is the canonical
 * order of weight gradients. Huang et al., "GPipe", NeurIPS 2019. */
#include "sched/kinds.h"

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    for (int stage = 0; stage < s->graph->n_stages; stage++)
        for (int m = 0; m < o->n_microbatches; m++)
            if (pp_emit(s, PP_F, stage, m, err))
                return -1;
    for (int stage = s->graph->n_stages - 1; stage >= 0; stage--)
        for (int m = 0; m < o->n_microbatches; m++)
            if (pp_emit(s, PP_B, stage, m, err))
                return -1;
    return 0;
}

const struct pp_kind pp_kind_gpipe = {
    .name = "gpipe",
    .summary = "all forwards, then all backwards; m activations live",
    .constraint = "none: any stages on any ranks, any -m",
    .paper = "Huang et al., GPipe, NeurIPS 2019",
    .emit = emit,
};
