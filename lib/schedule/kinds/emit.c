/* SPDX-License-Identifier: MIT */
/* emit - what the files of kinds share: how an action is appended, and a check
 * of graphs. */
#include "schedule/kinds/kinds.h"

void pp_emit(struct pp_schedule *s, enum pp_op op, int stage, int microbatch)
{
    struct pp_action a = {.stage = stage,
                          .microbatch = microbatch,
                          .peer = -1,
                          .op = (uint8_t)op};
    pp_schedule_add(s, s->graph->stages[stage].row, a);
}

void pp_emit_idle(struct pp_schedule *s, const struct pp_kind_options *o,
                  int row, int n)
{
    struct pp_action a = {
        .stage = -1, .microbatch = -1, .peer = -1, .op = PP_IDLE};
    for (int i = 0; o->idle && i < n; i++)
        pp_schedule_add(s, row, a);
}

int pp_two_in_a_v(const struct pp_schedule *s, struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    if (pp_graph_is(g, PP_PLACEMENT_V) && g->n_stages == 2 * g->n_rows)
        return 0;
    return pp_fail(
        err, PP_EXIT_INPUT,
        "%s needs a chain of two stages on each rank, placed in a V: "
        "use 2 chunks per rank and placement v",
        s->kind);
}
