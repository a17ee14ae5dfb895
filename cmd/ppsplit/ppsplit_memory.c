/* SPDX-License-Identifier: MIT */
/* What units and ranks keep under the schedule that will run, in bytes. */
#include <math.h>
#include <stdlib.h>

#include "model/model.h"
#include "model/vision.h"
#include "ppsplit.h"

double split_slice_tokens(const struct split_job *j)
{
    int64_t n = j->run.graph.n_slices;
    return (double)((j->tokens + n - 1) / n);
}

void split_unit_bytes(const struct split_job *j, size_t i,
                      double b[PP_N_UNIT_BYTES])
{
    static const struct {
        int bytes;
        enum pp_saved_block block;
    } kept[] = {{PP_UNIT_ACT_I, PP_SAVED_ACT_I},
                {PP_UNIT_ACT_W, PP_SAVED_ACT_W},
                {PP_UNIT_GRAD_W, PP_SAVED_GRAD_W},
                {PP_UNIT_PASSING, PP_SAVED_WORKSPACE}};
    struct pp_unit_id u = pp_model_unit(&j->model, i);
    double tokens = split_slice_tokens(j) * pp_mesh_share(&j->mesh);
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
        b[kept[k].bytes] = tokens * (double)pp_unit_saved_bytes(
                                        &j->model, u, split_recompute(j, i),
                                        kept[k].block, j->precision);
    b[PP_UNIT_TRAINED] = split_state_bytes(j, i);
}

double split_state_bytes(const struct split_job *j, size_t i)
{
    struct pp_unit_id u = pp_model_unit(&j->model, i);
    return pp_mesh_state_bytes(&j->mesh, pp_mesh_held(&j->mesh, &j->model, u),
                               j->precision);
}

double split_out_bytes(const struct split_job *j, size_t i)
{
    struct pp_unit_id u = pp_model_unit(&j->model, i);
    double bytes = (double)(j->model.hidden * j->precision->element_bytes);
    if (j->model.table)
        return pp_unit_row(&j->model, u)->out_bytes;
    if (pp_unit_is_vision(u))
        return pp_vision_out_width(&j->model, u) *
               (double)j->precision->element_bytes * pp_mesh_share(&j->mesh);
    /* Nothing leaves the head but a loss. */
    if (pp_unit_is_mtp(&j->model, u)) /* and all that came in */
        bytes *= (double)(u.layer - j->model.n_layers + 2);
    return u.kind == PP_UNIT_HEAD ? 0 : bytes * pp_mesh_share(&j->mesh);
}

double split_message_bytes(const struct split_job *j, size_t i)
{
    return split_out_bytes(j, i) * split_slice_tokens(j);
}

double split_largest_message(const struct split_job *j)
{
    double most = 0;
    for (size_t i = 0; i + 1 < j->n_units; i++)
        most = fmax(most, split_message_bytes(j, i));
    return most;
}

void split_stage_bytes(const struct split_job *j, const size_t *bounds,
                       struct pp_stage_bytes *sizes)
{
    const struct split_run *run = &j->run;
    for (int s = 0; s < run->graph.n_stages; s++) {
        int o = pp_original(&run->graph, s);
        struct pp_stage_bytes *x = &sizes[s];
        *x = (struct pp_stage_bytes){0};
        if (bounds[o + 1] > 0 && bounds[o + 1] < j->n_units)
            x->output = (size_t)ceil(split_message_bytes(j, bounds[o + 1] - 1));
        for (size_t i = bounds[o]; i < bounds[o + 1]; i++) {
            x->act_i += (size_t)run->bytes[i][PP_UNIT_ACT_I];
            x->act_w += (size_t)run->bytes[i][PP_UNIT_ACT_W];
            x->grad_w += (size_t)run->bytes[i][PP_UNIT_GRAD_W];
            size_t workspace = (size_t)run->bytes[i][PP_UNIT_PASSING];
            if (workspace > x->workspace)
                x->workspace = workspace;
        }
    }
}

int split_plan_rank(struct split_job *j, const size_t *bounds, int rank,
                    size_t *bytes)
{
    const struct split_run *run = &j->run;
    struct pp_err *err = &j->t.err;
    struct pp_memory m;
    struct pp_stage_bytes *sizes =
        calloc((size_t)run->graph.n_stages, sizeof *sizes);
    if (!sizes)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    split_stage_bytes(j, bounds, sizes);
    int rc = pp_memory_plan(&run->lowered, rank, sizes, &m, err);
    free(sizes);
    if (rc)
        return -1;
    *bytes = m.arena_bytes;
    pp_memory_finish(&m);
    return 0;
}

double split_rank_trained(const struct split_job *j, const size_t *bounds,
                          int rank)
{
    const struct split_run *run = &j->run;
    double trained = 0;
    for (int s = 0; s < run->graph.n_stages; s++) {
        int o = pp_original(&run->graph, s);
        for (size_t i = bounds[o]; i < bounds[o + 1]; i++)
            if (run->graph.stages[s].row == rank)
                trained += run->bytes[i][PP_UNIT_TRAINED];
    }
    return trained;
}

int split_rank_fits(struct split_job *j, int rank, bool *yes)
{
    /* Bytes of a unit are rounded down in a plan. */
    const double most = 1 + 1e-6;
    size_t arena = 0;
    *yes = false;
    if (pp_split_memory_held(&j->run.memory, j->bounds, rank) >
        most * (double)j->memory_bytes)
        return 0;
    if (split_plan_rank(j, j->bounds, rank, &arena))
        return -1;
    *yes = split_rank_trained(j, j->bounds, rank) + (double)arena <=
           (double)j->memory_bytes;
    return 0;
}
