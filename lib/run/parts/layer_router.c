/* SPDX-License-Identifier: MIT */
/* layer_router - the auxiliary losses of a router (router_losses.h).
 *
 * I counts the tokens of experts again, from what the router chose in F, so
 * that nothing is kept for it. Ranks that divide a microbatch add up their
 * counts; the sums of probabilities stay on each, as its part of the loss.
 * Tensor-parallel ranks see the same tokens: the first one alone adds the
 * losses. If they hold whole experts, they divide the tokens too. */
#include "run/parts/layer_impl.h"

#include <math.h>

#include "comm/collective.h"

const struct pp_router_rule_row pp_router_rules[] = {
    [PP_ROUTER_TOKENS] = {0},
    [PP_ROUTER_DOCUMENTS] = {.documents = true, .equal = true},
    [PP_ROUTER_MEGATRON] = {.equal = true, .per_choice = true},
};

/* The sequences of a microbatch on all ranks. */
struct whole {
    size_t n;
    const int32_t *cu;
};

static struct whole whole_of(const struct pp_microbatch *mb)
{
    return mb->n_whole ? (struct whole){mb->n_whole, mb->host_whole_cu}
                       : (struct whole){mb->n_sequences, mb->host_cu};
}

static const struct pp_router_rule_row *rule_of(const struct pp_microbatch *mb)
{
    return &pp_router_rules[mb->router->options->rule];
}

/* Returns the number of the part that has sequence i of this rank. */
static size_t part_of(const struct pp_microbatch *mb, size_t i)
{
    return !rule_of(mb)->documents ? 0
           : mb->n_whole           ? (size_t)mb->sequence[i]
                                   : i;
}

static size_t n_parts(const struct pp_microbatch *mb)
{
    return rule_of(mb)->documents ? whole_of(mb).n : 1;
}

/* Returns the tokens of a part on all ranks. */
static double tokens_of(const struct pp_microbatch *mb, size_t part)
{
    struct whole w = whole_of(mb);
    return rule_of(mb)->documents ? w.cu[part + 1] - w.cu[part] : w.cu[w.n];
}

/* Returns the weight of a part over its tokens. */
static double token_weight(const struct pp_microbatch *mb, size_t part)
{
    const struct pp_router_losses *r = mb->router;
    return rule_of(mb)->equal ? 1 / (r->parts * tokens_of(mb, part))
                              : 1 / r->tokens;
}

/* Returns what the sum of n[e] P[e] in a part is multiplied by. */
static double balance_weight(const struct pp_layer *l,
                             const struct pp_microbatch *mb, size_t part)
{
    const struct pp_moe *m = &l->env->model->moe;
    double by = rule_of(mb)->per_choice ? (double)m->top_k : 1;
    return token_weight(mb, part) * (double)m->n_experts /
           (tokens_of(mb, part) * by);
}

static void *load_at(const struct pp_layer *l, const struct pp_router_rows *r,
                     size_t part)
{
    return pp_layer_statistic_at(l, r->logits,
                                 part * l->env->model->moe.n_experts);
}

/* Returns the values that ranks receive at a time to add up n: the same on all,
 * and at least one for each rank, which is planned (unit_bytes.c). There is
 * room for n more, as a bin has at most as many sequences as half of the rows
 * that a context-parallel rank is planned for; or for a row more if
 * tensor-parallel ranks divide these. */
static size_t room_values(const struct pp_layer *l, size_t n)
{
    const struct pp_moe *m = &l->env->model->moe;
    size_t ranks = (size_t)l->env->routers.group.n;
    size_t most = m->whole && n > m->n_experts ? m->n_experts : n;
    return most < ranks ? ranks : most;
}

/* Writes the loads of experts in every part, (parts, E), over the logits. */
static int count(const struct pp_layer *l, const struct pp_microbatch *mb,
                 const struct pp_router_rows *r, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t E = l->env->model->moe.n_experts, n = n_parts(mb) * E;
    if (pp_device_ops(l->env->device)
            ->zero(l->env->device, r->logits, n * k->accumulator_bytes, err))
        return -1;
    for (size_t i = 0; i < mb->n_sequences; i++) {
        struct pp_token_range at = pp_layer_routed_of(l, mb, i);
        if (at.begin == at.end)
            continue;
        PP_LAYER_RUN(k->experts->load(
            load_at(l, r, part_of(mb, i)), &r->routing, at.begin, at.end, E,
            l->env->model->moe.top_k, l->env->stream));
    }
    if (pp_env_routers(l->env) == 1)
        return 0;
    struct pp_collective c = l->env->routers;
    c.value_bytes = k->accumulator_bytes;
    c.sum = k->add_gradient;
    c.room = load_at(l, r, n_parts(mb));
    c.room_values = room_values(l, n);
    return pp_all_reduce(&c, r->logits, n, err);
}

