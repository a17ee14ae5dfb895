/* SPDX-License-Identifier: MIT */
/* job_generator - the memory that a generator behind the language model needs.
 */
#include "run/execute/bridge_rows.h"
#include "run/execute/job.h"

bool pp_job_has_units(const struct pp_job *j, int row, bool generator)
{
    const struct pp_graph *g = j->schedule->graph;
    size_t own = pp_component_first(j->model, PP_GENERATOR);
    for (int s = 0; s < g->n_stages; s++)
        if (g->stages[s].row == row && j->stages[s].n > 0 &&
            (j->stages[s].first >= own) == generator)
            return true;
    return false;
}

size_t pp_job_row_room(const struct pp_job *j, enum pp_job_pass pass, int row)
{
    const struct pp_layout l = pp_job_layout(j);
    size_t room = pp_job_room(j, pass);
    if (!pp_layout_generates(&l, pp_layout_component(&l, row)))
        return room;
    return pp_layout_generated(&l, room, pp_job_longest(j, pass));
}

void pp_job_count_generator(const struct pp_job *j, int row,
                            struct pp_table_counts *c)
{
    const struct pp_layout l = pp_job_layout(j);
    const bool used[] = {pp_job_trains(j), pp_job_forwards(j)};
    int component = pp_layout_component(&l, row);
    bool generates = j->model->generator && pp_job_has_units(j, row, true);
    size_t most = 0;
    for (int pass = PP_PASS_TRAIN; pass <= PP_PASS_FORWARD; pass++) {
        size_t n =
            used[pass] ? pp_job_row_room(j, (enum pp_job_pass)pass, row) : 0;
        most = n > most ? n : most;
    }
    if (generates) {
        c->generated = most;
        c->generator_rotary = pp_model_rope_width(j->model->generator);
    }
    if (!l.generates || pp_layout_encodes(&l, component))
        return;
    c->bridged = most;
    for (int k = l.n_components - 2; k < l.n_components; k++) {
        const struct pp_mesh *x = &l.components[k].mesh;
        size_t n = (size_t)(x->dp * pp_mesh_sharers(x));
        c->bridges = n > c->bridges ? n : c->bridges;
    }
}
