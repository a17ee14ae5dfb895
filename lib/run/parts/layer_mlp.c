/* SPDX-License-Identifier: MIT */
/* layer_mlp - y = mid + down(activation(widened)) of the normed mid. With a
 * gate the first product has twice the width, and the activation is
 * silu(gate) * up or gelu(gate) * up; else it is gelu. */
#include "run/parts/layer_impl.h"

/* An activation between the products. */
struct activation {
    size_t weight, bias; /* slots of the first product */
    size_t copies;       /* of the MLP's width in its output */
    int (*fwd)(const struct pp_layer *l, size_t T, void *const *s);
    /* Writes PP_S_DGATE_UP from the gradient of the output. */
    int (*bwd)(const struct pp_layer *l, size_t T, void *const *s,
               const void *dact);
    /* The gradient of the output may be in PP_S_DGATE_UP. */
    bool in_place;
};

static int silu_fwd(const struct pp_layer *l, size_t T, void *const *s)
{
    return l->env->kernels->swiglu_fwd(s[PP_S_ACT], s[PP_S_GATE_UP], T,
                                       l->env->model->intermediate,
                                       l->env->stream);
}

static int silu_bwd(const struct pp_layer *l, size_t T, void *const *s,
                    const void *dact)
{
    return l->env->kernels->swiglu_bwd(s[PP_S_DGATE_UP], dact, s[PP_S_GATE_UP],
                                       T, l->env->model->intermediate,
                                       l->env->stream);
}

static int geglu_fwd(const struct pp_layer *l, size_t T, void *const *s)
{
    return l->env->kernels->geglu_fwd(s[PP_S_ACT], s[PP_S_GATE_UP], T,
                                      l->env->model->intermediate,
                                      l->env->stream);
}

static int geglu_bwd(const struct pp_layer *l, size_t T, void *const *s,
                     const void *dact)
{
    return l->env->kernels->geglu_bwd(s[PP_S_DGATE_UP], dact, s[PP_S_GATE_UP],
                                      T, l->env->model->intermediate,
                                      l->env->stream);
}

static int gelu_fwd(const struct pp_layer *l, size_t T, void *const *s)
{
    return l->env->kernels->gelu_fwd(s[PP_S_ACT], s[PP_S_GATE_UP],
                                     T * l->env->model->intermediate,
                                     l->env->model->gelu, l->env->stream);
}

static int gelu_bwd(const struct pp_layer *l, size_t T, void *const *s,
                    const void *dact)
{
    return l->env->kernels->gelu_bwd(s[PP_S_DGATE_UP], dact, s[PP_S_GATE_UP],
                                     T * l->env->model->intermediate,
                                     l->env->model->gelu, l->env->stream);
}

static const struct activation *activation_of(const struct pp_layer *l)
{
    static const struct activation gated = {PP_P_GATE, PP_P_GATE_BIAS, 2,
                                            silu_fwd, silu_bwd};
    static const struct activation by_gelu = {PP_P_GATE, PP_P_GATE_BIAS, 2,
                                              geglu_fwd, geglu_bwd};
    static const struct activation plain = {
        PP_P_UP, PP_P_UP_BIAS, 1, gelu_fwd, gelu_bwd, .in_place = true};
    struct pp_model_part parts[PP_MAX_PARTS];
    size_t n = pp_unit_parts(l->env->model, l->unit, parts);
    for (size_t i = 0; i < n; i++)
        if (parts[i].kind == PP_PART_PLAIN_MLP)
            return &plain;
    return pp_family_of(l->env->model->architecture)->geglu ? &by_gelu : &gated;
}

static struct pp_joined down(const struct pp_layer *l)
{
    return (struct pp_joined){PP_P_DOWN, PP_P_DOWN_BIAS,
                              l->env->model->intermediate};
}

static int widen(const struct pp_layer *l, const struct pp_microbatch *mb,
                 const struct activation *a, const struct pp_layer_blocks *b,
                 void *const *s, struct pp_err *err)
{
    size_t C = l->env->model->hidden,
           OC = a->copies * l->env->model->intermediate;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM2], err);
    if (!x)
        return -1;
    PP_LAYER_RUN(l->env->kernels->linear_fwd(
        s[PP_S_GATE_UP], x, l->w[a->weight], l->w[a->bias], NULL, mb->tokens, C,
        OC, OC, C, l->env->stream));
    return 0;
}

static int mlp_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                   void *y, const void *residual,
                   const struct pp_layer_blocks *b, void *const *s,
                   void *scratch, struct pp_err *err)
{
    (void)scratch;
    const struct activation *a = activation_of(l);
    const struct pp_joined p = down(l);
    if (widen(l, mb, a, b, s, err))
        return -1;
    PP_LAYER_RUN(a->fwd(l, mb->tokens, s));
    return pp_layer_join_fwd(l, mb, b, y, s[PP_S_ACT], &p, residual, err);
}

static int mlp_recompute(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct pp_layer_blocks *b, void *const *s,
                         void *scratch, struct pp_err *err)
{
    (void)scratch;
    const struct activation *a = activation_of(l);
    if (l->recompute == PP_RECOMPUTE_FULL && widen(l, mb, a, b, s, err))
        return -1;
    PP_LAYER_RUN(a->fwd(l, mb->tokens, s));
    return 0;
}

/* The scratch has room for the gradient of the activation, (T, I). */
static int mlp_bwd_input(const struct pp_layer *l,
                         const struct pp_microbatch *mb, const void *dy,
                         const struct pp_layer_blocks *b, void *const *s,
                         void *scratch, struct pp_err *err)
{
    const struct activation *a = activation_of(l);
    const struct pp_joined p = down(l);
    void *dact = a->in_place ? s[PP_S_DGATE_UP] : scratch;
    if (pp_layer_join_bwd_input(l, mb, b, dact, dy, &p, err))
        return -1;
    PP_LAYER_RUN(a->bwd(l, mb->tokens, s, dact));
    return pp_layer_split_bwd_input(
        l, mb, b, s[PP_S_DNORM2], s[PP_S_DGATE_UP], a->weight,
        a->copies * l->env->model->intermediate, err);
}

static int mlp_bwd_weight(const struct pp_layer *l,
                          const struct pp_microbatch *mb,
                          const struct pp_layer_blocks *b, void *const *s,
                          void *scratch, struct pp_err *err)
{
    (void)scratch;
    const struct activation *a = activation_of(l);
    const struct pp_joined p = down(l);
    size_t C = l->env->model->hidden,
           OC = a->copies * l->env->model->intermediate;
    if (pp_layer_join_bwd_weight(l, mb, b, s[PP_S_DOUT2], s[PP_S_ACT], &p, err))
        return -1;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_NORM2], err);
    if (!x)
        return -1;
    if (l->g[a->weight])
        PP_LAYER_RUN(l->env->kernels->linear_bwd_weight(
            l->g[a->weight], l->g[a->bias], s[PP_S_DGATE_UP], x, mb->tokens, C,
            OC, OC, C, l->env->stream));
    return 0;
}

const struct pp_block_ops pp_part_mlp = {
    .fwd = mlp_fwd,
    .recompute = mlp_recompute,
    .bwd_input = mlp_bwd_input,
    .bwd_weight = mlp_bwd_weight,
};
