/* SPDX-License-Identifier: MIT */
/* layer_experts - y = mid + the weighted sum of the experts of each token, and
 * of a shared expert if there is one, of the normed mid. An expert is a gated
 * MLP.
 *
 * Experts see rows: a token has one at each of its experts (experts.h). F alone
 * decides where a token goes, and keeps it. A GPU's host must know how many
 * rows each expert has: F tells it once, while the GPU begins with the shared
 * expert, and it keeps the numbers for I and W. The gradient of a weight is the
 * product of activations and their gradients, so that nobody keeps the outputs
 * of experts. Expert-parallel ranks send each other the rows of a product, and
 * its outputs back, so that a token's experts are added on its rank, in the
 * order of its choice. W sends inputs again instead of keeping them. What does
 * not depend on rows that travel is computed meanwhile: the shared expert, and
 * gradients of it and of the router.
 *
 * Rows beyond the room of a rank go in further rounds (dispatch.c). A
 * token's outputs wait on its rank until all have come back. Nothing is kept of
 * the experts in a further round: I and W send the inputs once more, and
 * compute the activations again, in room of their own.
 *
 * Tensor-parallel ranks route all tokens alike and divide the width
 * of every expert. What they compute is linear in that, so the sums over them
 * are right for the router too. Or they hold whole experts: then each routes
 * its own rows, as context-parallel ranks do, and a shared expert alone is
 * divided (Liu et al., "MoE Parallel Folding", 2025). */
#include "run/parts/experts/layer_experts.h"

#include <math.h>

/* The sizes of a microbatch, and the scratch. */
struct experts {
    size_t T, R, C, I, E, K;    /* tokens that the router sees, rows of the real
                                   ones, hidden, width of an expert, experts,
                                   experts of a token */
    size_t kept;                /* of R; experts drop the others */
    bool writes;                /* W writes the gradients of experts */
    bool early;                 /* the shared expert has begun (tell) */
    struct pp_told told, here;  /* of a GPU, there and in host memory */
    struct pp_expert_rows rows; /* H rows at the experts of this rank */
    size_t stride;              /* elements from one expert to the next */
    void *gate_up, *acts, *dgate_up; /* (H, 2I), (H, I), (H, 2I): the saved
                                        ones; in further rounds scratch, where
                                        dgate_up overwrites acts */
    void *again;                     /* this scratch */
    struct pp_routing routing;
    struct pp_dispatch dispatch;
    struct pp_shared_expert shared; /* has room in weights and act */
    void *weights; /* (H), or the weights of all tokens for the shared expert;
                      accumulated type */
    void *own_weights; /* (R) */
    void *product;     /* (H, C), or room for more tokens than R */
    void *act;         /* (H, I) or that of the shared expert */
    void *logits;      /* (T, E), accumulated type */
    int32_t *kept_of;  /* (E) and these for pp_layer_capacity */
    void *choices;
    void *other_weights;   /* as weights, for what is sent */
    struct pp_moved moved; /* product, with the rows (R, C) of this rank */
};

static bool holds_all(const struct pp_call *c)
{
    return pp_env_ep(c->env) == 1;
}