/* Adds the tokens of each expert to the loads of the step: on every
 * tensor-parallel rank, or those that each sees. */
static int add_loads(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct pp_router_rows *r, struct pp_err *err)
{
    for (size_t i = 0; l->load && i < mb->n_sequences; i++) {
        struct pp_token_range at = pp_layer_routed_of(l, mb, i);
        PP_LAYER_RUN(l->env->kernels->experts->load(
            l->load, &r->routing, at.begin, at.end,
            l->env->model->moe.n_experts, l->env->model->moe.top_k,
            l->env->stream));
    }
    return 0;
}

/* Reports whether this rank has a part in the losses. */
static bool adds_losses(const struct pp_layer *l)
{
    return pp_layer_is_whole(l) || l->env->tensor.group.index == 0;
}

static bool has_tokens(const struct pp_microbatch *mb)
{
    struct whole w = whole_of(mb);
    return w.n > 0 && w.cu[w.n] > 0;
}

/* Adds the loads of all parts up behind them, on a GPU, and reads the sums. */
static const void *read_sums(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_router_rows *r, struct pp_err *err)
{
    struct pp_device *d = l->env->device;
    size_t E = l->env->model->moe.n_experts, n = n_parts(mb);
    size_t bytes = E * l->env->kernels->accumulator_bytes;
    void *sum = n > 1 ? load_at(l, r, n) : r->logits;
    if (n > 1 && pp_device_ops(d)->zero(d, sum, bytes, err))
        return NULL;
    for (size_t part = 0; n > 1 && part < n; part++) {
        int code = l->env->kernels->add_gradient(sum, sum, load_at(l, r, part),
                                                 E, l->env->stream);
        if (code && pp_layer_fail(l, code, err))
            return NULL;
    }
    return pp_device_read(d, sum, bytes, l->env->expert_counts, err);
}

static double load_of(const struct pp_layer *l, const void *at, size_t e)
{
    bool wide = l->env->kernels->accumulator_bytes == sizeof(double);
    return wide ? ((const double *)at)[e] : (double)((const float *)at)[e];
}

/* Adds the loads of the microbatch to those of the layer in the run. */
static void keep_loads(const struct pp_layer *l, struct pp_router_losses *r)
{
    const struct pp_model *m = l->env->model;
    if (r->loads && l->unit.layer < m->n_layers)
        pp_expert_loads_add(
            &r->loads[pp_layer_set_before(&m->moe.layers, l->unit.layer)],
            r->tokens_of);
}

/* Notes the largest load of an expert in the microbatch, over the mean. */
static int note_load(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct pp_router_rows *r, struct pp_err *err)
{
    const struct pp_moe *m = &l->env->model->moe;
    bool is_host = pp_env_is_host(l->env);
    const void *sums = is_host ? r->logits : read_sums(l, mb, r, err);
    struct whole w = whole_of(mb);
    double mean = (double)w.cu[w.n] * (double)m->top_k / (double)m->n_experts;
    for (size_t e = 0; sums && e < m->n_experts; e++) {
        double sum = 0;
        for (size_t part = 0; part < (is_host ? n_parts(mb) : 1); part++)
            sum += load_of(l, sums, part * m->n_experts + e);
        mb->router->load = fmax(mb->router->load, sum / mean);
        if (mb->router->tokens_of)
            mb->router->tokens_of[e] = sum;
    }
    if (!sums)
        return -1;
    keep_loads(l, mb->router);
    return 0;
}

/* Kernels add to these sums of losses: those of the step, or on a GPU a
 * room that finish_losses reads. */
struct loss_sums {
    double *size, *balance;
};

static int begin_losses(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_router_rows *r, struct loss_sums *sums,
                        struct pp_err *err)
{
    struct pp_device *d = l->env->device;
    *sums = (struct loss_sums){&mb->router->size, &mb->router->balance};
    if (pp_env_is_host(l->env))
        return 0;
    *sums = (struct loss_sums){r->sums, r->sums + 1};
    return pp_device_ops(d)->zero(d, r->sums, 2 * sizeof *r->sums, err);
}

