/* SPDX-License-Identifier: MIT */
/* capacity - the tokens that each expert keeps if it has a capacity
 * (Lepikhin et al., "GShard", ICLR 2021). The others do not reach the expert.
 *
 * Of a microbatch of T tokens that choose K experts each, one of E experts
 * keeps ceil(T K / E F): the first ones by document, then by position, or
 * choices with the largest weights, the first ones among equals. These are the
 * drop policies "position" and "probs" of Megatron-LM. Padding does not count.
 *
 * A rank fills a table of all choices with its own, to which the other ranks
 * that divide the tokens add theirs. So each decides alike, wherever its tokens
 * are.
 *
 * A slice has the places that the earlier slices of its microbatch left, which
 * their saved routing tells. It cannot know the weights of later slices. */
#include "run/parts/experts/layer_experts.h"

#include <math.h>

#include "comm/collective.h"

size_t pp_routing_kept(const struct pp_routing *r, size_t R)
{
    size_t low = 0;
    while (low < R) {
        size_t middle = low + (R - low) / 2;
        if (r->token[middle] < 0)
            R = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The choices of all ranks. */
struct choices {
    size_t n;
    void *chosen, *table;  /* as tell_choices fills them; table may be NULL */
    int32_t *kept, *order; /* room, unless the others are added up */
};

static struct choices choices_of(const struct pp_call *c, size_t n, void *room)
{
    bool largest = c->env->shard.mesh.expert_drop == PP_DROP_PROBS;
    struct choices of = {.n = n, .chosen = room};
    if (largest)
        of.table = pp_statistic_at(c, room, n);
    of.kept = pp_statistic_at(c, room, largest ? 2 * n : n);
    of.order = of.kept + n;
    return of;
}

static struct pp_token_numbers numbers_of(const struct pp_call *c)
{
    const struct pp_microbatch *mb = c->mb;
    return (struct pp_token_numbers){
        .tokens = {mb->n_sequences, mb->cu_seqlens, mb->cu_seqlens_padded,
                   pp_layer_routed(c).begin},
        .of = mb->keys.n_whole ? mb->sequence : NULL,
        .whole_cu = mb->keys.whole_cu,
        .position = mb->positions};
}

/* Collective. Fills the table. */
static void tell_choices(const struct pp_call *c, const struct pp_routing *r,
                         const void *weight, const struct choices *of)
{
    const struct pp_token_range seen = pp_layer_routed(c);
    const struct pp_token_numbers numbers = numbers_of(c);
    size_t total = of->table ? 2 * of->n : of->n;
    struct pp_collective sum = c->env->routers;
    pp_call_erase(c, of->chosen, total * c->k->accumulator_bytes);
    PP_RUN(c, experts->tell_choices, of->chosen, of->table, r, weight, &numbers,
           seen.end - seen.begin, c->m->moe.top_k);
    if (pp_env_routers(c->env) == 1)
        return;
    sum.value_bytes = c->k->accumulator_bytes;
    sum.sum = c->k->add_gradient;
    sum.room = of->kept;
    /* At least one for each rank: a microbatch may have fewer choices. There is
     * room for the values of as many rows as these ranks have at most. */
    sum.room_values = pp_most(total, (size_t)sum.group.n);
    PP_TRY(c, pp_all_reduce(&sum, of->chosen, total, c->err));
}

/* Writes to kept (E) what each expert kept of earlier slices. */
static void count_kept(const struct pp_call *c, int32_t *kept)
{
    size_t E = c->m->moe.n_experts;
    pp_call_erase(c, kept, E * sizeof *kept);
    for (size_t q = 0; q < c->mb->slice.n_before; q++) {
        const struct pp_slice_blocks *slice = &c->mb->slice.before[q];
        void *saved[PP_MAX_SAVED];
        pp_layer_saved_before(c, slice, saved);
        const struct pp_routing r =
            pp_routing_at(c, slice->tokens, slice->room, saved[PP_S_ROUTING]);
        PP_RUN(c, experts->add_kept, kept, &r, slice->tokens, E,
               c->m->moe.top_k);
    }
}

/* Returns the choices that an expert keeps of T tokens of this slice. */
static size_t capacity_of(const struct pp_call *c, size_t T)
{
    const struct pp_moe *m = &c->m->moe;
    size_t real = c->mb->slice.real ? c->mb->slice.real : T; /* in all slices */
    double share = (double)(real * m->top_k) / (double)m->n_experts;
    double kept = ceil(share * c->env->shard.mesh.expert_capacity);
    return kept < (double)real ? (size_t)kept : real;
}

void pp_layer_capacity(const struct pp_call *c, struct pp_routing *r,
                       const void *weight, int32_t *counts, void *room)
{
    const struct pp_moe *m = &c->m->moe;
    const struct pp_token_range seen = pp_layer_routed(c);
    const struct pp_token_numbers numbers = numbers_of(c);
    const struct pp_microbatch *host = &c->mb->host->of;
    size_t T =
        (size_t)(host->keys.n_whole ? host->keys.whole_cu[host->keys.n_whole]
                                    : host->cu_seqlens[host->n_sequences]);
    const struct choices of = choices_of(c, T * m->top_k, room);
    if (T == 0)
        return;
    tell_choices(c, r, weight, &of);
    count_kept(c, counts);
    PP_RUN(c, experts->keep, of.kept, counts, of.order, of.chosen, of.table,
           of.n, m->n_experts, capacity_of(c, T));
    PP_RUN(c, experts->mark_kept, r->row, of.kept, &numbers,
           seen.end - seen.begin, m->top_k);
}