static struct experts experts_of(const struct pp_call *c)
{
    const struct pp_moe *m = &c->m->moe;
    const struct pp_shard *s = &c->env->shard;
    struct pp_experts_room room = pp_experts_room(s);
    const struct pp_token_range seen = pp_layer_routed(c);
    struct experts e = {.T = seen.end - seen.begin,
                        .R = pp_layer_routed_tokens(c) * m->top_k,
                        .C = c->C,
                        .I = pp_shard_expert_columns(s),
                        .E = m->n_experts,
                        .K = m->top_k};
    size_t N = pp_layer_routed_room(c, c->T, c->mb->room);
    bool apart = pp_shard_keeps_own_rows(s);
    e.stride = 3 * e.C * e.I + (m->biases ? 2 * e.I + e.C : 0);
    e.gate_up = c->s[PP_S_EXPERT_GATE_UP];
    e.acts = c->s[PP_S_EXPERT_ACT];
    e.dgate_up = c->s[PP_S_DEXPERT_GATE_UP];
    e.routing = pp_routing_at(c, c->T, c->mb->room, c->s[PP_S_ROUTING]);
    e.dispatch.counts = c->scratch;
    if (!pp_env_is_host(c->env)) {
        size_t n = pp_experts_told(s);
        e.told = pp_told_at(c, c->scratch);
        e.here = pp_told_at(c, c->mb->experts.told + c->l->told);
        e.dispatch.counts = e.told.counts;
        e.dispatch.all = e.here.counts;
        room.counts += n;
    }
    if (s->mesh.expert_capacity > 0)
        e.kept_of = (int32_t *)c->scratch + room.counts - e.E;
    e.weights =
        (char *)c->scratch +
        pp_round_up(room.counts * sizeof *e.dispatch.counts, PP_LINE_BYTES);
    e.other_weights = pp_statistic_at(c, e.weights, N * room.weights);
    e.dispatch.arrival =
        pp_statistic_at(c, e.other_weights, N * room.other_weights);
    e.dispatch.expert = e.dispatch.arrival + N * room.rows;
    e.dispatch.tokens = N;
    e.dispatch.room = pp_shard_expert_room(s, N);
    e.product = pp_statistic_at(c, e.dispatch.arrival, N * room.arrivals);
    e.own_weights =
        apart ? pp_statistic_at(c, e.other_weights, N * room.rows) : e.weights;
    e.moved = (struct pp_moved){e.product, e.product,
                                pp_at(c, e.product, N * room.values), e.C,
                                c->k->element_bytes};
    if (apart)
        e.moved.own = pp_at(c, e.product, 2 * N * room.values);
    e.dispatch.routing = e.routing;
    e.dispatch.rows = e.R;
    e.act = pp_at(c, e.product, N * room.product);
    e.again = pp_at(c, e.act, N * room.act);
    e.choices = pp_at(c, e.again, N * room.again);
    e.logits = pp_statistic_at(c, e.choices, N * room.choices);
    e.shared =
        (struct pp_shared_expert){pp_shard_shared_columns(s), e.act, e.weights};
    return e;
}

/* Returns the rows that experts keep of this rank. */
static size_t count_kept(const struct pp_call *c, const struct experts *e)
{
    size_t at = (size_t)c->env->experts.group.index * e->E, kept = 0;
    if (pp_env_is_host(c->env))
        return pp_routing_kept(&e->routing, e->R);
    for (size_t i = 0; !pp_call_failed(c) && i < e->E; i++)
        kept += (size_t)e->here.counts[at + i];
    return kept;
}

/* Finds the rows at the experts of this rank in the first round, from what F
 * has told. */
static void find_told_rows(const struct pp_call *c, struct experts *e)
{
    e->kept = 0;
    if (holds_all(c)) {
        e->kept = count_kept(c, e);
        e->rows = (struct pp_expert_rows){e->kept, e->routing.expert,
                                          e->here.counts, e->E};
        return;
    }
    pp_dispatch_open(c, &e->dispatch);
    if (pp_call_failed(c))
        return;
    if (c->mb->experts.rounds)
        *c->mb->experts.rounds =
            fmax(*c->mb->experts.rounds, (double)e->dispatch.n_rounds);
    e->kept = e->dispatch.sent;
    pp_dispatch_rows(c, &e->dispatch, &e->rows);
}

/* The same in I and W. */
static void find_rows(const struct pp_call *c, struct experts *e)
{
    if (!holds_all(c) && !pp_env_is_host(c->env))
        pp_call_put(c, e->dispatch.counts, e->here.counts,
                    pp_env_ep(c->env) * e->E * sizeof *e->here.counts);
    find_told_rows(c, e);
}

