/* SPDX-License-Identifier: MIT */
/* The checks in their order. rows.c checks single rows, event_graph.c the order
 * of messages; deadlock.c explains a deadlock. */
#include "schedule/check/check.h"

#include "schedule/check/parts.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/ops.h"

/* Sets *ends if all ranks reach their ends. */
static int check_progress(const struct pp_schedule *s, const struct pp_fifo *f,
                          bool *ends, struct pp_err *err)
{
    struct pp_ops ops = {0};
    struct pp_paths p = {0};
    int rc = pp_ops_of_schedule(&ops, s, NULL, PP_OPS_STRICT, f,
                                s->channel_depth, false, err);
    if (!rc)
        pp_paths_init(&p, &ops);
    *ends = !rc && pp_paths_heads(&p, NULL);
    pp_paths_finish(&p);
    pp_ops_finish(&ops);
    return rc;
}

int pp_unreduced_stage(const struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    for (int stage = 0; stage < g->n_stages; stage++) {
        const struct pp_row *list = &s->rows[g->stages[stage].row];
        size_t i = 0;
        if (g->stages[stage].frozen)
            continue;
        while (i < list->n && (list->actions[i].op != PP_REDUCE_GRAD ||
                               list->actions[i].stage != stage))
            i++;
        if (i == list->n)
            return stage;
    }
    return -1;
}

int pp_check_order(const struct pp_schedule *s, struct pp_err *err)
{
    struct pp_fifo fifo;
    if (pp_check_rows(s, true, err) || pp_check_messages(&fifo, s, true, err))
        return -1;
    pp_fifo_finish(&fifo);
    return 0;
}

int pp_check(const struct pp_schedule *s, struct pp_err *err)
{
    struct pp_fifo fifo;
    bool ends;
    if (pp_check_rows(s, true, err) || pp_check_messages(&fifo, s, true, err))
        return -1;
    int rc = check_progress(s, &fifo, &ends, err);
    pp_fifo_finish(&fifo);
    return rc || ends ? rc
                      : pp_check_deadlock(s, pp_semantics_find("channel"),
                                          s->channel_depth, err);
}
