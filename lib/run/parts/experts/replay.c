/* SPDX-License-Identifier: MIT */
/* replay - the experts that the router of a layer is given, and experts that
 * are recorded. They are in host memory, the routing may be on a GPU. */
#include "run/parts/experts/layer_experts.h"

/* A layer for multi-token prediction runs in training alone, so that its router
 * always chooses. */
static bool in_trunk(const struct pp_call *c)
{
    return c->l->unit.layer < c->m->n_layers;
}

/* Returns the number of the layer among layers with experts. */
static size_t number_of(const struct pp_call *c)
{
    return pp_layer_set_before(&c->m->moe.layers, c->l->unit.layer);
}

/* Returns the choices of the rows that the router sees, with padding. */
static size_t n_choices(const struct pp_call *c)
{
    const struct pp_token_range seen = pp_layer_routed(c);
    return (seen.end - seen.begin) * c->m->moe.top_k;
}

bool pp_layer_replays(const struct pp_call *c)
{
    return c->mb->experts.given && in_trunk(c);
}

void pp_layer_replay(const struct pp_call *c, int32_t *row)
{
    bool is_host = pp_env_is_host(c->env);
    int32_t *to = is_host ? row : c->env->expert_routes;
    PP_TRY(c,
           c->mb->experts.given(c->mb->experts.ctx, number_of(c), to, c->err));
    if (!is_host)
        pp_call_put(c, row, to, n_choices(c) * sizeof *row);
}

void pp_layer_record(const struct pp_call *c, const struct pp_routing *r)
{
    struct pp_device *d = c->env->device;
    size_t n = n_choices(c);
    size_t rows = pp_layer_routed_tokens(c) * c->m->moe.top_k;
    struct pp_routing read = *r;
    if (!c->mb->experts.chosen || !in_trunk(c))
        return;
    if (!pp_env_is_host(c->env)) {
        read.row = c->env->expert_routes;
        read.expert = read.row + n;
        const struct pp_device_ops *ops = pp_device_ops(d);
        PP_TRY(c, ops->get(d, read.row, r->row, n * sizeof *r->row, c->err));
        PP_TRY(c, ops->get(d, read.expert, r->expert, rows * sizeof *r->expert,
                           c->err));
    }
    PP_TRY(c, c->mb->experts.chosen(c->mb->experts.ctx, number_of(c), &read,
                                    c->err));
}