/* Goes on to the next round, which the shared expert is not in, or returns
 * false. */
static bool next_round(const struct pp_call *c, struct experts *e)
{
    if (holds_all(c) || !pp_dispatch_next(c, &e->dispatch))
        return false;
    pp_dispatch_rows(c, &e->dispatch, &e->rows);
    e->shared.S = 0;
    e->early = false;
    e->writes = false;
    e->gate_up = e->again;
    e->acts = e->dgate_up = pp_at(c, e->again, 2 * e->dispatch.room * e->I);
    return true;
}

/* Counts the choices that experts dropped. */
static void note_dropped(const struct pp_call *c, const struct experts *e)
{
    if (c->env->shard.mesh.expert_capacity > 0 && c->mb->experts.router &&
        (pp_layer_is_whole(c) || c->env->tensor.group.index == 0))
        c->mb->experts.router->dropped += (double)(e->R - count_kept(c, e));
}

/* Returns the weights by which rows go to their experts, or those of what comes
 * back: NULL for the other ones. Weights of inputs are sigmoids (Llama 4). */
static const void *weights_of(const struct pp_call *c, bool inputs)
{
    return c->m->moe.router.weighs_input == inputs ? c->s[PP_S_WEIGHT] : NULL;
}

/* Gives n own rows, from `at` on, their token's x, times their weight if there
 * is one. */
static void spread(const struct pp_call *c, const struct experts *e,
                   const void *x, const void *weight, size_t at, size_t n)
{
    if (n)
        PP_RUN(c, experts->spread, pp_at(c, e->moved.own, at * e->C), x,
               weight ? pp_statistic_at(c, weight, at) : NULL,
               e->routing.token + at, n, e->C);
}

/* Does so for all rows of the round, and begins to take them to their experts.
 * Until they have come nothing else uses e->product. */
static void to_experts_begin(const struct pp_call *c, const struct experts *e,
                             const void *x, const void *weight)
{
    const struct pp_dispatch *d = &e->dispatch;
    if (d->n_rounds < 2)
        spread(c, e, x, weight, 0, e->kept);
    for (size_t i = 0; d->n_rounds > 1 && i < pp_env_ep(c->env); i++)
        spread(c, e, x, weight, d->out_begin[i],
               d->out_end[i] - d->out_begin[i]);
    pp_dispatch_send_begin(c, &e->dispatch, &e->moved, false);
}

static void to_experts_wait(const struct pp_call *c, const struct experts *e)
{
    pp_dispatch_send_wait(c, &e->dispatch, &e->moved);
}

static void from_experts_begin(const struct pp_call *c, const struct experts *e)
{
    pp_dispatch_return_begin(c, &e->dispatch, &e->moved);
}

/* Rows that were dropped come back as zeros. */
static void from_experts_wait(const struct pp_call *c, const struct experts *e)
{
    pp_dispatch_return_wait(c, &e->dispatch, &e->moved);
    pp_call_erase(c, pp_at(c, e->moved.own, e->kept * e->C),
                  (e->R - e->kept) * e->C * c->k->element_bytes);
}

static struct pp_router_rows router_rows(const struct pp_call *c,
                                         const struct experts *e)
{
    return (struct pp_router_rows){.probs = c->s[PP_S_PROBS],
                                   .routing = e->routing,
                                   .logits = e->logits,
                                   .told = e->told};
}

/* The rows of an input: the rows that the router sees, and the rows of all
 * tensor-parallel ranks for the shared expert. */
struct expert_input {
    const void *seen, *all;
};

/* Finds them, from the rows of this rank. It overwrites c->gathered. */
static struct expert_input gather_input(const struct pp_call *c,
                                        const struct experts *e, const void *x)
{
    bool whole = pp_layer_is_whole(c);
    const void *all = !whole || e->shared.S > 0 ? pp_layer_gather(c, x) : x;
    return (struct expert_input){whole ? x : all, all};
}

