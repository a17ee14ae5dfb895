/* SPDX-License-Identifier: MIT */
/* layer_shared - the shared expert of a layer of experts: a gated MLP of every
 * token (Dai et al., "DeepSeekMoE", ACL 2024). Qwen2-MoE weighs its output by
 * the sigmoid of one more product of the input.
 *
 * It reads nothing that other ranks send, so its products run while rows of the
 * other experts travel. */
#include "run/parts/layer_impl.h"

int pp_shared_gate_fwd(const struct pp_layer *l,
                       const struct pp_shared_expert *e, const void *x,
                       void *const *s, struct pp_err *err)
{
    if (!l->w[PP_P_SHARED_WEIGHT])
        return 0;
    PP_LAYER_RUN(l->env->kernels->linear_fwd(
        e->act, x, l->w[PP_P_SHARED_WEIGHT], NULL, NULL, e->T, e->C, 1, 1, e->C,
        l->env->stream));
    PP_LAYER_RUN(l->env->kernels->experts->gate_fwd(
        s[PP_S_SHARED_WEIGHT], e->act, e->T, l->env->stream));
    return 0;
}

int pp_shared_up_fwd(const struct pp_layer *l, const struct pp_shared_expert *e,
                     const void *x, void *const *s, struct pp_err *err)
{
    if (!e->S)
        return 0;
    PP_LAYER_RUN(l->env->kernels->linear_fwd(
        s[PP_S_GATE_UP], x, l->w[PP_P_SHARED_GATE], NULL, NULL, e->T, e->C,
        2 * e->S, 2 * e->S, e->C, l->env->stream));
    return pp_shared_activate(l, e, s, err);
}

int pp_shared_activate(const struct pp_layer *l,
                       const struct pp_shared_expert *e, void *const *s,
                       struct pp_err *err)
{
    if (e->S)
        PP_LAYER_RUN(l->env->kernels->swiglu_fwd(s[PP_S_ACT], s[PP_S_GATE_UP],
                                                 e->T, e->S, l->env->stream));
    return 0;
}

int pp_shared_down_fwd(const struct pp_layer *l,
                       const struct pp_shared_expert *e, void *y,
                       void *const *s, struct pp_err *err)
{
    if (!e->S)
        return 0;
    PP_LAYER_RUN(l->env->kernels->linear_fwd(
        y, s[PP_S_ACT], l->w[PP_P_SHARED_DOWN], NULL, NULL, e->T, e->S, e->C,
        e->C, e->S, l->env->stream));
    if (l->w[PP_P_SHARED_WEIGHT])
        PP_LAYER_RUN(l->env->kernels->experts->spread(
            y, y, s[PP_S_SHARED_WEIGHT], NULL, e->T, e->C, l->env->stream));
    return 0;
}

int pp_shared_down_bwd(const struct pp_layer *l,
                       const struct pp_shared_expert *e, const void *dy,
                       void *const *s, struct pp_err *err)
{
    const struct pp_expert_kernels *k = l->env->kernels->experts;
    if (!e->S)
        return 0;
    PP_LAYER_RUN(l->env->kernels->linear_bwd_input(
        e->act, dy, l->w[PP_P_SHARED_DOWN], e->T, e->S, e->C, e->S, e->C,
        l->env->stream));
    if (l->w[PP_P_SHARED_WEIGHT]) {
        PP_LAYER_RUN(k->weigh_bwd(e->weights, e->act, s[PP_S_ACT],
                                  s[PP_S_SHARED_WEIGHT], e->T, e->S,
                                  l->env->stream));
        PP_LAYER_RUN(k->gate_bwd(s[PP_S_DSHARED_WEIGHT], e->weights,
                                 s[PP_S_SHARED_WEIGHT], e->T, l->env->stream));
    }
    PP_LAYER_RUN(l->env->kernels->swiglu_bwd(
        s[PP_S_DGATE_UP], e->act, s[PP_S_GATE_UP], e->T, e->S, l->env->stream));
    return 0;
}

int pp_shared_up_bwd(const struct pp_layer *l, const struct pp_shared_expert *e,
                     void *dx, void *const *s, struct pp_err *err)
{
    if (e->S)
        PP_LAYER_RUN(l->env->kernels->linear_bwd_input(
            dx, s[PP_S_DGATE_UP], l->w[PP_P_SHARED_GATE], e->T, e->C, 2 * e->S,
            e->C, 2 * e->S, l->env->stream));
    return 0;
}

/* Adds dy^T x, (outputs, width), to the gradient at slot g. */
static int add_gradient(const struct pp_layer *l,
                        const struct pp_shared_expert *e, size_t g,
                        const void *dy, const void *x, size_t width,
                        size_t outputs, struct pp_err *err)
{
    if (l->g[g])
        PP_LAYER_RUN(l->env->kernels->linear_bwd_weight(
            l->g[g], NULL, dy, x, e->T, width, outputs, outputs, width,
            l->env->stream));
    return 0;
}

int pp_shared_down_bwd_weight(const struct pp_layer *l,
                              const struct pp_shared_expert *e, const void *dy,
                              void *const *s, struct pp_err *err)
{
    const void *act = s[PP_S_ACT];
    if (l->g[PP_P_SHARED_DOWN] && l->w[PP_P_SHARED_WEIGHT]) {
        PP_LAYER_RUN(
            l->env->kernels->experts->spread(e->act, act, s[PP_S_SHARED_WEIGHT],
                                             NULL, e->T, e->S, l->env->stream));
        act = e->act;
    }
    return add_gradient(l, e, PP_P_SHARED_DOWN, dy, act, e->S, e->C, err);
}

int pp_shared_up_bwd_weight(const struct pp_layer *l,
                            const struct pp_shared_expert *e, const void *x,
                            void *const *s, struct pp_err *err)
{
    return add_gradient(l, e, PP_P_SHARED_GATE, s[PP_S_DGATE_UP], x, e->C,
                        2 * e->S, err) ||
                   add_gradient(l, e, PP_P_SHARED_WEIGHT,
                                s[PP_S_DSHARED_WEIGHT], x, e->C, 1, err)
               ? -1
               : 0;
}
