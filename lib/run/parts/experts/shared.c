/* SPDX-License-Identifier: MIT */
/* shared - the shared expert of a layer of experts: a gated MLP of every
 * token (Dai et al., "DeepSeekMoE", ACL 2024). Qwen2-MoE weighs its output by
 * the sigmoid of one more product of the input.
 *
 * It reads nothing that other ranks send, so its products run while rows of the
 * other experts travel. */
#include "run/parts/experts/layer_experts.h"

static struct pp_product gate_and_up(const struct pp_call *c,
                                     const struct pp_shared_expert *e)
{
    return (struct pp_product){PP_P_SHARED_GATE, PP_NO_SLOT, c->C, 2 * e->S};
}

static struct pp_product down(const struct pp_call *c,
                              const struct pp_shared_expert *e)
{
    return (struct pp_product){PP_P_SHARED_DOWN, PP_NO_SLOT, e->S, c->C};
}

static struct pp_product weight(const struct pp_call *c)
{
    return (struct pp_product){PP_P_SHARED_WEIGHT, PP_NO_SLOT, c->C, 1};
}

/* A factor of the output is one of the activation, whose product is linear. */
static void scale(const struct pp_call *c, const struct pp_shared_expert *e,
                  void *act)
{
    double by = c->m->moe.shared_scale;
    if (e->S && by > 0)
        PP_RUN(c, scale_by, act, by, c->T, e->S, e->S);
}

void pp_shared_gate_fwd(const struct pp_call *c,
                        const struct pp_shared_expert *e, const void *x)
{
    const struct pp_product p = weight(c);
    if (!c->w[PP_P_SHARED_WEIGHT])
        return;
    pp_product_fwd(c, &p, c->T, e->act, x, NULL);
    PP_RUN(c, experts->gate_fwd, c->s[PP_S_SHARED_WEIGHT], e->act, c->T);
}

void pp_shared_up_fwd(const struct pp_call *c, const struct pp_shared_expert *e,
                      const void *x)
{
    const struct pp_product p = gate_and_up(c, e);
    if (e->S)
        pp_product_fwd(c, &p, c->T, c->s[PP_S_GATE_UP], x, NULL);
    pp_shared_activate(c, e);
}

void pp_shared_activate(const struct pp_call *c,
                        const struct pp_shared_expert *e)
{
    if (e->S)
        PP_RUN(c, swiglu_fwd, c->s[PP_S_ACT], c->s[PP_S_GATE_UP], c->T, e->S);
    scale(c, e, c->s[PP_S_ACT]);
}

void pp_shared_down_fwd(const struct pp_call *c,
                        const struct pp_shared_expert *e, void *y)
{
    const struct pp_product p = down(c, e);
    if (!e->S)
        return;
    pp_product_fwd(c, &p, c->T, y, c->s[PP_S_ACT], NULL);
    if (c->w[PP_P_SHARED_WEIGHT])
        PP_RUN(c, experts->spread, y, y, c->s[PP_S_SHARED_WEIGHT], NULL, c->T,
               c->C);
}

void pp_shared_down_bwd(const struct pp_call *c,
                        const struct pp_shared_expert *e, const void *dy)
{
    const struct pp_product p = down(c, e);
    const void *of_token = c->s[PP_S_SHARED_WEIGHT];
    if (!e->S)
        return;
    pp_product_bwd_input(c, &p, c->T, e->act, dy);
    if (c->w[PP_P_SHARED_WEIGHT]) {
        PP_RUN(c, experts->weigh_bwd, e->weights, e->act, c->s[PP_S_ACT],
               of_token, c->T, e->S);
        PP_RUN(c, experts->gate_bwd, c->s[PP_S_DSHARED_WEIGHT], e->weights,
               of_token, c->T);
    }
    scale(c, e, e->act);
    PP_RUN(c, swiglu_bwd, c->s[PP_S_DGATE_UP], e->act, c->s[PP_S_GATE_UP], c->T,
           e->S);
}

void pp_shared_up_bwd(const struct pp_call *c, const struct pp_shared_expert *e,
                      void *dx)
{
    const struct pp_product p = gate_and_up(c, e);
    if (e->S)
        pp_product_bwd_input(c, &p, c->T, dx, c->s[PP_S_DGATE_UP]);
}

void pp_shared_down_bwd_weight(const struct pp_call *c,
                               const struct pp_shared_expert *e, const void *dy)
{
    const struct pp_product p = down(c, e);
    const void *act = c->s[PP_S_ACT];
    if (c->g[PP_P_SHARED_DOWN] && c->w[PP_P_SHARED_WEIGHT]) {
        PP_RUN(c, experts->spread, e->act, act, c->s[PP_S_SHARED_WEIGHT], NULL,
               c->T, e->S);
        act = e->act;
    }
    pp_product_bwd_weight(c, &p, c->T, dy, act);
}

void pp_shared_up_bwd_weight(const struct pp_call *c,
                             const struct pp_shared_expert *e, const void *x)
{
    const struct pp_product up = gate_and_up(c, e), own = weight(c);
    pp_product_bwd_weight(c, &up, c->T, c->s[PP_S_DGATE_UP], x);
    pp_product_bwd_weight(c, &own, c->T, c->s[PP_S_DSHARED_WEIGHT], x);
}
