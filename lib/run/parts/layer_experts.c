/* SPDX-License-Identifier: MIT */
/* layer_experts - y = mid + the weighted sum of the experts of each token, and
 * of a shared expert if there is one, of the normed mid. An expert is a gated
 * MLP.
 *
 * Experts see rows: a token has one at each of its experts (experts.h). F alone
 * decides where a token goes, and keeps it. The gradient of a weight is the
 * product of activations and their gradients, so that nobody keeps the outputs
 * of experts. Expert-parallel ranks send each other the rows of a product, and
 * its outputs back, so that a token's experts are added on its rank, in the
 * order of its choice. W sends inputs again instead of keeping them. What does
 * not depend on rows that travel is computed meanwhile: the shared expert, and
 * gradients of it and of the router.
 * Tensor-parallel ranks route all tokens alike and divide the width
 * of every expert. What they compute is linear in that, so the sums over them
 * are right for the router too. Or they hold whole experts: then each routes
 * its own rows, as context-parallel ranks do, and a shared expert alone is
 * divided (Liu et al., "MoE Parallel Folding", 2025). */
#include "run/parts/layer_impl.h"

/* The sizes of a microbatch, and the scratch. */
struct experts {
    const struct pp_expert_kernels *k;
    size_t T, R, C, I, E, K;    /* tokens that the router sees, rows of the real
                                   ones, hidden, width of an expert, experts,
                                   those of a token */
    size_t kept;                /* of R; experts drop the others */
    struct pp_expert_rows rows; /* H rows at the experts of this rank */
    size_t stride;              /* elements from one expert to the next */
    struct pp_routing routing;
    struct pp_dispatch dispatch;
    struct pp_shared_expert shared; /* has room in weights and act */
    void *weights;    /* (R), (H), or those of all tokens for the shared expert;
                         accumulated type */
    void *product;    /* (R, C) or (H, C) */
    void *act;        /* (H, I) or that of the shared expert */
    void *logits;     /* (T, E), accumulated type */
    int32_t *kept_of; /* (E) and these for pp_layer_capacity */
    void *choices;
    void *other_weights;   /* as much, for what is sent */
    struct pp_moved moved; /* product, and as much room */
};

static bool holds_all(const struct pp_layer *l)
{
    return pp_env_ep(l->env) == 1;
}

static struct experts experts_of(const struct pp_layer *l,
                                 const struct pp_microbatch *mb, void *const *s,
                                 void *scratch)
{
    const struct pp_moe *m = &l->env->model->moe;
    struct pp_experts_room room = pp_experts_room(l->env->model);
    const struct pp_token_range seen = pp_layer_routed(l, mb);
    struct experts e = {.k = l->env->kernels->experts,
                        .T = seen.end - seen.begin,
                        .R = pp_layer_routed_tokens(l, mb) * m->top_k,
                        .C = l->env->model->hidden,
                        .I = m->intermediate,
                        .E = m->n_experts,
                        .K = m->top_k};
    size_t N = pp_layer_routed_room(l, mb->tokens, mb->room),
           rows = pp_expert_rows(l->env->model);
    e.stride = 3 * e.C * e.I + (m->biases ? 2 * e.I + e.C : 0);
    e.routing = pp_routing_at(l, mb->tokens, mb->room, s[PP_S_ROUTING]);
    e.dispatch.counts = scratch;
    if (m->capacity > 0)
        e.kept_of = e.dispatch.counts + room.counts - e.E;
    e.weights =
        (char *)scratch +
        pp_round_up(room.counts * sizeof *e.dispatch.counts, PP_LINE_BYTES);
    e.other_weights =
        pp_layer_statistic_at(l, e.weights, N * (room.weights - rows));
    e.dispatch.arrival = pp_layer_statistic_at(l, e.weights, N * room.weights);
    e.dispatch.expert = e.dispatch.arrival + N * rows;
    e.dispatch.room = N * rows;
    e.product = pp_layer_statistic_at(l, e.dispatch.arrival, N * room.arrivals);
    e.moved =
        (struct pp_moved){e.product, pp_layer_at(l, e.product, N * rows * e.C),
                          e.C, l->env->kernels->element_bytes};
    e.act = pp_layer_at(l, e.product, N * room.product);
    e.choices = pp_layer_at(l, e.act, N * room.act);
    e.logits = pp_layer_statistic_at(l, e.choices, N * room.choices);
    e.shared =
        (struct pp_shared_expert){mb->tokens, e.C, m->shared, e.act, e.weights};
    return e;
}

