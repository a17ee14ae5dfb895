/* SPDX-License-Identifier: MIT */
/* eager-1f1b - 1F1B that runs twice as many forwards ahead.
 *
 * A message then has a whole step to arrive in, so that its time is hidden for
 * almost twice the memory. Zhuang et al., "On Optimizing the Communication of
 * Model Parallelism", MLSys 2023. */
#include "sched/kinds.h"

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    return pp_emit_1f1b(s, o, 2, err);
}

const struct pp_kind pp_kind_eager_1f1b = {
    .name = "eager-1f1b",
    .summary = "1f1b with twice the warm-up, which hides slow messages",
    .constraint = "each rank passed once (ppsplit -c 1), branches too; any -m",
    .paper = "Zhuang et al., MLSys 2023",
    .emit = emit,
};