static int finish_losses(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct pp_router_rows *r, struct pp_err *err)
{
    struct pp_device *d = l->env->device;
    double sums[2];
    if (pp_env_is_host(l->env))
        return 0;
    if (pp_device_ops(d)->get(d, sums, r->sums, sizeof sums, err))
        return -1;
    mb->router->size += sums[0];
    mb->router->balance += sums[1];
    return 0;
}

int pp_layer_router_fwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_router_rows *r, struct pp_err *err)
{
    const struct pp_expert_kernels *k = l->env->kernels->experts;
    size_t E = l->env->model->moe.n_experts;
    struct loss_sums sums;
    if (!mb->router || !has_tokens(mb))
        return 0;
    if (add_loads(l, mb, r, err))
        return -1;
    if (!adds_losses(l))
        return 0;
    bool losses = pp_router_has_losses(mb->router->options);
    if (losses && begin_losses(l, mb, r, &sums, err))
        return -1;
    for (size_t i = 0; losses && i < mb->n_sequences; i++) {
        struct pp_token_range at = pp_layer_routed_of(l, mb, i);
        if (at.begin == at.end)
            continue;
        PP_LAYER_RUN(k->logit_size_fwd(sums.size, r->logits,
                                       token_weight(mb, part_of(mb, i)),
                                       at.begin, at.end, E, l->env->stream));
    }
    if (count(l, mb, r, err) || note_load(l, mb, r, err))
        return -1;
    for (size_t i = 0; losses && i < mb->n_sequences; i++) {
        struct pp_token_range at = pp_layer_routed_of(l, mb, i);
        if (at.begin == at.end)
            continue;
        size_t part = part_of(mb, i);
        PP_LAYER_RUN(k->balance_fwd(sums.balance, load_at(l, r, part), r->probs,
                                    l->env->model->moe.router.sigmoid,
                                    balance_weight(l, mb, part), at.begin,
                                    at.end, E, l->env->stream));
    }
    return losses ? finish_losses(l, mb, r, err) : 0;
}

/* Adds the gradient of the size of logits, which it computes again. */
static int size_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_router_rows *r, void *dlogits,
                    const void *x, struct pp_err *err)
{
    size_t E = l->env->model->moe.n_experts, C = l->env->model->hidden;
    const struct pp_token_range seen = pp_layer_routed(l, mb);
    double c = mb->router->options->size;
    PP_LAYER_RUN(l->env->kernels->experts->scores(
        r->logits, x, l->w[PP_P_ROUTER], l->w[PP_P_ROUTER_OFFSET],
        seen.end - seen.begin, C, E, l->env->stream));
    for (size_t i = 0; i < mb->n_sequences; i++) {
        struct pp_token_range at = pp_layer_routed_of(l, mb, i);
        if (at.begin == at.end)
            continue;
        PP_LAYER_RUN(l->env->kernels->experts->logit_size_bwd(
            dlogits, r->logits, c * token_weight(mb, part_of(mb, i)), at.begin,
            at.end, E, l->env->stream));
    }
    return 0;
}

static int balance_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct pp_router_rows *r, void *dlogits,
                       struct pp_err *err)
{
    size_t E = l->env->model->moe.n_experts;
    double c = mb->router->options->balance;
    if (count(l, mb, r, err))
        return -1;
    for (size_t i = 0; i < mb->n_sequences; i++) {
        struct pp_token_range at = pp_layer_routed_of(l, mb, i);
        if (at.begin == at.end)
            continue;
        size_t part = part_of(mb, i);
        PP_LAYER_RUN(l->env->kernels->experts->balance_bwd(
            dlogits, load_at(l, r, part), r->probs,
            l->env->model->moe.router.sigmoid, c * balance_weight(l, mb, part),
            at.begin, at.end, E, l->env->stream));
    }
    return 0;
}

int pp_layer_router_bwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_layer_blocks *b,
                        const struct pp_router_rows *r, void *dlogits,
                        const void *norm, struct pp_err *err)
{
    if (!mb->router || !has_tokens(mb))
        return 0;
    const struct pp_router_options *o = mb->router->options;
    bool gathers = o->size > 0 && !pp_layer_is_whole(l);
    const void *x = gathers ? pp_layer_gather(l, mb, b, norm, err) : norm;
    if (!x)
        return -1;
    if (!adds_losses(l))
        return 0;
    return (o->size > 0 && size_bwd(l, mb, r, dlogits, x, err)) ||
                   (o->balance > 0 && balance_bwd(l, mb, r, dlogits, err))
               ? -1
               : 0;
}
