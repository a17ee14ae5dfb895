/* SPDX-License-Identifier: MIT */
/* mlp - y = mid + down(activation(widened)) of the normed mid. With a
 * gate the first product has twice the width, and the activation is
 * silu(gate) * up or gelu(gate) * up; else it is gelu or xielu. */
#include "run/parts/layer_impl.h"

enum activation { GATED_SILU, GATED_GELU, PLAIN_GELU, XIELU };

struct mlp {
    enum activation activation;
    struct pp_product widen, down;
};

static enum activation activation_of(const struct pp_call *c)
{
    struct pp_model_part parts[PP_MAX_PARTS];
    size_t n = pp_unit_parts(c->m, c->l->unit, parts);
    for (size_t i = 0; i < n; i++)
        if (parts[i].kind == PP_PART_PLAIN_MLP)
            return c->m->gelu == PP_XIELU ? XIELU : PLAIN_GELU;
    return pp_family_of(c->m->architecture)->geglu ? GATED_GELU : GATED_SILU;
}

static struct mlp mlp_of(const struct pp_call *c)
{
    size_t I = pp_shard_columns(&c->env->shard);
    struct mlp p = {.activation = activation_of(c),
                    .widen = {PP_P_GATE, PP_P_GATE_BIAS, c->C, 2 * I},
                    .down = {PP_P_DOWN, PP_P_DOWN_BIAS, I, c->C}};
    if (p.activation >= PLAIN_GELU)
        p.widen = (struct pp_product){PP_P_UP, PP_P_UP_BIAS, c->C, I};
    return p;
}

static void widen(const struct pp_call *c, const struct mlp *p)
{
    const void *x = pp_layer_gather(c, c->s[PP_S_NORM2]);
    pp_product_fwd(c, &p->widen, c->T, c->s[PP_S_GATE_UP], x, NULL);
}

static struct pp_xielu xielu_of(const struct pp_call *c)
{
    return (struct pp_xielu){c->w[PP_P_XIELU_P], c->w[PP_P_XIELU_N],
                             c->w[PP_P_XIELU_BETA], c->w[PP_P_XIELU_EPS]};
}

static void activate(const struct pp_call *c, const struct mlp *p)
{
    void *act = c->s[PP_S_ACT], *gu = c->s[PP_S_GATE_UP];
    const struct pp_xielu by = xielu_of(c);
    if (p->activation == XIELU)
        PP_RUN(c, xielu_fwd, act, gu, c->T, p->down.in, &by);
    else if (p->activation == PLAIN_GELU)
        PP_RUN(c, gelu_fwd, act, gu, c->T * p->down.in, c->m->gelu);
    else if (p->activation == GATED_GELU)
        PP_RUN(c, geglu_fwd, act, gu, c->T, p->down.in);
    else
        PP_RUN(c, swiglu_fwd, act, gu, c->T, p->down.in);
}

/* Writes the gradient of the widened values from dact (T, I). */
static void activation_bwd(const struct pp_call *c, const struct mlp *p,
                           const void *dact)
{
    void *dgu = c->s[PP_S_DGATE_UP], *gu = c->s[PP_S_GATE_UP];
    const struct pp_xielu by = xielu_of(c);
    if (p->activation == XIELU)
        PP_RUN(c, xielu_bwd, dgu, c->s[PP_S_DXIELU], dact, gu, c->T, p->down.in,
               &by);
    else if (p->activation == PLAIN_GELU)
        PP_RUN(c, gelu_bwd, dgu, dact, gu, c->T * p->down.in, c->m->gelu);
    else if (p->activation == GATED_GELU)
        PP_RUN(c, geglu_bwd, dgu, dact, gu, c->T, p->down.in);
    else
        PP_RUN(c, swiglu_bwd, dgu, dact, gu, c->T, p->down.in);
}

static void mlp_inner(const struct pp_call *c, enum pp_recompute parts)
{
    const struct mlp p = mlp_of(c);
    if (parts & PP_AGAIN_MLP)
        widen(c, &p);
    if (parts & PP_AGAIN_MLP_ACT)
        activate(c, &p);
}

static void mlp_last(const struct pp_call *c, void *y, const void *residual)
{
    const struct mlp p = mlp_of(c);
    pp_join_fwd(c, &p.down, y, c->s[PP_S_ACT], residual);
}

/* Without a gate the gradient is made in place; the gradient of a gate needs
 * room, (T, I). */
static void mlp_bwd_input(const struct pp_call *c, const void *dy)
{
    const struct mlp p = mlp_of(c);
    bool in_place = p.activation >= PLAIN_GELU;
    void *dact = in_place ? c->s[PP_S_DGATE_UP] : c->scratch;
    pp_join_bwd_input(c, &p.down, dact, dy, c->s[PP_S_ACT]);
    activation_bwd(c, &p, dact);
    pp_split_bwd_input(c, &p.widen, c->s[PP_S_DNORM2], c->s[PP_S_DGATE_UP]);
}

static void mlp_bwd_weight(const struct pp_call *c)
{
    const struct mlp p = mlp_of(c);
    pp_join_bwd_weight(c, &p.down, c->s[PP_S_DOUT2], c->s[PP_S_ACT]);
    for (size_t i = 0; c->g[PP_P_XIELU_P] && i < 2; i++)
        PP_RUN(c, experts->add_rows, pp_call_gradient(c, PP_P_XIELU_P + (int)i),
               pp_statistic_at(c, c->s[PP_S_DXIELU], i * c->T), c->T, 1);
    if (!pp_product_trains(c, &p.widen))
        return;
    const void *x = pp_layer_gather(c, c->s[PP_S_NORM2]);
    pp_product_bwd_weight(c, &p.widen, c->T, c->s[PP_S_DGATE_UP], x);
}

const struct pp_block_ops pp_part_mlp = {
    .inner = mlp_inner,
    .last = mlp_last,
    .bwd_input = mlp_bwd_input,
    .bwd_weight = mlp_bwd_weight,
};