/* --- forward --- */

static void choose(const struct pp_call *c, struct experts *e, bool given)
{
    const struct pp_real_tokens real = {c->mb->n_sequences, c->mb->cu_seqlens,
                                        c->mb->cu_seqlens_padded,
                                        pp_layer_routed(c).begin};
    PP_RUN(c, experts->route_fwd, c->s[PP_S_PROBS], c->s[PP_S_WEIGHT],
           &e->routing, e->logits, c->w[PP_P_ROUTER_BIAS], &real, e->T, e->E,
           e->K, &c->m->moe.router, given);
}

/* With a capacity all choices must be known before it is known which ones
 * experts drop. */
static void route(const struct pp_call *c, struct experts *e, const void *x)
{
    const struct pp_router_rows rows = router_rows(c, e);
    bool given = pp_layer_replays(c);
    PP_RUN(c, experts->scores, e->logits, x, c->w[PP_P_ROUTER],
           c->w[PP_P_ROUTER_OFFSET], e->T, e->C, e->E);
    if (given)
        pp_layer_replay(c, e->routing.row);
    choose(c, e, given);
    if (c->env->shard.mesh.expert_capacity > 0) {
        pp_layer_capacity(c, &e->routing, c->s[PP_S_WEIGHT], e->kept_of,
                          e->choices);
        choose(c, e, true);
    }
    pp_layer_record(c, &e->routing);
    pp_layer_router_fwd(c, &rows);
}

/* Tells the host of a GPU, unless all is known by padding. What need not wait
 * for it is queued before: the inputs of the rows, and the shared expert. */
static void tell(const struct pp_call *c, struct experts *e,
                 const struct expert_input *x)
{
    bool asks = holds_all(c) || c->mb->experts.router ||
                !pp_dispatch_is_padded(c, &e->dispatch);
    spread(c, e, x->seen, weights_of(c, true), 0, e->R);
    if (asks) {
        pp_dispatch_count(c, &e->dispatch);
        pp_call_tell(c, e->here.sums, e->told.sums,
                     pp_experts_told(&c->env->shard) * sizeof *e->told.counts);
    }
    pp_shared_gate_fwd(c, &e->shared, x->all);
    pp_shared_up_fwd(c, &e->shared, x->all);
    if (asks)
        pp_call_told(c);
    pp_layer_router_told(c, &e->here);
    e->early = true;
}

/* Finds the rows of the first round after the router, and tells how many
 * experts dropped. */
static void find_first_rows(const struct pp_call *c, struct experts *e,
                            const struct expert_input *x)
{
    if (pp_env_is_host(c->env))
        pp_shared_gate_fwd(c, &e->shared, x->all);
    else
        tell(c, e, x);
    note_dropped(c, e);
    find_told_rows(c, e);
}

static void gate_and_up(const struct pp_call *c, const struct experts *e,
                        const struct expert_input *x)
{
    if (e->early) {
        pp_dispatch_send_begin(c, &e->dispatch, &e->moved, true);
    } else {
        to_experts_begin(c, e, x->seen, weights_of(c, true));
        pp_shared_up_fwd(c, &e->shared, x->all);
    }
    to_experts_wait(c, e);
    if (e->early)
        PP_TRY(c, pp_device_follow(c->env->device, c->env->reader.device,
                                   c->env->reader.event, c->err));
    PP_RUN(c, experts->grouped_fwd, e->gate_up, e->product,
           c->w[PP_P_EXPERT_GATE], c->w[PP_P_EXPERT_GATE_BIAS], &e->rows, e->C,
           2 * e->I, e->stride);
}

static struct pp_clamp clamp_of(const struct pp_call *c)
{
    return (struct pp_clamp){c->m->moe.limit, c->m->moe.gain};
}

