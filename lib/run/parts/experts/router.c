/* SPDX-License-Identifier: MIT */
/* router - the auxiliary losses of a router (router_losses.h).
 *
 * I counts the tokens of experts again, from what the router chose in F, so
 * that nothing is kept for it. Ranks that divide a microbatch add up their
 * counts; the sums of probabilities stay on each, as its part of the loss.
 * Tensor-parallel ranks see the same tokens: the first one alone adds the
 * losses. If they hold whole experts, they divide the tokens too. */
#include "run/parts/experts/layer_experts.h"

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
    const struct pp_microbatch *host = &mb->host->of;
    return host->keys.n_whole
               ? (struct whole){host->keys.n_whole, host->keys.whole_cu}
               : (struct whole){host->n_sequences, host->cu_seqlens};
}

static const struct pp_router_rule_row *rule_of(const struct pp_microbatch *mb)
{
    return &pp_router_rules[mb->experts.router->options->rule];
}

/* Returns the number of the part that has sequence i of this rank. */
static size_t part_of(const struct pp_microbatch *mb, size_t i)
{
    return !rule_of(mb)->documents ? 0
           : mb->keys.n_whole      ? (size_t)mb->host->of.sequence[i]
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
    const struct pp_router_losses *r = mb->experts.router;
    return rule_of(mb)->equal ? 1 / (r->parts * tokens_of(mb, part))
                              : 1 / r->tokens;
}

/* Returns what the sum of n[e] P[e] in a part is multiplied by. */
static double balance_weight(const struct pp_call *c, size_t part)
{
    const struct pp_moe *m = &c->m->moe;
    double by = rule_of(c->mb)->per_choice ? (double)m->top_k : 1;
    return token_weight(c->mb, part) * (double)m->n_experts /
           (tokens_of(c->mb, part) * by);
}

static void *load_at(const struct pp_call *c, const struct pp_router_rows *r,
                     size_t part)
{
    return pp_statistic_at(c, r->logits, part * c->m->moe.n_experts);
}

/* Returns the values that ranks receive at a time to add up n: the same on all,
 * and at least one for each rank, which is planned (unit_bytes.c). There is
 * room for n more, as a bin has at most as many sequences as half of the rows
 * that a context-parallel rank is planned for; or for a row more if
 * tensor-parallel ranks divide these. */
static size_t room_values(const struct pp_call *c, size_t n)
{
    const struct pp_moe *m = &c->m->moe;
    size_t ranks = (size_t)c->env->routers.group.n;
    size_t most = pp_layer_is_whole(c) && n > m->n_experts ? m->n_experts : n;
    return most < ranks ? ranks : most;
}

/* Finds the next sequence from number *i on that has tokens the router sees,
 * and these. Returns false if there is none. */
static bool next_seen(const struct pp_call *c, size_t *i,
                      struct pp_token_range *at)
{
    for (; *i < c->mb->n_sequences; ++*i) {
        *at = pp_layer_routed_of(c, *i);
        if (at->begin < at->end)
            return true;
    }
    return false;
}

/* Writes the loads of experts in every part, (parts, E), over the logits. */
static void count(const struct pp_call *c, const struct pp_router_rows *r)
{
    size_t E = c->m->moe.n_experts, n = n_parts(c->mb) * E;
    struct pp_token_range at;
    pp_call_erase(c, r->logits, n * c->k->accumulator_bytes);
    for (size_t i = 0; next_seen(c, &i, &at); i++)
        PP_RUN(c, experts->load, load_at(c, r, part_of(c->mb, i)), &r->routing,
               at.begin, at.end, E, c->m->moe.top_k);
    if (pp_env_routers(c->env) == 1)
        return;
    struct pp_collective of = c->env->routers;
    of.value_bytes = c->k->accumulator_bytes;
    of.sum = c->k->add_gradient;
    of.room = load_at(c, r, n_parts(c->mb));
    of.room_values = room_values(c, n);
    PP_TRY(c, pp_all_reduce(&of, r->logits, n, c->err));
}

/* Adds the tokens of each expert to the loads of the step: on every
 * tensor-parallel rank, or the tokens that each sees. */
static void add_loads(const struct pp_call *c, const struct pp_router_rows *r)
{
    struct pp_token_range at;
    for (size_t i = 0; c->l->load && next_seen(c, &i, &at); i++)
        PP_RUN(c, experts->load, c->l->load, &r->routing, at.begin, at.end,
               c->m->moe.n_experts, c->m->moe.top_k);
}

/* Reports whether this rank has a part in the losses. */
static bool adds_losses(const struct pp_call *c)
{
    return pp_layer_is_whole(c) || c->env->tensor.group.index == 0;
}

static bool has_tokens(const struct pp_microbatch *mb)
{
    struct whole w = whole_of(mb);
    return w.n > 0 && w.cu[w.n] > 0;
}

/* Adds up the loads of all parts on a GPU. */
static void add_parts(const struct pp_call *c, const struct pp_router_rows *r)
{
    size_t E = c->m->moe.n_experts;
    void *sum = r->told.loads;
    pp_call_erase(c, sum, E * c->k->accumulator_bytes);
    for (size_t part = 0; part < n_parts(c->mb); part++)
        PP_RUN(c, add_gradient, sum, sum, load_at(c, r, part), E);
}

static double load_of(const struct pp_call *c, const void *at, size_t e)
{
    bool wide = c->k->accumulator_bytes == sizeof(double);
    return wide ? ((const double *)at)[e] : (double)((const float *)at)[e];
}

