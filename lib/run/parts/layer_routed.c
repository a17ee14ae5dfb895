/* SPDX-License-Identifier: MIT */
/* layer_routed - the tokens that the router of a rank sees: all rows of a
 * microbatch, or with whole experts those that tensor-parallel ranks divide
 * between products. */
#include "run/parts/layer_impl.h"

struct pp_token_range pp_layer_routed(const struct pp_layer *l,
                                      const struct pp_microbatch *mb)
{
    return pp_env_routed(l->env, mb->tokens);
}

struct pp_token_range pp_layer_routed_of(const struct pp_layer *l,
                                         const struct pp_microbatch *mb,
                                         size_t i)
{
    const struct pp_token_range seen = pp_layer_routed(l, mb);
    const struct pp_real_tokens real = {mb->n_sequences, mb->host_cu,
                                        mb->host_cu_padded, seen.begin};
    return pp_real_range(&real, i, seen.end - seen.begin);
}

size_t pp_layer_routed_tokens(const struct pp_layer *l,
                              const struct pp_microbatch *mb)
{
    size_t n = 0;
    if (!pp_layer_is_whole(l))
        return (size_t)mb->host_cu[mb->n_sequences];
    for (size_t i = 0; i < mb->n_sequences; i++) {
        const struct pp_token_range at = pp_layer_routed_of(l, mb, i);
        n += at.end - at.begin;
    }
    return n;
}

size_t pp_layer_routed_room(const struct pp_layer *l, size_t tokens,
                            size_t room)
{
    size_t ranks = pp_layer_is_whole(l) ? pp_env_tp(l->env) : 1;
    return pp_saved_rows(pp_env_is_host(l->env),
                         pp_layer_room(tokens, room) / ranks);
}

struct pp_routing pp_routing_at(const struct pp_layer *l, size_t tokens,
                                size_t room, void *at)
{
    size_t n = pp_layer_routed_room(l, tokens, room) * l->env->model->moe.top_k;
    int32_t *row = at;
    return (struct pp_routing){row, row + n, row + 2 * n};
}