static void activate(const struct pp_call *c, const struct experts *e)
{
    const struct pp_clamp by = clamp_of(c);
    if (by.limit > 0)
        PP_RUN(c, experts->clamped_swiglu_fwd, e->acts, e->gate_up, e->rows.n,
               e->I, &by);
    else
        PP_RUN(c, swiglu_fwd, e->acts, e->gate_up, e->rows.n, e->I);
}

/* Returns the bias of the last products, or NULL: one of the tensor-parallel
 * ranks that divide an expert has it, so that it is added once. */
static const void *down_bias(const struct pp_call *c)
{
    return pp_layer_is_whole(c) || c->env->tensor.group.index == 0
               ? c->w[PP_P_EXPERT_DOWN_BIAS]
               : NULL;
}

/* Takes the outputs of the round back to their tokens. The shared expert
 * writes to y. */
static void down(const struct pp_call *c, const struct experts *e, void *y)
{
    PP_RUN(c, experts->grouped_fwd, e->product, e->acts, c->w[PP_P_EXPERT_DOWN],
           down_bias(c), &e->rows, e->I, e->C, e->stride);
    from_experts_begin(c, e);
    pp_shared_down_fwd(c, &e->shared, y);
    from_experts_wait(c, e);
}

/* Writes the sum of the experts to y, rows of this rank. */
static void sum_experts(const struct pp_call *c, const struct experts *e,
                        bool shares, void *y)
{
    bool whole = pp_layer_is_whole(c);
    if (whole && shares)
        pp_layer_reduce(c, y);
    PP_RUN(c, experts->combine, whole ? y : pp_layer_part(c, y), e->moved.own,
           weights_of(c, false), e->routing.row, e->T, e->K, e->C, shares);
    if (!whole)
        pp_layer_reduce(c, y);
}

static void experts_fwd(const struct pp_call *c, void *y, const void *residual)
{
    struct experts e = experts_of(c);
    const struct expert_input x = gather_input(c, &e, c->s[PP_S_NORM2]);
    bool shares = e.shared.S > 0;
    route(c, &e, x.seen);
    find_first_rows(c, &e, &x);
    do {
        gate_and_up(c, &e, &x);
        activate(c, &e);
        down(c, &e, pp_layer_part(c, y));
    } while (next_round(c, &e));
    sum_experts(c, &e, shares, y);
    if (residual)
        PP_RUN(c, add, y, residual, y, c->R * e.C);
}

/* Nothing is kept of further rounds, and the router does not run again. */
static void experts_inner(const struct pp_call *c, enum pp_recompute parts)
{
    struct experts e = experts_of(c);
    size_t shared = e.shared.S;
    if (!(parts & PP_AGAIN_MLP))
        e.shared.S = 0;
    const struct expert_input x = parts & (PP_AGAIN_MLP | PP_AGAIN_EXPERTS)
                                      ? gather_input(c, &e, c->s[PP_S_NORM2])
                                      : (struct expert_input){NULL, NULL};
    if (parts & (PP_AGAIN_EXPERTS | PP_AGAIN_EXPERT_ACT))
        find_rows(c, &e);
    if (parts & PP_AGAIN_EXPERTS)
        gate_and_up(c, &e, &x);
    else if (parts & PP_AGAIN_MLP)
        pp_shared_up_fwd(c, &e.shared, x.all);
    if (parts & PP_AGAIN_EXPERT_ACT)
        activate(c, &e);
    e.shared.S = shared;
    if ((parts & PP_AGAIN_MLP_ACT) && !(parts & PP_AGAIN_MLP))
        pp_shared_activate(c, &e.shared);
}

/* --- input gradient --- */

/* Returns the weights of the rows at the experts of this rank. */
static const void *weights_here(const struct pp_call *c,
                                const struct experts *e)
{
    size_t bytes = c->k->accumulator_bytes;
    const struct pp_moved r = {c->s[PP_S_WEIGHT], e->other_weights, e->weights,
                               1, bytes};
    if (holds_all(c))
        return c->s[PP_S_WEIGHT];
    pp_dispatch_send_begin(c, &e->dispatch, &r, false);
    pp_dispatch_send_wait(c, &e->dispatch, &r);
    return r.at;
}

