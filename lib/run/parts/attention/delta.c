/* SPDX-License-Identifier: MIT */
/* delta - linear attention: mid = x + out_proj(delta(in_proj(normed x))).
 * One product makes queries, keys, values, the gate of the outputs, and what
 * decides how much a token writes and how fast the state decays.
 * Tensor-parallel ranks divide the heads. */
#include "run/parts/layer_impl.h"

static struct pp_product product(const struct pp_call *c)
{
    const struct pp_delta d = pp_shard_delta(&c->env->shard);
    return (struct pp_product){PP_P_DELTA_QKV, PP_NO_SLOT, c->C,
                               pp_delta_outputs(&d)};
}

static struct pp_product output(const struct pp_call *c)
{
    const struct pp_delta d = pp_shard_delta(&c->env->shard);
    return (struct pp_product){PP_P_DELTA_O, PP_NO_SLOT,
                               d.value_heads * d.value_dim, c->C};
}

static struct pp_delta_shape shape(const struct pp_call *c)
{
    const struct pp_delta d = pp_shard_delta(&c->env->shard);
    return (struct pp_delta_shape){.N = c->T,
                                   .NK = d.key_heads,
                                   .NV = d.value_heads,
                                   .DK = d.key_dim,
                                   .DV = d.value_dim,
                                   .taps = d.taps,
                                   .grouped = pp_model_delta_grouped(c->m),
                                   .n_sequences = c->mb->n_sequences,
                                   .cu_padded = c->mb->cu_seqlens_padded,
                                   .eps = c->m->norm_eps};
}

/* Returns what the slice before passes to this one; NULL: this is the first. */
static void *passed(const struct pp_call *c)
{
    const struct pp_slice *s = &c->mb->slice;
    return s->n_before
               ? (char *)s->before[s->n_before - 1].block[PP_SAVED_STATES] +
                     c->l->states
               : NULL;
}

/* Likewise, if a sequence goes on in this slice. */
static void *before(const struct pp_call *c)
{
    return c->mb->slice.context ? passed(c) : NULL;
}

/* Returns what passes to the next slice; NULL: this is the last. */
static void *behind(const struct pp_call *c)
{
    return c->mb->slice.continues ? c->states : NULL;
}

static struct pp_delta_weights weights(const struct pp_call *c)
{
    return (struct pp_delta_weights){c->w[PP_P_DELTA_CONV], c->w[PP_P_DELTA_DT],
                                     c->w[PP_P_DELTA_LOG],
                                     c->w[PP_P_DELTA_NORM]};
}

/* Slices do not make queries, keys and values again: if they are there, this is
 * I, and the next slice has put gradients in the place of what it read. */
static void heads_fwd(const struct pp_call *c, bool again)
{
    struct pp_delta_shape s = shape(c);
    const struct pp_delta_weights w = weights(c);
    s.before = before(c);
    s.behind = again ? NULL : behind(c);
    PP_RUN(c, delta->fwd, c->s[PP_S_GATED], c->s[PP_S_ATTN], c->s[PP_S_QKV_RAW],
           &w, &s, c->scratch);
}

static void delta_inner(const struct pp_call *c, enum pp_recompute parts)
{
    const struct pp_product in = product(c);
    if (parts & PP_AGAIN_QKV)
        pp_product_fwd(c, &in, c->T, c->s[PP_S_QKV_RAW],
                       pp_layer_gather(c, c->s[PP_S_NORM1]), NULL);
    if (parts & PP_AGAIN_ATTENTION)
        heads_fwd(c, !(parts & PP_AGAIN_QKV));
}

static void delta_last(const struct pp_call *c, void *y, const void *residual)
{
    const struct pp_product out = output(c);
    pp_join_fwd(c, &out, y, c->s[PP_S_GATED], residual);
}

static void delta_bwd_input(const struct pp_call *c, const void *dy)
{
    const struct pp_product in = product(c), out = output(c);
    struct pp_delta_shape s = shape(c);
    const struct pp_delta_weights w = weights(c);
    s.before = before(c);
    s.behind = behind(c);
    /* Nothing here reads what the slice before passes. */
    if (passed(c) && !s.before)
        pp_call_erase(c, passed(c),
                      pp_unit_states(&c->env->shard, c->l->unit,
                                     c->k->accumulator_bytes));
    void *dgated = c->scratch;
    pp_join_bwd_input(c, &out, dgated, dy, c->s[PP_S_GATED]);
    PP_RUN(c, delta->bwd_input, c->s[PP_S_DQKV], c->s[PP_S_DQK_NORM],
           c->s[PP_S_DSINKS], dgated, c->s[PP_S_QKV_RAW], c->s[PP_S_ATTN], &w,
           &s, pp_at(c, dgated, out.in * c->T));
    pp_split_bwd_input(c, &in, c->s[PP_S_DNORM1], c->s[PP_S_DQKV]);
}

static void delta_bwd_weight(const struct pp_call *c)
{
    const struct pp_product in = product(c), out = output(c);
    struct pp_delta_shape s = shape(c);
    const struct pp_delta_weights w = weights(c);
    s.behind = behind(c);
    const struct pp_delta_gradients g = {pp_call_gradient(c, PP_P_DELTA_CONV),
                                         pp_call_gradient(c, PP_P_DELTA_DT),
                                         pp_call_gradient(c, PP_P_DELTA_LOG),
                                         pp_call_gradient(c, PP_P_DELTA_NORM)};
    pp_join_bwd_weight(c, &out, c->s[PP_S_DOUT1], c->s[PP_S_GATED]);
    PP_RUN(c, delta->bwd_weight, &g, c->s[PP_S_DQKV], c->s[PP_S_DQK_NORM],
           c->s[PP_S_DSINKS], c->s[PP_S_QKV_RAW], &w, &s);
    pp_product_bwd_weight(c, &in, c->T, c->s[PP_S_DQKV],
                          pp_layer_gather(c, c->s[PP_S_NORM1]));
}

const struct pp_block_ops pp_part_delta = {
    .inner = delta_inner,
    .last = delta_last,
    .bwd_input = delta_bwd_input,
    .bwd_weight = delta_bwd_weight,
};
