/* SPDX-License-Identifier: MIT */
/* loads - how uneven the work of expert-parallel ranks is, by the
 * tokens that experts got in the run of a profile.
 *
 * All ranks of a group wait for the one with most rows in every microbatch. So
 * the time of experts is the sum of the most rows over microbatches, over the
 * sum of the means. */
#include <math.h>

#include "ppsplit.h"

/* Reports whether ranks can divide the experts so. The request checks it later,
 * and says more. */
static bool divides(const struct split_job *j)
{
    size_t n = j->p.model.moe.n_experts;
    return n && n % (size_t)j->p.mesh.ep == 0 &&
           j->p.mesh.ep <= PP_MOST_EXPERT_RANKS;
}

/* Returns the operations of the products of a layer in F, and so many products
 * of the rows that go to experts in further rounds. */
static double products_of(const struct pp_shard *s, struct pp_unit_id u, int n)
{
    return pp_unit_fwd_flops(s, u).per_token + n * pp_unit_further_flops(s, u);
}

/* Scales the seconds of a unit by the operations of the fullest rank of the
 * plan over the operations in the run. */
static void scale_unit(const struct pp_shard *plan, const struct pp_shard *run,
                       struct pp_unit_id u, struct pp_unit_seconds *s)
{
    s->fwd[0] *= products_of(plan, u, 0) / products_of(run, u, 0);
    s->input[0] *= products_of(plan, u, PP_FURTHER_INPUT) /
                   products_of(run, u, PP_FURTHER_INPUT);
    s->weight[0] *= products_of(plan, u, PP_FURTHER_WEIGHT) /
                    products_of(run, u, PP_FURTHER_WEIGHT);
}

/* Returns the loads of a layer in the profile, or NULL with the error. */
static const struct pp_expert_loads *find_loads(struct split_job *j, size_t i)
{
    const struct pp_unit_seconds *u = &j->profile.units[i];
    size_t n = j->p.model.moe.n_experts;
    if (u->experts.n_experts == n)
        return &u->experts;
    pp_fail(&j->p.t.err, PP_EXIT_INPUT,
            "%s: '%s' has loads of '%zu' experts, but the model has %zu",
            j->o.costs_file, u->fqn, u->experts.n_experts, n);
    return NULL;
}

/* Returns the work of experts in a layer with so many operations, over the
 * mean: operations grow with it, so that one of its neighbours has exactly as
 * many. */
static double skew_of(struct pp_shard *s, struct pp_unit_id u, double flops,
                      double *at)
{
    enum { NEIGHBOURS = 8 };
    double n = pp_mesh_sharers(&s->mesh), most = HUGE_VAL;
    *at = 1;
    double even = pp_unit_fwd_flops(s, u).per_token;
    *at = most;
    most = pp_shard_skew(s, u.layer);
    if (!(most > 1) || !(flops * n > even))
        return 1;
    double all = pp_unit_fwd_flops(s, u).per_token;
    double skew = 1 + (flops * n - even) / (all - even) * (most - 1);
    for (int k = 0; k < NEIGHBOURS; k++) {
        *at = skew;
        double got = pp_unit_fwd_flops(s, u).per_token / n;
        if (!(got < flops) && !(got > flops))
            break;
        skew = nextafter(skew, got < flops ? HUGE_VAL : 0);
    }
    return skew;
}

void split_take_loads(struct split_job *j)
{
    const struct pp_model *m = &j->p.model;
    struct pp_shard *s = &j->p.request.shard;
    if (!j->given_flops || j->p.mesh.expert_imbalance > 0 || m->table ||
        j->p.mesh.ep == 1 || !divides(j))
        return;
    double *skew = pp_arena_alloc(&j->p.arena, m->n_layers + 1, sizeof *skew);
    s->skew = skew;
    for (size_t i = 0; i < j->n_units; i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        if (u.kind == PP_UNIT_LAYER && u.layer < m->n_layers)
            skew[u.layer] = skew_of(s, u, j->given_flops[i], &skew[u.layer]);
    }
}

int split_use_loads(struct split_job *j, const struct pp_profile *p)
{
    struct pp_shard run = j->p.request.shard;
    double *was, *is;
    if (!p->expert_ranks || !divides(j))
        return 0;
    was = pp_arena_alloc(&j->p.arena, j->p.model.n_layers + 1, sizeof *was);
    is = pp_arena_alloc(&j->p.arena, j->p.model.n_layers + 1, sizeof *is);
    run.skew = was;
    run.mesh.ep = (int)p->expert_ranks;
    for (size_t i = 0; i < j->n_units; i++) {
        struct pp_unit_id u = pp_model_unit(&j->p.model, i);
        if (!pp_unit_is_decoder(u) || u.layer >= j->p.model.n_layers)
            continue;
        was[u.layer] = is[u.layer] = 1;
        if (!pp_layer_set_has(&j->p.model.moe.layers, u.layer))
            continue;
        const struct pp_expert_loads *l = find_loads(j, i);
        if (!l)
            return -1;
        was[u.layer] =
            pp_expert_loads_skew(l, p->expert_ranks, p->expert_group);
        is[u.layer] = j->p.mesh.expert_imbalance > 0
                          ? j->p.mesh.expert_imbalance
                          : pp_expert_loads_skew(l, (size_t)j->p.mesh.ep,
                                                 pp_expert_group(&j->p.mesh));
    }
    j->p.request.shard.skew = is;
    for (size_t i = 0; i < j->n_units; i++) {
        struct pp_unit_id u = pp_model_unit(&j->p.model, i);
        if (pp_unit_is_decoder(u) && u.layer < j->p.model.n_layers)
            scale_unit(&j->p.request.shard, &run, u, &j->profile.units[i]);
    }
    return 0;
}