/* Takes the gradients of weights back to their tokens. Gradients of dropped
 * rows are 0. */
static void return_weights(const struct pp_call *c, const struct experts *e)
{
    size_t bytes = c->k->accumulator_bytes;
    const struct pp_moved r = {e->own_weights, e->weights, e->other_weights, 1,
                               bytes};
    pp_dispatch_return_begin(c, &e->dispatch, &r);
    pp_dispatch_return_wait(c, &e->dispatch, &r);
    pp_call_erase(c, pp_statistic_at(c, e->own_weights, e->kept),
                  (e->R - e->kept) * bytes);
}

/* Writes e->dgate_up from the gradient of the activation. Of inputs with
 * weights it becomes the gradient for inputs without, and what the logarithm of
 * a weight gets is the sum over gate and up of themselves and their gradients.
 */
static void activation_bwd(const struct pp_call *c, const struct experts *e,
                           const void *weights)
{
    const struct pp_clamp by = clamp_of(c);
    if (by.limit > 0)
        PP_RUN(c, experts->clamped_swiglu_bwd, e->dgate_up, e->act, e->gate_up,
               e->rows.n, e->I, &by);
    else
        PP_RUN(c, swiglu_bwd, e->dgate_up, e->act, e->gate_up, e->rows.n, e->I);
    if (weights_of(c, true))
        PP_RUN(c, experts->weigh_bwd, e->weights, e->dgate_up, e->gate_up,
               weights, e->rows.n, 2 * e->I);
}

/* Takes dy to the experts, to e->product. Computes the gradients of the
 * activation, e->act, and of the weights of outputs. Returns the weights. */
static const void *down_bwd(const struct pp_call *c, const struct experts *e,
                            const struct expert_input *dy)
{
    const void *weights = weights_here(c, e);
    to_experts_begin(c, e, dy->seen, NULL);
    pp_shared_down_bwd(c, &e->shared, dy->all);
    to_experts_wait(c, e);
    PP_RUN(c, experts->grouped_bwd_input, e->act, e->product,
           c->w[PP_P_EXPERT_DOWN], &e->rows, e->I, e->C, e->stride);
    if (weights_of(c, false))
        PP_RUN(c, experts->weigh_bwd, e->weights, e->act, e->acts, weights,
               e->rows.n, e->I);
    return weights;
}

/* The gradients of the inputs of a round, and of the weights of its rows, back
 * at their tokens. That of the shared expert goes to dx. */
static void round_bwd_input(const struct pp_call *c, const struct experts *e,
                            const struct expert_input *dy, void *dx)
{
    const void *weights = down_bwd(c, e, dy);
    if (down_bias(c))
        PP_RUN(c, experts->bias_dot, e->weights, e->product, down_bias(c),
               e->rows.expert, e->rows.n, e->C, e->stride);
    activation_bwd(c, e, weights);
    return_weights(c, e);
    PP_RUN(c, experts->grouped_bwd_input, e->product, e->dgate_up,
           c->w[PP_P_EXPERT_GATE], &e->rows, e->C, 2 * e->I, e->stride);
    from_experts_begin(c, e);
    pp_shared_up_bwd(c, &e->shared, dx);
    from_experts_wait(c, e);
}

/* Computes the activations of a further round again. It overwrites c->gathered.
 */
static void compute_again(const struct pp_call *c, const struct experts *e)
{
    const struct expert_input x = gather_input(c, e, c->s[PP_S_NORM2]);
    gate_and_up(c, e, &x);
    activate(c, e);
}

/* Adds to dx (N, C) the input gradient of a product of the layer. */
static void add_product(const struct pp_call *c, const struct experts *e,
                        const struct pp_product *p, size_t N, void *dx,
                        const void *dy)
{
    if (!c->w[p->weight])
        return;
    pp_product_bwd_input(c, p, N, e->product, dy);
    PP_RUN(c, add, dx, dx, e->product, N * e->C);
}

