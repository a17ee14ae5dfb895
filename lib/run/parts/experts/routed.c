/* SPDX-License-Identifier: MIT */
/* routed - the tokens that the router of a rank sees: all rows of a
 * microbatch, or with whole experts the rows that tensor-parallel ranks divide
 * between products. */
#include "run/parts/experts/layer_experts.h"

struct pp_token_range pp_layer_routed(const struct pp_call *c)
{
    return pp_env_routed(c->env, c->T);
}

struct pp_token_range pp_layer_routed_of(const struct pp_call *c, size_t i)
{
    const struct pp_token_range seen = pp_layer_routed(c);
    const struct pp_microbatch *mb = &c->mb->host->of;
    const struct pp_real_tokens real = {mb->n_sequences, mb->cu_seqlens,
                                        mb->cu_seqlens_padded, seen.begin};
    return pp_real_range(&real, i, seen.end - seen.begin);
}

size_t pp_layer_routed_tokens(const struct pp_call *c)
{
    size_t n = 0;
    if (!pp_layer_is_whole(c))
        return (size_t)c->mb->host->of.cu_seqlens[c->mb->n_sequences];
    for (size_t i = 0; i < c->mb->n_sequences; i++) {
        const struct pp_token_range at = pp_layer_routed_of(c, i);
        n += at.end - at.begin;
    }
    return n;
}

size_t pp_layer_routed_room(const struct pp_call *c, size_t tokens, size_t room)
{
    size_t ranks = pp_layer_is_whole(c) ? pp_env_tp(c->env) : 1;
    return pp_saved_rows(pp_env_is_host(c->env),
                         pp_layer_room(tokens, room) / ranks);
}

struct pp_routing pp_routing_at(const struct pp_call *c, size_t tokens,
                                size_t room, void *at)
{
    size_t n = pp_layer_routed_room(c, tokens, room) * c->m->moe.top_k;
    int32_t *row = at;
    return (struct pp_routing){row, row + n, row + 2 * n};
}