/* Reads how many rows each expert keeps on a GPU, to room (E), and adds them
 * up. */
static int count_rows(const struct pp_layer *l, const struct experts *e,
                      int32_t *room, size_t *kept, struct pp_err *err)
{
    int32_t *counts = e->logits; /* nobody needs logits now */
    PP_LAYER_RUN(e->k->count(counts, &e->routing, e->R, e->E, l->env->stream));
    if (!pp_device_read(l->env->device, counts, e->E * sizeof *counts, room,
                        err))
        return -1;
    *kept = 0;
    for (size_t i = 0; i < e->E; i++)
        *kept += (size_t)room[i];
    return 0;
}

/* Finds the rows at the experts of this rank, after the router. */
static int find_rows(const struct pp_layer *l, struct experts *e,
                     struct pp_err *err)
{
    int32_t *counts = l->env->expert_counts;
    e->dispatch.routing = e->routing;
    e->dispatch.rows = e->R;
    e->kept = 0;
    if (holds_all(l)) {
        if (pp_env_is_host(l->env))
            e->kept = pp_routing_kept(&e->routing, e->R);
        else if (e->R && count_rows(l, e, counts, &e->kept, err))
            return -1;
        e->rows =
            (struct pp_expert_rows){e->kept, e->routing.expert, counts, e->E};
        return 0;
    }
    if (pp_dispatch_open(l, &e->dispatch, err))
        return -1;
    e->kept = e->dispatch.sent;
    pp_dispatch_rows(l, &e->dispatch, &e->rows);
    return 0;
}

/* Counts the choices that experts dropped. With padding a GPU has not told. */
static int note_dropped(const struct pp_layer *l,
                        const struct pp_microbatch *mb, const struct experts *e,
                        struct pp_err *err)
{
    const struct pp_moe *m = &l->env->model->moe;
    size_t kept = e->kept, used = (pp_env_ep(l->env) + 1) * e->E;
    if (m->capacity <= 0 || !mb->router ||
        (!pp_layer_is_whole(l) && l->env->tensor.group.index != 0))
        return 0;
    if (m->pads && !holds_all(l) && !pp_env_is_host(l->env) && e->R &&
        count_rows(l, e, l->env->expert_counts + used, &kept, err))
        return -1;
    mb->router->dropped += (double)(e->R - kept);
    return 0;
}

/* Gives every row its token's x, times its weight if there is one, and begins
 * to take the rows to their experts. Until pp_dispatch_send_wait nothing else
 * uses e->product. */
static int to_experts_begin(const struct pp_layer *l, const struct experts *e,
                            const void *x, const void *weight,
                            struct pp_err *err)
{
    PP_LAYER_RUN(e->k->spread(e->product, x, weight, e->routing.token, e->kept,
                              e->C, l->env->stream));
    return pp_dispatch_send_begin(l, &e->dispatch, &e->moved, err);
}

static int erase(const struct pp_layer *l, void *at, size_t bytes,
                 struct pp_err *err)
{
    struct pp_device *d = l->env->device;
    return bytes ? pp_device_ops(d)->zero(d, at, bytes, err) : 0;
}

/* Waits for the rows that pp_dispatch_return_begin takes back. Those that were
 * dropped come back as zeros. */
static int from_experts_wait(const struct pp_layer *l, const struct experts *e,
                             struct pp_err *err)
{
    if (pp_dispatch_return_wait(l, &e->dispatch, &e->moved, err))
        return -1;
    size_t bytes = (e->R - e->kept) * e->C * l->env->kernels->element_bytes;
    return erase(l, pp_layer_at(l, e->product, e->kept * e->C), bytes, err);
}

static struct pp_router_rows router_rows(const struct experts *e,
                                         void *const *s)
{
    return (struct pp_router_rows){.probs = s[PP_S_PROBS],
                                   .routing = e->routing,
                                   .logits = e->logits,
                                   .sums = e->product};
}

/* The rows of an input: those that the router sees, and those of all
 * tensor-parallel ranks for the shared expert. */
struct expert_input {
    const void *seen, *all;
};

/* Finds them, from the rows of this rank. It overwrites b->gathered. */
static int gather_input(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_layer_blocks *b,
                        const struct experts *e, const void *x,
                        struct expert_input *in, struct pp_err *err)
{
    bool needs_all = !pp_layer_is_whole(l) || e->shared.S > 0;
    in->all = needs_all ? pp_layer_gather(l, mb, b, x, err) : x;
    in->seen = pp_layer_is_whole(l) ? x : in->all;
    return in->all ? 0 : -1;
}