static struct pp_product router_of(const struct experts *e)
{
    return (struct pp_product){PP_P_ROUTER, PP_P_ROUTER_OFFSET, e->C, e->E};
}

/* Adds the gradients of all tensor-parallel ranks. With whole experts the
 * gradients in dx, of the routed ones, are of this rank alone, and the part of
 * the shared expert is. */
static void reduce_input(const struct pp_call *c, const struct experts *e,
                         bool shares, void *dx)
{
    if (!pp_layer_is_whole(c)) {
        pp_layer_reduce(c, dx);
    } else if (shares) {
        pp_layer_reduce(c, e->product);
        PP_RUN(c, add, dx, dx, e->product, e->T * e->C);
    }
}

static void experts_bwd_input(const struct pp_call *c, const void *dy)
{
    struct experts e = experts_of(c);
    const struct pp_product router = router_of(&e),
                            gate = {PP_P_SHARED_WEIGHT, PP_NO_SLOT, e.C, 1};
    bool shares = e.shared.S > 0, adds = shares && !pp_layer_is_whole(c);
    void *part = pp_layer_part(c, c->s[PP_S_DNORM2]);
    void *dx = pp_layer_is_whole(c) ? c->s[PP_S_DNORM2] : part;
    struct expert_input in = gather_input(c, &e, dy);
    find_rows(c, &e);
    round_bwd_input(c, &e, &in, part);
    while (next_round(c, &e)) {
        compute_again(c, &e);
        in = gather_input(c, &e, dy);
        round_bwd_input(c, &e, &in, part);
    }
    PP_RUN(c, experts->route_bwd, c->s[PP_S_DROUTER], e.own_weights,
           c->s[PP_S_PROBS], &e.routing, e.T, e.E, e.K, &c->m->moe.router);
    PP_RUN(c, experts->combine, dx, e.moved.own, NULL, e.routing.row, e.T, e.K,
           e.C, adds);
    const struct pp_router_rows rows = router_rows(c, &e);
    pp_layer_router_bwd(c, &rows, c->s[PP_S_DROUTER], c->s[PP_S_NORM2]);
    add_product(c, &e, &router, e.T, dx, c->s[PP_S_DROUTER]);
    add_product(c, &e, &gate, c->T, part, c->s[PP_S_DSHARED_WEIGHT]);
    reduce_input(c, &e, shares, c->s[PP_S_DNORM2]);
}

/* --- weight gradient --- */

/* Reports whether an expert of this rank has rows in the round. *at is a row of
 * it, or of a later one; experts ascend. */
static bool has_rows(const struct pp_call *c, const struct experts *e,
                     size_t expert, size_t *at)
{
    const struct pp_expert_rows *r = &e->rows;
    if (!pp_env_is_host(c->env))
        return r->counts[expert] > 0;
    while (*at < r->n && (size_t)r->expert[*at] < expert)
        ++*at;
    return *at < r->n && (size_t)r->expert[*at] == expert;
}

/* Prepares the gradients of experts. The first products of a step write them;
 * experts without rows have none, and biases are added to. */
static void begin_gradients(const struct pp_call *c, struct experts *e)
{
    size_t n = e->rows.n_experts, bytes = e->stride * c->k->accumulator_bytes;
    char *g = c->g[PP_P_EXPERT_GATE];
    e->writes = g && !pp_call_failed(c) &&
                pp_call_writes(c, PP_P_EXPERT_GATE, n * e->stride);
    bool erases = c->m->moe.biases;
    for (size_t i = 0, at = 0, first = 0; e->writes && i < n; i++) {
        bool empty = erases || !has_rows(c, e, i, &at);
        if (empty && i + 1 < n)
            continue;
        pp_call_erase(c, g + first * bytes, (i + empty - first) * bytes);
        first = i + 1;
    }
    e->writes = e->writes && !erases;
}

