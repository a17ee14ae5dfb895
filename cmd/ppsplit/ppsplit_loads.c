/* SPDX-License-Identifier: MIT */
/* ppsplit_loads - how uneven the work of expert-parallel ranks is, by the
 * experts that tokens got in a run: those that --routing has of each token, or
 * their sums in a profile.
 *
 * All ranks of a group wait for the one with most rows in every microbatch. So
 * the time of experts is the sum of the most rows over microbatches, over the
 * sum of the means. If a group has ranks of several data-parallel lanes, these
 * have microbatches that follow each other. */
#include <string.h>

#include "data/packed.h"
#include "data/routes.h"
#include "ppsplit.h"

/* Adds the rows that a bin has for each rank of a group. */
static void add_bin(const struct pp_routes *r, const struct pp_bin *b,
                    size_t layer, size_t held, uint64_t *rows)
{
    size_t at =
        pp_routes_place(&r->shape, b->first_position, b->tokens, layer, 0);
    for (size_t i = 0; i < (size_t)b->tokens * r->shape.top_k; i++)
        if (r->experts[at + i] != PP_NO_EXPERT)
            rows[r->experts[at + i] / held]++;
}

/* Returns the work of the fullest ranks in a layer over the mean; 0 without
 * recorded experts. */
static double skew_of(const struct split_job *j, const struct pp_packed *p,
                      const struct pp_routes *r, size_t layer)
{
    size_t ep = (size_t)j->mesh.ep, group = pp_expert_group(&j->mesh);
    uint64_t rows[PP_MOST_EXPERT_RANKS], fullest = 0, all = 0;
    for (size_t first = 0; first < p->n_bins; first += group) {
        uint64_t most = 0;
        memset(rows, 0, ep * sizeof *rows);
        for (size_t i = first; i < first + group && i < p->n_bins; i++) {
            struct pp_bin b;
            pp_packed_bin(p, i, &b);
            add_bin(r, &b, layer, r->shape.n_experts / ep, rows);
        }
        for (size_t k = 0; k < ep; k++) {
            most = rows[k] > most ? rows[k] : most;
            all += rows[k];
        }
        fullest += most;
    }
    return all ? (double)fullest * (double)ep / (double)all : 0;
}

static int set_skew(struct split_job *j, const struct pp_packed *p,
                    const struct pp_routes *r)
{
    struct pp_moe *m = &j->model.moe;
    double *skew =
        pp_arena_alloc(&j->arena, j->model.n_layers + 1, sizeof *skew);
    if (!skew)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t l = 0, at = 0; l < j->model.n_layers; l++) {
        skew[l] = 1;
        if (!pp_layer_set_has(&m->layers, l))
            continue;
        skew[l] = skew_of(j, p, r, at++);
        if (!(skew[l] > 0))
            return pp_fail(&j->t.err, PP_EXIT_INPUT,
                           "%s: no token has an expert in layer '%zu'; record "
                           "a run that reaches the data",
                           j->routing, l);
    }
    m->skew = skew;
    return 0;
}

/* Reports whether ranks can divide the experts so. The request checks it later,
 * and says more. */
static bool divides(const struct split_job *j)
{
    size_t n = j->model.moe.n_experts;
    return n && n % (size_t)j->mesh.ep == 0 &&
           j->mesh.ep <= PP_MOST_EXPERT_RANKS;
}

int split_read_loads(struct split_job *j)
{
    const struct pp_moe *m = &j->model.moe;
    struct pp_err *err = &j->t.err;
    struct pp_packed p = {0};
    struct pp_routes r = {0};
    struct pp_routes_shape want = {0};
    if (!j->routing || !divides(j))
        return 0;
    int rc = pp_packed_open(j->routed_data, &p, err);
    if (rc == 0)
        rc = pp_routes_of(&p, &want, err);
    want.n_experts = (uint32_t)m->n_experts;
    want.top_k = (uint32_t)m->top_k;
    want.n_layers =
        (uint32_t)pp_layer_set_before(&m->layers, j->model.n_layers);
    if (rc == 0)
        rc = pp_routes_open(j->routing, &want, &r, err);
    if (rc == 0)
        rc = set_skew(j, &p, &r);
    pp_routes_close(&r);
    pp_packed_finish(&p);
    return rc;
}

/* Scales the seconds of a unit by the operations of the fullest rank of the
 * plan over those of the run. */
static void scale_unit(const struct pp_model *plan, const struct pp_model *run,
                       struct pp_unit_id u, struct pp_unit_seconds *s)
{
    double by = pp_unit_fwd_flops(plan, u).per_token /
                pp_unit_fwd_flops(run, u).per_token;
    s->fwd[0] *= by;
    s->input[0] *= by;
    s->weight[0] *= by;
}

/* Returns the loads of a layer in the profile, or NULL with the error. */
static const struct pp_expert_loads *find_loads(struct split_job *j, size_t i)
{
    const struct pp_unit_seconds *u = &j->profile.units[i];
    size_t n = j->model.moe.n_experts;
    if (u->experts.n_experts == n)
        return &u->experts;
    pp_fail(&j->t.err, PP_EXIT_INPUT,
            "%s: '%s' has loads of '%zu' experts, but the model has %zu",
            j->costs_file, u->fqn, u->experts.n_experts, n);
    return NULL;
}

int split_use_loads(struct split_job *j, const struct pp_profile *p)
{
    struct pp_model run = j->model;
    double *was, *is;
    if (!p->expert_ranks || !divides(j))
        return 0;
    was = pp_arena_alloc(&j->arena, j->model.n_layers + 1, sizeof *was);
    is = pp_arena_alloc(&j->arena, j->model.n_layers + 1, sizeof *is);
    if (!was || !is)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    run.moe.skew = was;
    for (size_t i = 0; i < j->n_units; i++) {
        struct pp_unit_id u = pp_model_unit(&j->model, i);
        if (u.kind != PP_UNIT_LAYER || u.layer >= j->model.n_layers)
            continue;
        was[u.layer] = is[u.layer] = 1;
        if (!pp_layer_set_has(&run.moe.layers, u.layer))
            continue;
        const struct pp_expert_loads *l = find_loads(j, i);
        if (!l)
            return -1;
        was[u.layer] =
            pp_expert_loads_skew(l, p->expert_ranks, p->expert_group);
        is[u.layer] = pp_expert_loads_skew(l, (size_t)j->mesh.ep,
                                           pp_expert_group(&j->mesh));
    }
    if (!j->routing)
        j->model.moe.skew = is;
    for (size_t i = 0; i < j->n_units; i++) {
        struct pp_unit_id u = pp_model_unit(&j->model, i);
        if (u.kind == PP_UNIT_LAYER && u.layer < j->model.n_layers)
            scale_unit(&j->model, &run, u, &j->profile.units[i]);
    }
    return 0;
}