/* --- forward --- */

static int choose(const struct pp_layer *l, const struct pp_microbatch *mb,
                  struct experts *e, void *const *s, bool given,
                  struct pp_err *err)
{
    const struct pp_real_tokens real = {mb->n_sequences, mb->cu_seqlens,
                                        mb->cu_seqlens_padded,
                                        pp_layer_routed(l, mb).begin};
    PP_LAYER_RUN(e->k->route_fwd(s[PP_S_PROBS], s[PP_S_WEIGHT], &e->routing,
                                 e->logits, l->w[PP_P_ROUTER_BIAS], &real, e->T,
                                 e->E, e->K, &l->env->model->moe.router, given,
                                 l->env->stream));
    return 0;
}

/* All choices must be known before it is known which ones experts drop. */
static int choose_kept(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct pp_layer_blocks *b, struct experts *e,
                       void *const *s, bool given, struct pp_err *err)
{
    struct pp_routing *r = &e->routing;
    if (choose(l, mb, e, s, given, err))
        return -1;
    if (l->env->model->moe.capacity <= 0)
        return 0;
    return pp_layer_capacity(l, mb, b, r, s[PP_S_WEIGHT], e->kept_of,
                             e->choices, err) ||
                   choose(l, mb, e, s, true, err)
               ? -1
               : 0;
}

static int route(const struct pp_layer *l, const struct pp_microbatch *mb,
                 const struct pp_layer_blocks *b, struct experts *e,
                 const void *x, void *const *s, struct pp_err *err)
{
    const struct pp_router_rows rows = router_rows(e, s);
    PP_LAYER_RUN(e->k->scores(e->logits, x, l->w[PP_P_ROUTER],
                              l->w[PP_P_ROUTER_OFFSET], e->T, e->C, e->E,
                              l->env->stream));
    bool given = pp_layer_replays(l, mb);
    if ((given && pp_layer_replay(l, mb, e->routing.row, err)) ||
        choose_kept(l, mb, b, e, s, given, err) ||
        pp_layer_record(l, mb, &e->routing, err))
        return -1;
    return pp_layer_router_fwd(l, mb, &rows, err);
}

static int gate_and_up(const struct pp_layer *l, const struct experts *e,
                       const struct expert_input *x, void *const *s,
                       struct pp_err *err)
{
    if (to_experts_begin(l, e, x->seen, NULL, err) ||
        pp_shared_up_fwd(l, &e->shared, x->all, s, err) ||
        pp_dispatch_send_wait(l, &e->dispatch, &e->moved, err))
        return -1;
    PP_LAYER_RUN(e->k->grouped_fwd(s[PP_S_EXPERT_GATE_UP], e->product,
                                   l->w[PP_P_EXPERT_GATE],
                                   l->w[PP_P_EXPERT_GATE_BIAS], &e->rows, e->C,
                                   2 * e->I, e->stride, l->env->stream));
    return 0;
}

static struct pp_clamp clamp_of(const struct pp_layer *l)
{
    const struct pp_moe *m = &l->env->model->moe;
    return (struct pp_clamp){m->limit, m->gain};
}

static int activate(const struct pp_layer *l, const struct experts *e,
                    void *const *s, struct pp_err *err)
{
    const struct pp_clamp by = clamp_of(l);
    void *act = s[PP_S_EXPERT_ACT], *gu = s[PP_S_EXPERT_GATE_UP];
    PP_LAYER_RUN(by.limit > 0
                     ? e->k->clamped_swiglu_fwd(act, gu, e->rows.n, e->I, &by,
                                                l->env->stream)
                     : l->env->kernels->swiglu_fwd(act, gu, e->rows.n, e->I,
                                                   l->env->stream));
    return 0;
}

/* Returns the bias of the last products, or NULL: one of the tensor-parallel
 * ranks that divide an expert has it, so that it is added once. */
static const void *down_bias(const struct pp_layer *l)
{
    return pp_layer_is_whole(l) || l->env->tensor.group.index == 0
               ? l->w[PP_P_EXPERT_DOWN_BIAS]
               : NULL;
}