/* Add to the gradients of the last products, of e->product and the activations,
 * and of the first ones, whose inputs e->product has. */
static void add_down(const struct pp_call *c, const struct experts *e)
{
    if (c->g[PP_P_EXPERT_DOWN])
        PP_RUN(c, experts->grouped_bwd_weight, c->g[PP_P_EXPERT_DOWN],
               down_bias(c) ? c->g[PP_P_EXPERT_DOWN_BIAS] : NULL, e->product,
               e->acts, &e->rows, e->I, e->C, e->stride, e->writes);
}

static void add_gate_and_up(const struct pp_call *c, const struct experts *e)
{
    if (c->g[PP_P_EXPERT_GATE])
        PP_RUN(c, experts->grouped_bwd_weight, c->g[PP_P_EXPERT_GATE],
               c->g[PP_P_EXPERT_GATE_BIAS], e->dgate_up, e->product, &e->rows,
               e->C, 2 * e->I, e->stride, e->writes);
}

/* The gradients of the last products in the first round. */
static void down_bwd_weight(const struct pp_call *c, const struct experts *e,
                            const struct expert_input *dy)
{
    bool trains = c->g[PP_P_EXPERT_DOWN];
    if (trains)
        to_experts_begin(c, e, dy->seen, weights_of(c, false));
    pp_shared_down_bwd_weight(c, &e->shared, dy->all);
    if (trains)
        to_experts_wait(c, e);
    add_down(c, e);
}

/* Weight gradients of the first products, of inputs x. */
static void up_bwd_weight(const struct pp_call *c, const struct experts *e,
                          const struct expert_input *x)
{
    const struct pp_product router = router_of(e);
    bool trains = c->g[PP_P_EXPERT_GATE];
    if (trains)
        to_experts_begin(c, e, x->seen, NULL);
    pp_product_bwd_weight(c, &router, e->T, c->s[PP_S_DROUTER], x->seen);
    pp_shared_up_bwd_weight(c, &e->shared, x->all);
    if (trains)
        to_experts_wait(c, e);
    add_gate_and_up(c, e);
}

/* Weight gradients of a further round. What I computed of it is not kept. */
static void again_bwd_weight(const struct pp_call *c, const struct experts *e)
{
    compute_again(c, e);
    const struct expert_input dy = gather_input(c, e, c->s[PP_S_DOUT2]);
    const void *weights = down_bwd(c, e, &dy);
    if (weights_of(c, false))
        PP_RUN(c, experts->spread, e->product, e->product, weights, NULL,
               e->rows.n, e->C);
    add_down(c, e);
    activation_bwd(c, e, weights);
    const struct expert_input x = gather_input(c, e, c->s[PP_S_NORM2]);
    to_experts_begin(c, e, x.seen, NULL);
    to_experts_wait(c, e);
    add_gate_and_up(c, e);
}

/* Beside adapters all is frozen, and W has nothing of it. */
static void experts_bwd_weight(const struct pp_call *c)
{
    struct experts e = experts_of(c);
    if (c->l->n_adapters)
        return;
    const struct expert_input dy = gather_input(c, &e, c->s[PP_S_DOUT2]);
    find_rows(c, &e);
    begin_gradients(c, &e);
    down_bwd_weight(c, &e, &dy);
    const struct expert_input x = gather_input(c, &e, c->s[PP_S_NORM2]);
    up_bwd_weight(c, &e, &x);
    if (!c->g[PP_P_EXPERT_DOWN] && !c->g[PP_P_EXPERT_GATE])
        return;
    while (next_round(c, &e))
        again_bwd_weight(c, &e);
}

const struct pp_block_ops pp_part_experts = {
    .inner = experts_inner,
    .last = experts_fwd,
    .whole = true,
    .bwd_input = experts_bwd_input,
    .bwd_weight = experts_bwd_weight,
};
