/* SPDX-License-Identifier: MIT */
/* record_view - a recorded pass, as a simulated one. */
#include <stdlib.h>

#include "run/train/record.h"

int pp_record_view(const struct pp_record *r, int step, int pass, double origin,
                   struct pp_sim *sim, struct pp_err *err)
{
    const struct pp_schedule *s = r->schedule;
    *sim = (struct pp_sim){.n_rows = s->graph->n_rows};
    sim->rows = calloc((size_t)sim->n_rows, sizeof *sim->rows);
    if (!sim->rows)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int k = 0; k < sim->n_rows; k++) {
        const double(*at)[2] = pp_record_spans(r, k, step, pass);
        const struct pp_row *row = &s->rows[k];
        struct pp_sim_row *rank = &sim->rows[k];
        rank->n = row->n;
        rank->spans = calloc(row->n + 1, sizeof *rank->spans);
        if (!rank->spans)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        for (size_t i = 0; i < row->n; i++)
            rank->spans[i] = (struct pp_span){
                row->actions[i], at[i][0] - origin, at[i][1] - origin};
    }
    return 0;
}