/* Writes the sum of the experts to y, rows of this rank. */
static int sum_experts(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct experts *e, const struct pp_layer_blocks *b,
                       void *y, void *const *s, struct pp_err *err)
{
    bool shares = e->shared.S > 0;
    void *part = pp_layer_part(l, b, y), *out = pp_layer_is_whole(l) ? y : part;
    PP_LAYER_RUN(e->k->grouped_fwd(
        e->product, s[PP_S_EXPERT_ACT], l->w[PP_P_EXPERT_DOWN], down_bias(l),
        &e->rows, e->I, e->C, e->stride, l->env->stream));
    if (pp_dispatch_return_begin(l, &e->dispatch, &e->moved, err) ||
        pp_shared_down_fwd(l, &e->shared, part, s, err) ||
        from_experts_wait(l, e, err) ||
        (pp_layer_is_whole(l) && shares && pp_layer_reduce(l, mb, b, y, err)))
        return -1;
    PP_LAYER_RUN(e->k->combine(out, e->product, s[PP_S_WEIGHT], e->routing.row,
                               e->T, e->K, e->C, shares, l->env->stream));
    return pp_layer_is_whole(l) ? 0 : pp_layer_reduce(l, mb, b, y, err);
}

static int experts_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *y, const void *residual,
                       const struct pp_layer_blocks *b, void *const *s,
                       void *scratch, struct pp_err *err)
{
    struct experts e = experts_of(l, mb, s, scratch);
    struct expert_input x;
    if (gather_input(l, mb, b, &e, s[PP_S_NORM2], &x, err) ||
        route(l, mb, b, &e, x.seen, s, err) || find_rows(l, &e, err) ||
        note_dropped(l, mb, &e, err) ||
        pp_shared_gate_fwd(l, &e.shared, x.all, s, err) ||
        gate_and_up(l, &e, &x, s, err) || activate(l, &e, s, err) ||
        sum_experts(l, mb, &e, b, y, s, err))
        return -1;
    if (residual)
        PP_LAYER_RUN(l->env->kernels->add(
            y, residual, y, pp_layer_rows(l, mb) * e.C, l->env->stream));
    return 0;
}

static int experts_recompute(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b, void *const *s,
                             void *scratch, struct pp_err *err)
{
    struct experts e = experts_of(l, mb, s, scratch);
    struct expert_input x;
    if (find_rows(l, &e, err))
        return -1;
    if (l->recompute == PP_RECOMPUTE_FULL)
        return gather_input(l, mb, b, &e, s[PP_S_NORM2], &x, err) ||
                       gate_and_up(l, &e, &x, s, err) || activate(l, &e, s, err)
                   ? -1
                   : 0;
    return activate(l, &e, s, err) || pp_shared_activate(l, &e.shared, s, err)
               ? -1
               : 0;
}

/* --- input gradient --- */

/* Returns the weights of the rows at the experts of this rank, or NULL with
 * *err filled. */
static const void *weights_here(const struct pp_layer *l,
                                const struct experts *e, void *const *s,
                                struct pp_err *err)
{
    size_t bytes = l->env->kernels->accumulator_bytes;
    const struct pp_moved r = {e->other_weights, e->weights, 1, bytes};
    if (holds_all(l))
        return s[PP_S_WEIGHT];
    return pp_device_ops(l->env->device)
                       ->copy(l->env->device, r.at, s[PP_S_WEIGHT],
                              e->kept * bytes, err) ||
                   pp_dispatch_send_begin(l, &e->dispatch, &r, err) ||
                   pp_dispatch_send_wait(l, &e->dispatch, &r, err)
               ? NULL
               : r.at;
}

/* Takes the gradients of weights back to their tokens. Those of dropped rows
 * are 0. */
static int return_weights(const struct pp_layer *l, const struct experts *e,
                          struct pp_err *err)
{
    const struct pp_moved r = {e->weights, e->other_weights, 1,
                               l->env->kernels->accumulator_bytes};
    if (pp_dispatch_return_begin(l, &e->dispatch, &r, err) ||
        pp_dispatch_return_wait(l, &e->dispatch, &r, err))
        return -1;
    return erase(l, pp_layer_statistic_at(l, e->weights, e->kept),
                 (e->R - e->kept) * l->env->kernels->accumulator_bytes, err);
}

