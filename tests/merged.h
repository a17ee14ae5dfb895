/* SPDX-License-Identifier: MIT */
/* merged - a schedule as one that a single rank can play. */
#ifndef PP_TESTS_MERGED_H
#define PP_TESTS_MERGED_H

#include <stdlib.h>

#include "schedule/check/check.h"
#include "schedule/ir/event_order.h"
#include "schedule/ir/schedule.h"

/* Fills *dst with the compute actions of all rows, in an order that respects
 * the rows and the dependencies, and without messages. graph has the same
 * stages, all on row 0. SYNC_COPIES and SYNC_TIED appear once, at the end. */
static inline int merge_rows(const struct pp_schedule *s,
                             const struct pp_graph *graph,
                             struct pp_schedule *dst, struct pp_err *err)
{
    struct pp_event_order o = {0};
    int rc = pp_event_order(s, NULL, &o, err);
    if (!rc) {
        pp_schedule_init(dst, graph, s->kind, s->n_microbatches);
        dst->channel_depth = s->channel_depth;
        for (size_t i = 0; i < o.n; i++) {
            o.events[i].action.overlap = 0;
            if (!o.events[i].completion)
                pp_schedule_add(dst, 0, o.events[i].action);
        }
        pp_lower_syncs(dst);
        rc = pp_check(dst, err);
    }
    free(o.events);
    return rc;
}

#endif
