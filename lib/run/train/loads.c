/* SPDX-License-Identifier: MIT */
/* loads - the tokens of each expert in a run, for a profile.
 *
 * Routers count them on the host (run/parts/experts/router.c). Of the ranks
 * that share a microbatch one counts, as all know the same numbers. */
#include <stdlib.h>

#include "model/layer_set.h"
#include "run/train/rank.h"
#include "run/train/record.h"

static size_t n_expert_layers(const struct pp_model *m)
{
    return pp_layer_set_before(&m->moe.layers, m->n_layers);
}

/* Returns the values of a layer: by expert, then by divisor. */
static size_t layer_values(const struct pp_model *m)
{
    return m->moe.n_experts + pp_n_divisors(m->moe.n_experts);
}

static void place_loads(const struct pp_model *m, double *values,
                        struct pp_expert_loads *loads)
{
    size_t E = m->moe.n_experts;
    for (size_t i = 0; i < n_expert_layers(m); i++) {
        double *at = values + i * layer_values(m);
        loads[i] = (struct pp_expert_loads){E, at, at + E};
    }
}

int pp_rank_make_loads(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    size_t n = n_expert_layers(j->model);
    if (!j->record.layers || n == 0 || j->schedule->graph->slices.n > 1)
        return 0;
    r->loads = calloc(n, sizeof *r->loads);
    r->load_values =
        calloc(n * layer_values(j->model) + j->model->moe.n_experts,
               sizeof *r->load_values);
    if (!r->loads || !r->load_values)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    place_loads(j->model, r->load_values, r->loads);
    return 0;
}

double *pp_rank_load_room(const struct pp_rank *r)
{
    const struct pp_model *m = r->job->model;
    return r->load_values
               ? r->load_values + n_expert_layers(m) * layer_values(m)
               : NULL;
}

/* Adds the n values of the ranks that counted. */
static void add_ranks(const struct pp_rank *r, const double *all, size_t n,
                      double *sum)
{
    struct pp_place p;
    for (int rank = 0; rank < r->env.comm->size; rank++)
        for (size_t i = 0; pp_layout_find(&r->env.layout, rank, &p) &&
                           p.cp + p.tp == 0 && i < n;
             i++)
            sum[i] += all[(size_t)rank * n + i];
}

/* Gives the units of the profile their loads. */
static void fill_units(const struct pp_model *m, double *sum,
                       struct pp_record *record)
{
    struct pp_profile *p = &record->profile;
    struct pp_expert_loads *loads =
        pp_arena_alloc(&record->arena, n_expert_layers(m), sizeof *loads);
    place_loads(m, sum, loads);
    for (size_t i = 0; i < p->n_units; i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        if (pp_unit_is_decoder(u) && u.layer < m->n_layers &&
            pp_layer_set_has(&m->moe.layers, u.layer))
            p->units[i].experts =
                loads[pp_layer_set_before(&m->moe.layers, u.layer)];
    }
}

int pp_rank_gather_loads(struct pp_rank *r, struct pp_record *record,
                         struct pp_err *err)
{
    const struct pp_model *m = r->job->model;
    if (!r->loads)
        return 0;
    size_t n = n_expert_layers(m) * layer_values(m);
    double *all = pp_rank_gather(r, r->load_values, n, err);
    double *sum = pp_arena_alloc(&record->arena, n, sizeof *sum);
    if (!all)
        return -1;
    add_ranks(r, all, n, sum);
    fill_units(m, sum, record);
    free(all);
    const struct pp_mesh *x = &pp_layout_language(&r->env.layout)->mesh;
    record->profile.expert_ranks = (size_t)x->ep;
    record->profile.expert_group = pp_expert_group(x);
    return 0;
}