/* Writes PP_S_DEXPERT_GATE_UP from the gradient of the activation. */
static int activation_bwd(const struct pp_layer *l, const struct experts *e,
                          void *const *s, struct pp_err *err)
{
    const struct pp_clamp by = clamp_of(l);
    void *dgu = s[PP_S_DEXPERT_GATE_UP];
    const void *gu = s[PP_S_EXPERT_GATE_UP];
    PP_LAYER_RUN(by.limit > 0
                     ? e->k->clamped_swiglu_bwd(dgu, e->act, gu, e->rows.n,
                                                e->I, &by, l->env->stream)
                     : l->env->kernels->swiglu_bwd(dgu, e->act, gu, e->rows.n,
                                                   e->I, l->env->stream));
    return 0;
}

/* Computes the gradients before the products of gate and up, and of the
 * weights, from dy. */
static int activations_bwd(const struct pp_layer *l, const struct experts *e,
                           const struct expert_input *dy, void *const *s,
                           struct pp_err *err)
{
    const void *weights = weights_here(l, e, s, err);
    if (!weights || to_experts_begin(l, e, dy->seen, NULL, err) ||
        pp_shared_down_bwd(l, &e->shared, dy->all, s, err) ||
        pp_dispatch_send_wait(l, &e->dispatch, &e->moved, err))
        return -1;
    PP_LAYER_RUN(e->k->grouped_bwd_input(e->act, e->product,
                                         l->w[PP_P_EXPERT_DOWN], &e->rows, e->I,
                                         e->C, e->stride, l->env->stream));
    PP_LAYER_RUN(e->k->weigh_bwd(e->weights, e->act, s[PP_S_EXPERT_ACT],
                                 weights, e->rows.n, e->I, l->env->stream));
    if (down_bias(l))
        PP_LAYER_RUN(e->k->bias_dot(e->weights, e->product, down_bias(l),
                                    e->rows.expert, e->rows.n, e->C, e->stride,
                                    l->env->stream));
    if (activation_bwd(l, e, s, err) || return_weights(l, e, err))
        return -1;
    PP_LAYER_RUN(e->k->route_bwd(s[PP_S_DROUTER], e->weights, s[PP_S_PROBS],
                                 &e->routing, e->T, e->E, e->K,
                                 &l->env->model->moe.router, l->env->stream));
    return 0;
}

/* Adds to dx (T, C) the input gradient of a product whose matrix is at slot w.
 */
static int add_product(const struct pp_layer *l, const struct experts *e,
                       size_t T, void *dx, const void *dy, size_t w,
                       size_t width, struct pp_err *err)
{
    if (!l->w[w])
        return 0;
    PP_LAYER_RUN(l->env->kernels->linear_bwd_input(
        e->product, dy, l->w[w], T, e->C, width, e->C, width, l->env->stream));
    PP_LAYER_RUN(
        l->env->kernels->add(dx, dx, e->product, T * e->C, l->env->stream));
    return 0;
}

/* Adds the gradients of all tensor-parallel ranks. With whole experts those in
 * dx, of the routed ones, are of this rank alone, and the part of the shared
 * expert is. */
static int reduce_input(const struct pp_layer *l,
                        const struct pp_microbatch *mb, const struct experts *e,
                        const struct pp_layer_blocks *b, void *dx,
                        struct pp_err *err)
{
    if (!pp_layer_is_whole(l))
        return pp_layer_reduce(l, mb, b, dx, err);
    if (!e->shared.S)
        return 0;
    if (pp_layer_reduce(l, mb, b, e->product, err))
        return -1;
    PP_LAYER_RUN(
        l->env->kernels->add(dx, dx, e->product, e->T * e->C, l->env->stream));
    return 0;
}

static int experts_bwd_input(const struct pp_layer *l,
                             const struct pp_microbatch *mb, const void *dy,
                             const struct pp_layer_blocks *b, void *const *s,
                             void *scratch, struct pp_err *err)
{
    struct experts e = experts_of(l, mb, s, scratch);
    bool adds = e.shared.S > 0 && !pp_layer_is_whole(l);
    void *part = pp_layer_part(l, b, s[PP_S_DNORM2]);
    void *dx = pp_layer_is_whole(l) ? s[PP_S_DNORM2] : part;
    struct expert_input in;
    if (gather_input(l, mb, b, &e, dy, &in, err) || find_rows(l, &e, err) ||
        activations_bwd(l, &e, &in, s, err))
        return -1;
    PP_LAYER_RUN(e.k->grouped_bwd_input(e.product, s[PP_S_DEXPERT_GATE_UP],
                                        l->w[PP_P_EXPERT_GATE], &e.rows, e.C,
                                        2 * e.I, e.stride, l->env->stream));
    if (pp_dispatch_return_begin(l, &e.dispatch, &e.moved, err) ||
        pp_shared_up_bwd(l, &e.shared, part, s, err) ||
        from_experts_wait(l, &e, err))
        return -1;
    PP_LAYER_RUN(e.k->combine(dx, e.product, NULL, e.routing.row, e.T, e.K, e.C,
                              adds, l->env->stream));
    const struct pp_router_rows rows = router_rows(&e, s);
    return pp_layer_router_bwd(l, mb, b, &rows, s[PP_S_DROUTER], s[PP_S_NORM2],
                               err) ||
                   add_product(l, &e, e.T, dx, s[PP_S_DROUTER], PP_P_ROUTER,
                               e.E, err) ||
                   add_product(l, &e, e.shared.T, part, s[PP_S_DSHARED_WEIGHT],
                               PP_P_SHARED_WEIGHT, 1, err) ||
                   reduce_input(l, mb, &e, b, s[PP_S_DNORM2], err)
               ? -1
               : 0;
}

