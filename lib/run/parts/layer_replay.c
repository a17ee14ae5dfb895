/* SPDX-License-Identifier: MIT */
/* layer_replay - the experts that the router of a layer is given, and those
 * that are recorded. They are in host memory, the routing may be on a GPU. */
#include "run/parts/layer_impl.h"

/* A layer for multi-token prediction runs in training alone, so that its router
 * always chooses. */
static bool in_trunk(const struct pp_layer *l)
{
    return l->unit.layer < l->env->model->n_layers;
}

/* Returns the number of the layer among those with experts. */
static size_t number_of(const struct pp_layer *l)
{
    return pp_layer_set_before(&l->env->model->moe.layers, l->unit.layer);
}

/* Returns the choices of the rows that the router sees, with padding. */
static size_t n_choices(const struct pp_layer *l,
                        const struct pp_microbatch *mb)
{
    const struct pp_token_range seen = pp_layer_routed(l, mb);
    return (seen.end - seen.begin) * l->env->model->moe.top_k;
}

bool pp_layer_replays(const struct pp_layer *l, const struct pp_microbatch *mb)
{
    return mb->given && in_trunk(l);
}

int pp_layer_replay(const struct pp_layer *l, const struct pp_microbatch *mb,
                    int32_t *row, struct pp_err *err)
{
    struct pp_device *d = l->env->device;
    bool is_host = pp_env_is_host(l->env);
    int32_t *to = is_host ? row : l->env->expert_routes;
    if (mb->given(mb->replay_ctx, number_of(l), to, err))
        return -1;
    return is_host ? 0
                   : pp_device_ops(d)->put(d, row, to,
                                           n_choices(l, mb) * sizeof *row, err);
}

int pp_layer_record(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_routing *r, struct pp_err *err)
{
    struct pp_device *d = l->env->device;
    size_t n = n_choices(l, mb),
           rows = pp_layer_routed_tokens(l, mb) * l->env->model->moe.top_k;
    struct pp_routing read = *r;
    if (!mb->chosen || !in_trunk(l))
        return 0;
    if (!pp_env_is_host(l->env)) {
        read.row = l->env->expert_routes;
        read.expert = read.row + n;
        const struct pp_device_ops *ops = pp_device_ops(d);
        if (ops->get(d, read.row, r->row, n * sizeof *r->row, err) ||
            ops->get(d, read.expert, r->expert, rows * sizeof *r->expert, err))
            return -1;
    }
    return mb->chosen(mb->replay_ctx, number_of(l), &read, err);
}
