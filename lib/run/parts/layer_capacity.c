/* SPDX-License-Identifier: MIT */
/* layer_capacity - the tokens that each expert keeps if it has a capacity
 * (Lepikhin et al., "GShard", ICLR 2021). The others do not reach the expert.
 *
 * Of a microbatch of T tokens that choose K experts each, one of E experts
 * keeps ceil(T K / E F): the first ones by document, then by position, or those
 * with the largest weights, the first ones among equals. These are the drop
 * policies "position" and "probs" of Megatron-LM. Padding does not count.
 *
 * A rank fills a table of all choices with its own, to which the other ranks
 * that divide the tokens add theirs. So each decides alike, wherever its tokens
 * are.
 *
 * A slice has the places that the earlier slices of its microbatch left, which
 * their saved routing tells. It cannot know the weights of later slices. */
#include "run/parts/layer_impl.h"

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

static struct choices choices_of(const struct pp_layer *l, size_t n, void *room)
{
    bool largest = l->env->model->moe.keeps_largest;
    struct choices c = {.n = n, .chosen = room};
    if (largest)
        c.table = pp_layer_statistic_at(l, room, n);
    c.kept = pp_layer_statistic_at(l, room, largest ? 2 * n : n);
    c.order = c.kept + n;
    return c;
}

static struct pp_token_numbers numbers_of(const struct pp_layer *l,
                                          const struct pp_microbatch *mb)
{
    return (struct pp_token_numbers){.tokens = {mb->n_sequences, mb->cu_seqlens,
                                                mb->cu_seqlens_padded,
                                                pp_layer_routed(l, mb).begin},
                                     .of = mb->n_whole ? mb->of_whole : NULL,
                                     .whole_cu = mb->whole_cu,
                                     .position = mb->positions};
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Collective. Fills the table. */
static int tell_choices(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_routing *r, const void *weight,
                        const struct choices *c, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    const struct pp_token_range seen = pp_layer_routed(l, mb);
    const struct pp_token_numbers numbers = numbers_of(l, mb);
    size_t total = c->table ? 2 * c->n : c->n;
    struct pp_collective sum = l->env->routers;
    if (pp_device_ops(l->env->device)
            ->zero(l->env->device, c->chosen, total * k->accumulator_bytes,
                   err))
        return -1;
    PP_LAYER_RUN(k->experts->tell_choices(
        c->chosen, c->table, r, weight, &numbers, seen.end - seen.begin,
        l->env->model->moe.top_k, l->env->stream));
    if (pp_env_routers(l->env) == 1)
        return 0;
    sum.value_bytes = k->accumulator_bytes;
    sum.sum = k->add_gradient;
    sum.room = c->kept;
    /* At least one for each rank: a microbatch may have fewer choices. There is
     * room for those of as many rows as these ranks have at most. */
    sum.room_values = most(total, (size_t)sum.group.n);
    return pp_all_reduce(&sum, c->chosen, total, err);
}

/* Writes to kept (E) what each expert kept of earlier slices. */
static int count_kept(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b, int32_t *kept,
                      struct pp_err *err)
{
    size_t E = l->env->model->moe.n_experts;
    if (pp_device_ops(l->env->device)
            ->zero(l->env->device, kept, E * sizeof *kept, err))
        return -1;
    for (size_t q = 0; q < mb->n_before; q++) {
        const struct pp_slice_blocks *slice = &mb->before[q];
        void *saved[PP_MAX_SAVED];
        pp_layer_saved_before(l, slice, b, saved);
        const struct pp_routing r =
            pp_routing_at(l, slice->tokens, slice->room, saved[PP_S_ROUTING]);
        PP_LAYER_RUN(l->env->kernels->experts->add_kept(
            kept, &r, slice->tokens, E, l->env->model->moe.top_k,
            l->env->stream));
    }
    return 0;
}

/* Returns the choices that an expert keeps of T tokens of this slice. */
static size_t capacity_of(const struct pp_layer *l,
                          const struct pp_microbatch *mb, size_t T)
{
    const struct pp_moe *m = &l->env->model->moe;
    size_t real = mb->real ? mb->real : T; /* in all slices */
    double share = (double)(real * m->top_k) / (double)m->n_experts;
    double kept = ceil(share * m->capacity);
    return kept < (double)real ? (size_t)kept : real;
}

int pp_layer_capacity(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b, struct pp_routing *r,
                      const void *weight, int32_t *counts, void *room,
                      struct pp_err *err)
{
    const struct pp_moe *m = &l->env->model->moe;
    const struct pp_expert_kernels *k = l->env->kernels->experts;
    const struct pp_token_range seen = pp_layer_routed(l, mb);
    const struct pp_token_numbers numbers = numbers_of(l, mb);
    size_t T = (size_t)(mb->n_whole ? mb->host_whole_cu[mb->n_whole]
                                    : mb->host_cu[mb->n_sequences]);
    const struct choices c = choices_of(l, T * m->top_k, room);
    if (T == 0)
        return 0;
    if (tell_choices(l, mb, r, weight, &c, err) ||
        count_kept(l, mb, b, counts, err))
        return -1;
    PP_LAYER_RUN(k->keep(c.kept, counts, c.order, c.chosen, c.table, c.n,
                         m->n_experts, capacity_of(l, mb, T), l->env->stream));
    PP_LAYER_RUN(k->mark_kept(r->row, c.kept, &numbers, seen.end - seen.begin,
                              m->top_k, l->env->stream));
    return 0;
}