/* --- weight gradient --- */

static int router_bwd_weight(const struct pp_layer *l, const struct experts *e,
                             const void *x, void *const *s, struct pp_err *err)
{
    if (l->g[PP_P_ROUTER])
        PP_LAYER_RUN(l->env->kernels->linear_bwd_weight(
            l->g[PP_P_ROUTER], l->g[PP_P_ROUTER_OFFSET], s[PP_S_DROUTER], x,
            e->T, e->C, e->E, e->E, e->C, l->env->stream));
    return 0;
}

/* The gradients of the last products. */
static int down_bwd_weight(const struct pp_layer *l, const struct experts *e,
                           const struct expert_input *dy, void *const *s,
                           struct pp_err *err)
{
    if (!l->g[PP_P_EXPERT_DOWN])
        return pp_shared_down_bwd_weight(l, &e->shared, dy->all, s, err);
    if (to_experts_begin(l, e, dy->seen, s[PP_S_WEIGHT], err) ||
        pp_shared_down_bwd_weight(l, &e->shared, dy->all, s, err) ||
        pp_dispatch_send_wait(l, &e->dispatch, &e->moved, err))
        return -1;
    PP_LAYER_RUN(e->k->grouped_bwd_weight(
        l->g[PP_P_EXPERT_DOWN],
        down_bias(l) ? l->g[PP_P_EXPERT_DOWN_BIAS] : NULL, e->product,
        s[PP_S_EXPERT_ACT], &e->rows, e->I, e->C, e->stride, l->env->stream));
    return 0;
}

/* Those of the first products, of inputs x. */
static int up_bwd_weight(const struct pp_layer *l, const struct experts *e,
                         const struct expert_input *x, void *const *s,
                         struct pp_err *err)
{
    bool trains = l->g[PP_P_EXPERT_GATE];
    if ((trains && to_experts_begin(l, e, x->seen, NULL, err)) ||
        router_bwd_weight(l, e, x->seen, s, err) ||
        pp_shared_up_bwd_weight(l, &e->shared, x->all, s, err) ||
        (trains && pp_dispatch_send_wait(l, &e->dispatch, &e->moved, err)))
        return -1;
    if (trains)
        PP_LAYER_RUN(e->k->grouped_bwd_weight(
            l->g[PP_P_EXPERT_GATE], l->g[PP_P_EXPERT_GATE_BIAS],
            s[PP_S_DEXPERT_GATE_UP], e->product, &e->rows, e->C, 2 * e->I,
            e->stride, l->env->stream));
    return 0;
}

static int experts_bwd_weight(const struct pp_layer *l,
                              const struct pp_microbatch *mb,
                              const struct pp_layer_blocks *b, void *const *s,
                              void *scratch, struct pp_err *err)
{
    struct experts e = experts_of(l, mb, s, scratch);
    struct expert_input dy, x;
    return gather_input(l, mb, b, &e, s[PP_S_DOUT2], &dy, err) ||
                   find_rows(l, &e, err) ||
                   down_bwd_weight(l, &e, &dy, s, err) ||
                   gather_input(l, mb, b, &e, s[PP_S_NORM2], &x, err) ||
                   up_bwd_weight(l, &e, &x, s, err)
               ? -1
               : 0;
}

const struct pp_block_ops pp_part_experts = {
    .fwd = experts_fwd,
    .recompute = experts_recompute,
    .bwd_input = experts_bwd_input,
    .bwd_weight = experts_bwd_weight,
};