/* Adds the loads of the microbatch to the loads of the layer in the run. */
static void keep_loads(const struct pp_call *c, struct pp_router_losses *r)
{
    size_t layer = c->l->unit.layer;
    if (r->loads && layer < c->m->n_layers)
        pp_expert_loads_add(
            &r->loads[pp_layer_set_before(&c->m->moe.layers, layer)],
            r->tokens_of);
}

/* Notes the largest load of an expert in the microbatch, over the mean. Each of
 * n parts has loads, in host memory. */
static void note_load(const struct pp_call *c, const void *loads, size_t n)
{
    const struct pp_moe *m = &c->m->moe;
    struct pp_router_losses *of = c->mb->experts.router;
    struct whole w = whole_of(c->mb);
    double mean = (double)w.cu[w.n] * (double)m->top_k / (double)m->n_experts;
    if (pp_call_failed(c))
        return;
    for (size_t e = 0; e < m->n_experts; e++) {
        double sum = 0;
        for (size_t part = 0; part < n; part++)
            sum += load_of(c, loads, part * m->n_experts + e);
        of->load = fmax(of->load, sum / mean);
        if (of->tokens_of)
            of->tokens_of[e] = sum;
    }
    keep_loads(c, of);
}

/* Kernels add to these sums of losses: the step's, or what a GPU tells. */
struct loss_sums {
    double *size, *balance;
};

static struct loss_sums begin_losses(const struct pp_call *c,
                                     const struct pp_router_rows *r)
{
    if (pp_env_is_host(c->env))
        return (struct loss_sums){&c->mb->experts.router->size,
                                  &c->mb->experts.router->balance};
    double *sums = r->told.sums;
    pp_call_erase(c, sums, 2 * sizeof *sums);
    return (struct loss_sums){sums, sums + 1};
}

static void add_sizes(const struct pp_call *c, const struct pp_router_rows *r,
                      double *sum)
{
    struct pp_token_range at;
    for (size_t i = 0; next_seen(c, &i, &at); i++)
        PP_RUN(c, experts->logit_size_fwd, sum, r->logits,
               token_weight(c->mb, part_of(c->mb, i)), at.begin, at.end,
               c->m->moe.n_experts);
}

static void add_balances(const struct pp_call *c,
                         const struct pp_router_rows *r, double *sum)
{
    struct pp_token_range at;
    for (size_t i = 0; next_seen(c, &i, &at); i++) {
        size_t part = part_of(c->mb, i);
        PP_RUN(c, experts->balance_fwd, sum, load_at(c, r, part), r->probs,
               c->m->moe.router.sigmoid, balance_weight(c, part), at.begin,
               at.end, c->m->moe.n_experts);
    }
}

void pp_layer_router_fwd(const struct pp_call *c,
                         const struct pp_router_rows *r)
{
    struct loss_sums sums = {0};
    if (!c->mb->experts.router || !has_tokens(c->mb))
        return;
    add_loads(c, r);
    if (!adds_losses(c))
        return;
    bool losses = pp_router_has_losses(c->mb->experts.router->options);
    if (losses) {
        sums = begin_losses(c, r);
        add_sizes(c, r, sums.size);
    }
    count(c, r);
    if (pp_env_is_host(c->env))
        note_load(c, r->logits, n_parts(c->mb));
    else
        add_parts(c, r);
    if (losses)
        add_balances(c, r, sums.balance);
}

void pp_layer_router_told(const struct pp_call *c, const struct pp_told *told)
{
    struct pp_router_losses *of = c->mb->experts.router;
    if (!of || !has_tokens(c->mb) || !adds_losses(c))
        return;
    note_load(c, told->loads, 1);
    if (pp_call_failed(c) || !pp_router_has_losses(of->options))
        return;
    of->size += told->sums[0];
    of->balance += told->sums[1];
}

/* Adds the gradient of the size of logits, which it computes again. */
static void size_bwd(const struct pp_call *c, const struct pp_router_rows *r,
                     void *dlogits, const void *x)
{
    size_t E = c->m->moe.n_experts;
    const struct pp_token_range seen = pp_layer_routed(c);
    double by = c->mb->experts.router->options->size;
    struct pp_token_range at;
    PP_RUN(c, experts->scores, r->logits, x, c->w[PP_P_ROUTER],
           c->w[PP_P_ROUTER_OFFSET], seen.end - seen.begin, c->C, E);
    for (size_t i = 0; next_seen(c, &i, &at); i++)
        PP_RUN(c, experts->logit_size_bwd, dlogits, r->logits,
               by * token_weight(c->mb, part_of(c->mb, i)), at.begin, at.end,
               E);
}

static void balance_bwd(const struct pp_call *c, const struct pp_router_rows *r,
                        void *dlogits)
{
    double by = c->mb->experts.router->options->balance;
    struct pp_token_range at;
    count(c, r);
    for (size_t i = 0; next_seen(c, &i, &at); i++) {
        size_t part = part_of(c->mb, i);
        PP_RUN(c, experts->balance_bwd, dlogits, load_at(c, r, part), r->probs,
               c->m->moe.router.sigmoid, by * balance_weight(c, part), at.begin,
               at.end, c->m->moe.n_experts);
    }
}

void pp_layer_router_bwd(const struct pp_call *c,
                         const struct pp_router_rows *r, void *dlogits,
                         const void *norm)
{
    if (!c->mb->experts.router || !has_tokens(c->mb))
        return;
    const struct pp_router_options *o = c->mb->experts.router->options;
    bool gathers = o->size > 0 && !pp_layer_is_whole(c);
    const void *x = gathers ? pp_layer_gather(c, norm) : norm;
    if (!adds_losses(c))
        return;
    if (o->size > 0)
        size_bwd(c, r, dlogits, x);
    if (o->balance > 0)
        balance_bwd(c, r, dlogits);
}
